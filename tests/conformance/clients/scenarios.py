"""What every client of the field is asked to do; its module says how. Runs in the clients' environment."""

import asyncio
import json
import math
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from struct import pack

RATE = 24_000
SCENARIOS = (
    "open",
    "text turn",
    "server VAD",
    "push-to-talk",
    "tool call",
    "barge-in",
    "truncate",
    "close",
    "reconnect",
)
LIMIT_S = 25.0


class Impossible(Exception):
    """The client cannot be driven so without its cloud; the message says why."""


Act = Callable[[str], Awaitable[None]]
"""Plays a scenario against the server at an address (`host:port`); raises if something is wrong."""


def tone(ms: int, rate: int = RATE) -> bytes:
    """Return a loud tone, pcm16."""
    count = rate * ms // 1000
    return b"".join(pack("<h", int(12_000 * math.sin(2 * math.pi * 440 * n / rate))) for n in range(count))


def silence(ms: int, rate: int = RATE) -> bytes:
    """Return digital silence."""
    return bytes(rate * ms // 1000 * 2)


def spoken(rate: int = RATE) -> bytes:
    """Return a turn of a user: silence, a tone, and silence that ends it."""
    return silence(300, rate) + tone(900, rate) + silence(1_200, rate)


async def becomes(condition: Callable[[], object], what: str, seconds: float = 10.0) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it never is.
    """
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"never: {what}")
        await asyncio.sleep(0.01)


def main(*acts: Act) -> None:
    """Play the scenarios, an act for each in their order; print how each ended, a JSON object on a line."""
    address = sys.argv[1]
    only = sys.argv[2:] or SCENARIOS
    for name, act in zip(SCENARIOS, acts, strict=True):
        if name not in only:
            continue
        outcome, why = asyncio.run(_play(act, address))
        sys.stdout.write(json.dumps({"scenario": name, "outcome": outcome, "why": why}) + "\n")
        sys.stdout.flush()


async def _play(act: Act, address: str) -> tuple[str, str]:
    try:
        async with asyncio.timeout(LIMIT_S):
            await act(address)
    except Impossible as impossible:
        return "cannot", str(impossible)
    except Exception as error:
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {error}"[:300]
    return "passed", ""
