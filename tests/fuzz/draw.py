"""From a seed to a plan."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pybase64
from msgspec import Struct

from . import frames, mutations, posts, requests
from .plan import ENDINGS, Plan, Step

TALKS = Path(__file__).parent / "talks"
LOUD = pybase64.b64encode_as_string(b"\x10\x27" * 1280)
QUIET = pybase64.b64encode_as_string(bytes(2560))
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
MODELS = ("cascade", "cascade", "echo", "beside", "memory", "unit")
GAPS_US = (0, 0, 0, 0, 300, 20_000, 20_000, 200_000, 700_000)
STAGE_US = (0, 5_000, 40_000)
REQUESTS: tuple[tuple[Literal["ga", "beta", "duplex"], str, tuple[str, ...]], ...] = (
    ("ga", "/v1/realtime?model=m", ()),
    ("beta", "/v1/realtime?model=m", (requests.BETA,)),
    ("duplex", "/v1/realtime?duplex=1&model=m", ()),
    ("duplex", "/v1/realtime?duplex=1&model=m&autostart=0", ()),
)


class Talk(Struct, frozen=True):
    """A conversation as a client of a dialect holds it."""

    dialect: Literal["ga", "beta", "duplex", ""]
    request: bytes
    messages: tuple[dict[str, Any], ...]


@cache
def talks() -> tuple[Talk, ...]:
    """Return the recorded conversations."""
    return tuple(_talk(path) for path in sorted(TALKS.glob("*.jsonl")))


def _talk(path: Path) -> Talk:
    text = path.read_text().replace("$loud", LOUD).replace("$quiet", QUIET).replace("$picture", PICTURE)
    head, *messages = map(json.loads, text.splitlines())
    more = (head["header"],) if "header" in head else ()
    return Talk(head["dialect"], requests.request(head["path"], *more), tuple(messages))


def plan(seed: int) -> Plan:
    """Draw the plan of a seed."""
    rng = random.Random(f"antiphon fuzz {seed}")
    roll = rng.random()
    if roll < 0.3:
        return _frames(rng, seed)
    if roll < 0.47:
        return _http(rng, seed, "request" if roll < 0.4 else "post")
    return _conversation(rng, seed)


def _frames(rng: random.Random, seed: int) -> Plan:
    dialect, path, more = rng.choice(REQUESTS)
    steps = [_raw(rng, piece) for piece in frames.cut(rng, frames.stream(rng))]
    return Plan(
        seed=seed,
        kind="frames",
        dialect=dialect,
        model=rng.choice(MODELS),
        request=requests.request(path, *more).decode("latin-1"),
        steps=tuple(steps),
        ending=rng.choice(ENDINGS),
    )


def _http(rng: random.Random, seed: int, kind: Literal["request", "post"]) -> Plan:
    pieces = frames.cut(rng, (requests if kind == "request" else posts).strange(rng))
    return Plan(
        seed=seed,
        kind=kind,
        model=rng.choice(("cascade", "beside")),  # a made-up model that listens may never end an answer
        stage_us=rng.choice(STAGE_US),
        steps=tuple(Step(rng.choice((0, 0, 0, 1000)), piece.decode("latin-1")) for piece in pieces),
        ending=rng.choice(ENDINGS),
        keys=rng.random() < 0.25,
    )


def _conversation(rng: random.Random, seed: int) -> Plan:
    talk = rng.choice(talks())
    messages = list(talk.messages)
    if rng.random() < 0.25:
        _reorder(rng, messages)
    texts = [mutations.written(message).encode() for message in messages]
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        at = rng.randrange(len(messages))
        texts[at] = mutations.mutated(rng, messages[at])
    if rng.random() < 0.1:
        at = rng.randrange(len(texts))
        texts[at:at] = [rng.choice(texts)] * rng.choice((2, 20, 60))
    return Plan(
        seed=seed,
        kind="talk",
        dialect=talk.dialect,
        model=rng.choice(MODELS),
        stage_us=rng.choice(STAGE_US),
        request=talk.request.decode("latin-1"),
        steps=tuple(Step(rng.choice(GAPS_US), text.decode("latin-1"), True) for text in texts),
        ending=rng.choice(ENDINGS),
        beside=rng.random() < 0.3 or any(b"$other" in text for text in (talk.request, *texts)),
    )


def _reorder(rng: random.Random, messages: list[dict[str, Any]]) -> None:
    """Let messages come in another order, twice, not at all, or from another dialect's client."""
    roll = rng.randrange(4)
    if roll == 0:
        rng.shuffle(messages)
    elif roll == 1:
        messages += rng.choices(messages, k=4)
    elif roll == 2 and len(messages) > 1:
        del messages[rng.randrange(len(messages))]
    else:
        at = rng.randrange(len(messages) + 1)
        messages[at:at] = rng.choice(talks()).messages[:6]


def _raw(rng: random.Random, piece: bytes) -> Step:
    return Step(rng.choice((0, 0, 0, 500)), piece.decode("latin-1"))
