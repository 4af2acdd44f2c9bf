"""What happens to a world, written down: a seed gives a script, a script one trace, and a script can be cut."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

Model = Literal["cascade", "beside", "echo", "memory", "unit"]
"""Turns by a cascade, turns that overlap, and models that listen: with a memory, or by units of 80 ms."""


class Settings(Struct, frozen=True, kw_only=True):
    """What is drawn once for a world."""

    model: Model = "cascade"
    peers: tuple[str, ...] = ("duplex",)
    latency_us: int = 2_000
    commit_us: int = 500
    stage_us: int = 20_000
    scores_us: int = 0
    max_sessions: int = 4
    replay_bytes: int = 256 * 1024 * 1024
    slow_bytes: int = 16 * 1024 * 1024


class Step(Struct, frozen=True, array_like=True):
    """One thing that is done to the world, `gap_us` after the last one: by or to `who`, with three numbers.

    The numbers choose among what is there when the step comes (`a` modulo the number of answers, say), so that a
    script from which steps were cut still means something.
    """

    gap_us: int
    who: int
    what: str
    a: int = 0
    b: int = 0
    c: int = 0


class Script(Struct, frozen=True):
    """A world from its beginning to its end. `seed` feeds what is not chosen step by step: the stage's answers."""

    seed: int
    settings: Settings
    steps: tuple[Step, ...]
    about: str = ""


CLIENT: dict[str, float] = {
    "append": 26,
    "speak": 12,
    "cough": 8,
    "drone": 2,
    "stutter": 3,
    "ask": 8,
    "commit": 8,
    "clear": 2,
    "cancel_input": 1,
    "text": 5,
    "respond": 5,
    "aside": 2,
    "cancel": 4,
    "barge_in": 2,
    "clear_output": 2,
    "truncate": 3,
    "delete": 2,
    "retrieve": 1,
    "ack": 9,
    "event_ack": 5,
    "update": 6,
    "write": 1,
    "signal": 2,
    "output": 2,
    "heartbeat": 2,
    "junk": 2,
    "close": 0.5,
}
"""What clients do, and how often."""

LINES: dict[str, float] = {
    "drop": 5,
    "vanish": 2,
    "connect": 14,
    "race": 2,
    "again": 2,
    "forge": 1,
    "stop_reading": 1,
    "read_on": 2,
    "give_up": 2,
    "lag": 1,
}
"""What happens to connections."""

WORLD: dict[str, float] = {
    "stall": 4,
    "refuse": 2,
    "crash_in_append": 2,
    "kill": 1,
    "rival": 1,
    "shut_down": 1,
    "wait": 6,
    "wall": 1,
    "mood": 12,
    "lose_stage": 1,
    "let_go": 3,
    "operator_detach": 1,
    "operator_close": 0.3,
    "cancel_call": 3,
    "deaf": 1,
}
"""What happens to the rest."""

GAPS_US = (*(0, 0, 0, 50, 300, 2_000, 20_000, 32_000, 100_000, 400_000) * 8, 2_000_000, 6_000_000, 25_000_000)
CURES = ("connect", "read_on", "let_go")
"""What mends; a world needs as much of it as ever."""

STEPS = 150
"""Steps for each client of a world."""


def script(seed: int) -> Script:
    """Draw the script of a seed."""
    rng = random.Random(f"antiphon {seed}")
    peers = tuple(
        rng.choices(("duplex", "ga", "beta", "inline"), (6, 1, 1, 3))[0] for _ in range(rng.choice((1, 1, 2, 3)))
    )
    settings = Settings(
        model=rng.choice(("cascade", "cascade", "cascade", "beside", "echo", "memory", "unit")),
        peers=peers,
        latency_us=rng.choice((0, 500, 2_000, 40_000)),
        commit_us=rng.choice((0, 300, 3_000)),
        stage_us=rng.choice((0, 5_000, 20_000, 60_000)),
        scores_us=rng.choice((0, 0, 3_000)),
        max_sessions=rng.choice((1, 2, 8)),
        replay_bytes=rng.choice((2**28, 2**28, 20_000)),
        slow_bytes=rng.choice((2**24, 2**24, 60_000)),
    )
    calm = rng.choice((1, 2, 4, 8, 16))
    return Script(seed, settings, tuple(_steps(rng, len(peers), calm)))


def _steps(rng: random.Random, peers: int, calm: int) -> Iterator[Step]:
    """Draw the steps; in a `calm` world less goes wrong."""
    kinds = {name: weight for name, weight in CLIENT.items() if rng.random() < 0.85 or name == "append"}
    faults = {name: weight for name, weight in (LINES | WORLD).items() if rng.random() < 0.7 or name == "connect"}
    names = [*kinds, *faults]
    weights = [*kinds.values(), *(weight / (1 if name in CURES else calm) / 2.5 for name, weight in faults.items())]
    cumulative, total = [], 0.0
    for weight in weights:
        total += weight
        cumulative.append(total)
    for who in range(peers):
        yield Step(
            rng.choice(GAPS_US), who, "connect", rng.getrandbits(16), rng.getrandbits(16), rng.getrandbits(16)
        )
    bits = rng.getrandbits
    for _ in range(peers * STEPS):
        what = rng.choices(names, cum_weights=cumulative)[0]
        numbers = bits(48)
        yield Step(
            rng.choice(GAPS_US),
            numbers % peers,
            what,
            numbers >> 4 & 0x3FFF,
            numbers >> 18 & 0x3FFF,
            numbers >> 32 & 0x3FFF,
        )


def load(path: Path) -> Script:
    """Read a script that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Script)


def save(kept: Script, path: Path) -> None:
    """Keep a script, a step on a line."""
    head = msgspec.to_builtins(msgspec.structs.replace(kept, steps=()))
    lines = ",\n".join("  " + msgspec.json.encode(step).decode() for step in kept.steps)
    text = msgspec.json.format(msgspec.json.encode(head), indent=1).decode()
    path.write_text(text.replace('"steps": []', f'"steps": [\n{lines}\n ]') + "\n")
