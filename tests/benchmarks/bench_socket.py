"""Sessions on one core of a real server, beside a bare echo on the same library.

Run it: python tests/benchmarks/run.py socket

Both servers are processes of their own on uvloop and the same core, and both are talked to by the same load
generator on another one, which writes prepared frames of 80 ms; an echo is the audio delta that answers an append
(`echo` pipeline, duplex dialect, durable log), or the same JSON text as it came. The duplex dialect sends two
messages for each piece of sound (the sound, and its words, here none), the rival one.

A frame is inside from being read from the socket until its echo was handed to it: the servers note it themselves.
So many sessions are held as talk with a p99 of at most 5 ms inside, and all of whose echoes come.
"""

import asyncio
import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path

import uvloop
from figures import Child, Figure, Say, fresh_folder, helper, percentile
from talkers import FRAME_S, Crowd

GOAL_MS = 5.0
LEAST_ECHOES = 0.97
"""Share of the frames that were sent whose echoes come in the same time."""

RAMP_S = 36.0
"""For each of the two ramps."""

STEP_S = 1.2
REST_S = 2.0
IDLE, TALKING = 1000, 100
SECONDS = 6.0
MOST = 2000
"""Talking sessions beyond which nobody asks."""

OURS, RIVAL = "antiphon", "bare websockets echo"


def start(name: str, data: Path, core: int) -> Child:
    """Start one of the two servers."""
    return helper("timed_server", *(["bare"] if name == RIVAL else ["antiphon", str(data)]), core=core)


def inside(child: Child) -> list[float]:
    """Return the milliseconds inside of all frames since this was last asked."""
    child.process.send_signal(signal.SIGUSR1)
    assert child.process.stdout is not None
    delays: list[float] = json.loads(child.process.stdout.readline())
    return delays


async def attempt(child: Child, crowd: Crowd, count: int) -> tuple[float, float]:
    """Let so many talk; return the p99 inside, in milliseconds, and the share of the echoes that come.

    So many that one of them is not let in are not held: no echo counts, and the server may rest.
    """
    loop = asyncio.get_running_loop()
    try:
        await crowd.talk(count)
    except ConnectionError:
        crowd.hush()
        await asyncio.sleep(REST_S)
        inside(child)
        return math.inf, 0.0
    await asyncio.sleep(0.4)
    inside(child)
    echoes, begin = crowd.echoes(), loop.time()
    await asyncio.sleep(STEP_S)
    share = (crowd.echoes() - echoes) / (count * (loop.time() - begin) / FRAME_S)
    crowd.take()
    return percentile(inside(child), 0.99), share


async def ramp(child: Child, say: Callable[[int, float, float], None], *, bare: bool) -> int:
    """Return the most sessions that talked within the goal: up in big steps, then halving the gap.

    A step that fails is tried twice more, unless not all were let in: what else runs on the machine passes, what
    we cannot do does not.
    """
    crowd = Crowd(child.port, bare=bare)
    loop = asyncio.get_running_loop()
    end = loop.time() + RAMP_S
    best, count, least_bad, failures = 0, 100, 0, 0
    while loop.time() < end:
        p99, share = await attempt(child, crowd, count)
        say(count, p99, share)
        if p99 <= GOAL_MS and share >= LEAST_ECHOES:
            best, failures = count, 0
        elif failures < 2 and p99 != math.inf:
            failures += 1
            continue
        else:
            least_bad, failures = count, 0
        count = (best + least_bad) // 2 if least_bad else min(int(count * 1.5), MOST)
        if best == MOST or (least_bad and least_bad - best < best * 0.08):
            break
    crowd.close()
    return best


async def most(say: Say, cores: tuple[int, int]) -> list[Figure]:
    """Find how many sessions can talk on one core."""
    found: dict[str, int] = {}
    for name in (RIVAL, OURS):
        with fresh_folder() as data, start(name, data, cores[0]) as child:

            def tell(count: int, p99: float, share: float, name: str = name) -> None:
                say(f"one core, {name}: {count} talking, p99 inside {p99:.1f} ms, {share:.0%} of the echoes")

            found[name] = await ramp(child, tell, bare=name == RIVAL)
    return [
        Figure(
            part="socket",
            what=f"talking on one core, p99 inside <= {GOAL_MS:.0f} ms",
            ours=found[OURS],
            unit="sessions",
            beside=RIVAL,
            theirs=found[RIVAL],
            goal=">= 400, >= 0.6 of bare",
        )
    ]


async def crowded(say: Say, name: str, core: int) -> dict[str, float]:
    """Measure one server with many connections, of which some talk."""
    bare = name == RIVAL
    with fresh_folder() as data, start(name, data, core) as child:
        say(f"{IDLE} connected, {name}")
        warm = Crowd(child.port, bare=bare)
        await warm.grow(20, talking=False)
        before = child.memory()
        crowd = Crowd(child.port, bare=bare)
        await crowd.grow(IDLE, talking=False)
        await asyncio.sleep(1.0)
        quiet = child.memory()
        say(f"{IDLE} connected, {TALKING} talking, {name}")
        await crowd.talk(TALKING)
        await asyncio.sleep(0.7)
        inside(child)
        cpu, echoes = child.cpu(), crowd.echoes()
        await asyncio.sleep(SECONDS)
        cpu, echoes = child.cpu() - cpu, crowd.echoes() - echoes
        delays = inside(child)
        found = {
            "connected": sum(not talker.lost for talker in crowd.talkers),
            "idle": (quiet - before) / IDLE / 1024,
            "talking": (child.memory() - quiet) / TALKING / 1024,
            "p50": percentile(delays, 0.5),
            "p99": percentile(delays, 0.99),
            "cpu": cpu / max(echoes, 1) * 1e6,
        }
        crowd.close()
        warm.close()
        return found


async def connected(say: Say, cores: tuple[int, int]) -> list[Figure]:
    """Measure both with 1,000 connected and 100 talking."""
    ours, theirs = [await crowded(say, name, cores[0]) for name in (OURS, RIVAL)]
    with_talk = f"{IDLE} connected, {TALKING} of them talking"
    rows = (
        ("connected", "connected at once", "sessions", ">= 1000"),
        ("p50", f"inside, {with_talk}, p50", "ms", ""),
        ("p99", f"inside, {with_talk}, p99", "ms", "<= 5"),
        ("cpu", f"server CPU an echo, {with_talk}", "µs", ""),
        ("idle", "memory of a connected session that is idle", "KiB", ""),
        ("talking", f"more memory when it has talked for {SECONDS:.0f} s", "KiB", ""),
    )
    return [
        Figure(part="socket", what=what, ours=ours[key], unit=unit, beside=RIVAL, theirs=theirs[key], goal=goal)
        for key, what, unit, goal in rows
    ]


def measure(say: Say) -> list[Figure]:
    """Run all of it: up to two minutes and a half."""
    known = sorted(os.sched_getaffinity(0))
    cores = known[0], known[-1]

    async def everything() -> list[Figure]:
        return [*await connected(say, cores), *await most(say, cores)]

    os.sched_setaffinity(0, {cores[1]})
    try:
        return uvloop.run(everything())
    finally:
        os.sched_setaffinity(0, known)
