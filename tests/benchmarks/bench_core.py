"""The pure core beside a plain loop of function calls that update a dict: microseconds a command, events a second.

Run it: python tests/benchmarks/bench_core.py [--commands 20000]

A command is decided, its events are folded, their effects are asked for, and the transaction is put into a list,
as a store in memory would. The unit is one step of a loop that calls three functions and updates a dict of ten
keys: what Python costs before anything is decided. Goals (DESIGN 9): at most 10 µs a command, at least 250,000
events a second.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from antiphon.events import commands as cmd
from antiphon.events.audio import AudioFormat
from antiphon.events.config import Dialect, Limits, SessionConfig, TurnDetection
from antiphon.events.items import Message, TextPart
from antiphon.events.log import Transaction
from antiphon.sessions import core

FRAME = 1_024
PIECE = 3_840
"""80 ms at 24 kHz."""
ROUNDS = 5


class Bench:
    """A session and its transactions."""

    def __init__(self, *, plugin: str = "cascade", auto: bool = False, vad: bool = False) -> None:
        model = core.REGISTRY[plugin]
        dialect: Dialect = "duplex"
        self.session = core.new()
        self.log: list[Transaction] = []
        self.now = 0
        self.do(
            cmd.OpenSession(
                session="duplex-" + "0" * 32,
                control_id="open",
                dialect=dialect,
                plugin=plugin,
                plugin_version=model.version,
                capabilities=model.capabilities,
                config=SessionConfig(
                    model="voice",
                    turn_detection=TurnDetection() if vad else None,
                    auto_response=auto,
                    output_format=AudioFormat("pcm16", 24_000),
                ),
                limits=Limits(input_bytes=2**40),
                wall_us=0,
                token_digest="0" * 64,
            )
        )

    def do(self, command: cmd.AnyCommand) -> None:
        """One step of a runner, without its inbox and its store."""
        session, now = self.session, self.now
        events = core.decide(session, command, now)
        for event in events:
            core.evolve(session, event, now)
        for event in events:
            core.react(session, event)
        self.log.append(Transaction(seq=len(self.log), term=1, at=now, command=command, events=tuple(events)))
        self.now = now + 32_000

    def heard(self, command: cmd.AnyCommand) -> None:
        """One step, and the stage's word that it has what it was given."""
        self.do(command)
        flying = self.session.input.stream.in_flight
        if flying:
            self.do(cmd.StageAccepted(request=flying[-1].taken.request, operation=flying[-1].taken.operation))


def append(score: int | None) -> cmd.AppendAudio:
    """A frame of sound, scored or not."""
    scores = () if score is None else (score,)
    return cmd.AppendAudio(attachment=1, size=FRAME, wire_bytes=FRAME, scores=scores)


def speaking() -> tuple[Bench, cmd.AnyCommand]:
    """A session with server VAD in the middle of an utterance."""
    bench = Bench(vad=True)
    for _ in range(8):
        bench.do(append(900))
    assert bench.session.input.phase == "speaking"
    return bench, append(900)


def silent() -> tuple[Bench, cmd.AnyCommand]:
    """A session with server VAD that hears nothing."""
    bench = Bench(vad=True)
    return bench, append(20)


def resident() -> tuple[Bench, cmd.AnyCommand]:
    """A resident model that speaks and hears a frame of 80 ms, a unit of its own, every time."""
    bench = Bench(plugin="personaplex", auto=True)
    model = bench.session.capabilities
    size = model.input_format.bytes_for(model.chunk_period_ms or 0)
    frame = cmd.AppendAudio(attachment=1, size=size, wire_bytes=size, speech=False)
    bench.heard(frame)
    (request,) = bench.session.requests
    bench.do(cmd.StageProduced(request=request, text="Well, ", size=PIECE))
    return bench, frame


def answering() -> tuple[Bench, cmd.AnyCommand]:
    """A cascade that speaks: 80 ms of sound, and a word with every third piece."""
    bench = Bench()
    bench.do(cmd.CreateItem(attachment=1, item=Message(id="", role="user", content=(TextPart("Hello?"),))))
    bench.do(cmd.CreateResponse(attachment=1))
    response = bench.session.response
    assert response is not None
    bench.do(cmd.StageProduced(request=response.request, text="Well, ", size=PIECE))
    return bench, cmd.StageProduced(request=response.request, size=PIECE)


def accepted(bench: Bench, command: cmd.AnyCommand, count: int) -> tuple[float, float]:
    """Return microseconds of an append, and of the stage's word that it has its unit: best of some rounds."""
    appends: list[float] = []
    words: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        gc.disable()
        spent = [0.0, 0.0]
        for _ in range(count):
            begin = time.perf_counter()
            bench.do(command)
            middle = time.perf_counter()
            unit = bench.session.input.stream.in_flight[-1].taken
            answer = cmd.StageAccepted(request=unit.request, operation=unit.operation)
            again = time.perf_counter()
            bench.do(answer)
            spent[0] += middle - begin
            spent[1] += time.perf_counter() - again
        appends.append(spent[0] / count * 1e6)
        words.append(spent[1] / count * 1e6)
        gc.enable()
    return min(appends), min(words)


def timed(step: Callable[[], object], count: int) -> float:
    """Return microseconds of a call: the best of some rounds, the collector standing still."""
    rounds: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        for _ in range(count):
            step()
        rounds.append((time.perf_counter() - begin) / count * 1e6)
        gc.enable()
    return min(rounds)


def unit(count: int) -> float:
    """Return microseconds of a step of the plain loop."""
    state = {f"field_{n}": n for n in range(10)}
    log: list[dict[str, int]] = []

    def decide(now: int) -> dict[str, int]:
        return {"field_1": now, "field_2": now + 1}

    def evolve(change: dict[str, int]) -> None:
        state.update(change)

    def react(change: dict[str, int]) -> int:
        return state["field_3"] + change["field_1"]

    def step() -> None:
        change = decide(len(log))
        evolve(change)
        react(change)
        log.append(change)

    return timed(step, count)


def commands(count: int) -> list[tuple[str, float]]:
    """Return the microseconds of a command of each kind."""
    found: list[tuple[str, float]] = []
    for make in (speaking, silent, answering):
        bench, command = make()
        found.append((make.__doc__ or make.__name__, timed(lambda b=bench, c=command: b.do(c), count)))
    bench, command = resident()
    given, taken = accepted(bench, command, count)
    found.append((resident.__doc__ or "", given))
    found.append(("The stage's word that it has it.", taken))
    bench, _ = speaking()

    def counted() -> None:
        seq = bench.session.lease.client_seq + 1
        bench.do(cmd.AppendAudio(attachment=1, size=FRAME, wire_bytes=FRAME, scores=(900,), client_seq=seq))

    found.append(("The first one, of a client that counts its commands.", timed(counted, count)))
    return found


def folded(count: int) -> float:
    """Return the events that are folded in a second, of a log with sound both ways."""
    bench, command = answering()
    for n in range(count):
        bench.do(command if n % 2 else append(None))
    events = sum(len(transaction.events) for transaction in bench.log)
    times: list[float] = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        core.fold(bench.log)
        times.append(time.perf_counter() - begin)
    return events / min(times)


def show(base: float, found: Sequence[tuple[str, float]], fold: float) -> None:
    """Print the table."""
    table = Table("what", "µs", "x plain loop", "goal", title="decide + evolve + react + append")
    table.add_row("a plain loop: three calls, a dict update", f"{base:.2f}", "1.0", "")
    for name, us in found:
        table.add_row(name, f"{us:.2f}", f"{us / base:.1f}", "<= 10 µs")
    middle = statistics.median(us for _, us in found)
    table.add_row("their median", f"{middle:.2f}", f"{middle / base:.1f}", "<= 10 µs")
    table.add_row("fold, an event", f"{1e6 / fold:.2f}", f"{1e6 / fold / base:.1f}", "<= 4 µs")
    console = Console()
    console.print(table)
    console.print(f"{fold:,.0f} events folded a second (goal 250,000)")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=20_000, help="commands of each kind and round")
    count: int = parser.parse_args().commands
    base = unit(count)
    show(base, commands(count), folded(count))


if __name__ == "__main__":
    main()
