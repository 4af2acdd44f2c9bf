"""Socket to socket: an 80 ms frame through the server and back, beside a bare echo on the same library.

Run it: python tests/benchmarks/run.py socket

Both servers are processes of their own on uvloop, and both are talked to by the same load generator, which
writes prepared frames; an echo is the audio delta that answers an append (`echo` pipeline, duplex dialect,
durable log), or the same JSON text as it came. The duplex dialect sends two messages for each piece of sound
(the sound, and its words, here none), the rival one.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import uvloop
from figures import Child, Figure, Say, antiphon, fresh_folder, helper, percentile
from talkers import FRAME_S, Crowd

GOAL_MS = 5.0
SECONDS = 4.0
RAMP_S = 40.0
"""For each of the two ramps."""

STEP_S = 1.2
IDLE = 1000
MOST = 2000
"""Talking sessions beyond which nobody asks."""

RIVAL = "bare websockets echo"


def start(name: str, data: Path, core: int | None = None) -> Child:
    """Start one of the two servers."""
    if name == RIVAL:
        return helper("rival", core=core)
    return antiphon(data, "--max-sessions", "4000", core=core)


async def talk(child: Child, count: int, seconds: float, *, bare: bool) -> tuple[list[float], float]:
    """Let `count` sessions talk; return the delays in seconds, and the server's CPU seconds an echo."""
    crowd = Crowd(child.port, bare=bare)
    await crowd.grow(count)
    await asyncio.sleep(0.7)
    crowd.take()
    cpu, echoes = child.cpu(), crowd.echoes()
    await asyncio.sleep(seconds)
    cpu, echoes = child.cpu() - cpu, crowd.echoes() - echoes
    delays = crowd.take()
    crowd.close()
    await asyncio.sleep(0.3)
    return delays, cpu / max(echoes, 1)


async def round_trips(say: Say) -> list[Figure]:
    """Measure round trips and CPU for a few numbers of sessions; the servers take turns."""
    figures: list[Figure] = []
    with fresh_folder() as data, ExitStack() as stack:
        servers = {name: stack.enter_context(start(name, data)) for name in ("antiphon", RIVAL)}
        for count in (1, 50, 100, 300):
            found: dict[str, tuple[list[float], float]] = {}
            for name, child in servers.items():
                say(f"round trips: {count} sessions, {name}")
                found[name] = await talk(child, count, SECONDS, bare=name == RIVAL)
            (ours, cpu), (theirs, bare_cpu) = found["antiphon"], found[RIVAL]
            for label, share in (("p50", 0.5), ("p99", 0.99)):
                figures.append(
                    Figure(
                        part="socket",
                        what=f"round trip of 80 ms, {count} talking, {label}",
                        ours=percentile(ours, share) * 1e3,
                        unit="ms",
                        beside=RIVAL,
                        theirs=percentile(theirs, share) * 1e3,
                    )
                )
            figures.append(
                Figure(
                    part="socket",
                    what=f"server CPU an echo, {count} talking",
                    ours=cpu * 1e6,
                    unit="µs",
                    beside=RIVAL,
                    theirs=bare_cpu * 1e6,
                )
            )
    return figures


async def ramp(child: Child, say: Callable[[int, float], None], *, bare: bool) -> int:
    """Return the most sessions that talked with a p99 within the goal: up in big steps, then halving the gap.

    A step that fails is tried twice more: what else runs on the machine passes, what we cannot do does not.
    """
    crowd = Crowd(child.port, bare=bare)
    loop = asyncio.get_running_loop()
    end = loop.time() + RAMP_S
    best, count, least_bad, failures = 0, 100, 0, 0
    while loop.time() < end:
        await crowd.talk(count)
        await asyncio.sleep(0.4)
        crowd.take()
        await asyncio.sleep(STEP_S)
        delays = crowd.take()
        p99 = percentile(delays, 0.99) * 1e3
        say(count, p99)
        # Whoever falls behind answers late, but late answers are also few.
        if p99 <= GOAL_MS and len(delays) > 0.9 * count * STEP_S / FRAME_S:
            best, failures = count, 0
        elif failures < 2:
            failures += 1
            continue
        else:
            least_bad, failures = count, 0
        count = (best + least_bad) // 2 if least_bad else min(int(count * 1.5), MOST)
        if best == MOST or (least_bad and least_bad - best < best * 0.08):
            break
    crowd.close()
    return best


async def most(say: Say) -> list[Figure]:
    """Find how many sessions can talk on one core, the load generator on another."""
    cores = sorted(os.sched_getaffinity(0))
    server_core, client_core = cores[0], cores[-1]
    found: dict[str, int] = {}
    os.sched_setaffinity(0, {client_core})
    try:
        for name in (RIVAL, "antiphon"):
            with fresh_folder() as data, start(name, data, core=server_core) as child:

                def tell(count: int, p99: float, name: str = name) -> None:
                    say(f"one core, {name}: {count} talking, p99 {p99:.1f} ms")

                found[name] = await ramp(child, tell, bare=name == RIVAL)
    finally:
        os.sched_setaffinity(0, cores)
    return [
        Figure(
            part="socket",
            what=f"talking on one core, round trip p99 <= {GOAL_MS:.0f} ms",
            ours=found["antiphon"],
            unit="sessions",
            beside=RIVAL,
            theirs=found[RIVAL],
            goal=">= 400, >= 0.6 of bare",
        )
    ]


async def idle(say: Say) -> list[Figure]:
    """Measure the memory of a connected session that says nothing."""
    found: dict[str, float] = {}
    connected = 0
    for name in ("antiphon", RIVAL):
        say(f"{IDLE} connected, {name}")
        with fresh_folder() as data, start(name, data) as child:
            warm = Crowd(child.port, bare=name == RIVAL)
            await warm.grow(20, talking=False)
            before = child.memory()
            crowd = Crowd(child.port, bare=name == RIVAL)
            await crowd.grow(IDLE, talking=False)
            await asyncio.sleep(1.0)
            found[name] = (child.memory() - before) / IDLE / 1024
            if name != RIVAL:
                connected = sum(not talker.lost for talker in crowd.talkers)
            crowd.close()
            warm.close()
    return [
        Figure(part="socket", what="connected at once", ours=connected, unit="sessions", goal=">= 1000"),
        Figure(
            part="socket",
            what="memory of a connected session",
            ours=found["antiphon"],
            unit="KiB",
            beside=RIVAL,
            theirs=found[RIVAL],
        ),
    ]


def measure(say: Say) -> list[Figure]:
    """Run all of it: about two minutes."""

    async def everything() -> list[Figure]:
        return [*await round_trips(say), *await idle(say), *await most(say)]

    return uvloop.run(everything())
