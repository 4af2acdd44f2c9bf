"""One input of the fuzzer, written down: what a connection is sent, byte for byte, and when."""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

Kind = Literal["frames", "request", "post", "talk"]
HTTP: tuple[Kind, ...] = ("request", "post")
"""Kinds whose steps are all that is sent; the others begin with a valid request for a websocket."""

Ending = Literal["drop", "eof", "close", "session.close"]
ENDINGS: tuple[Ending, ...] = ("drop", "eof", "close", "session.close")


class Step(Struct, frozen=True, array_like=True):
    """Something that is sent, `gap_us` after the last one; each character of `data` is one byte.

    `message` True: the text of a message, in which names like `"$item"` stand for what the server last named so;
    False: bytes for the socket as they are.
    """

    gap_us: int
    data: str
    message: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """A connection from its first byte to its end. `seed` feeds what is not written down: the stage's answers.

    `request` is sent first, if the kind has one.
    `keys` True: nobody may come without a key, which is "right".
    `beside` True: another client has a session meanwhile, whose ids may be abused, and which must notice nothing.
    """

    seed: int
    kind: Kind
    dialect: Literal["ga", "beta", "duplex", ""] = ""
    model: str = "cascade"
    stage_us: int = 0
    request: str = ""
    steps: tuple[Step, ...] = ()
    ending: Ending = "drop"
    keys: bool = False
    beside: bool = False
    about: str = ""


def load(path: Path) -> Plan:
    """Read a plan that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Plan)


def save(plan: Plan, path: Path) -> None:
    """Keep a plan, one step on a line."""
    path.write_text(msgspec.json.format(msgspec.json.encode(plan), indent=1).decode() + "\n")
