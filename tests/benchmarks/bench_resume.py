"""Coming back: what was missed, told again; and a recorded session, decided again.

Run it: python tests/benchmarks/run.py resume

A session says 60 s of sound, of which its client confirms nothing; the socket is dropped, and a new one resumes
from the beginning. Measured from sending `session.resume` to the first replayed sound and to the last. The same
once more after the server was killed and started again, which has all of it to read from the disk. The rival is a
bare server on the same library that sends as many equally large messages when it is told to. A recorded session is
decided again, beside its own duration and beside a loop that only decodes its records.
"""

import asyncio
import gc
import json
import time
from functools import cache
from pathlib import Path

import uvloop
from figures import Child, Figure, Say, antiphon, fresh_folder, helper, percentile, quiet, timed
from long_talks import TALKS, Kept, talk
from talkers import APPEND, DELTA, DUPLEX, OPEN, event, text_frame

from antiphon.engine.errors import UnknownPlugin
from antiphon.engine.replay import replay
from antiphon.events.log import Transaction, decode, from_json
from antiphon.sessions import core

PIECES = 750
"""60 s in pieces of 80 ms."""

ROUNDS = 7
RESTARTS = 3
MINUTES = 10
HISTORIES = Path(__file__).parent.parent / "histories"


class Returning(asyncio.Protocol):
    """A socket that sends one message and notes when sound arrives."""

    def __init__(self, path: str, first: bytes) -> None:
        self._path, self._first = path, first
        self._rest = b""
        self._upgraded = False
        self.transport: asyncio.Transport | None = None
        self.begun = 0.0
        self.created: dict[str, str] = {}
        self.arrivals: list[float] = []
        self.news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        self.transport = transport  # type: ignore[assignment]
        self.transport.write(  # type: ignore[union-attr]
            f"GET {self._path} HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def send(self, message: bytes) -> None:
        """Send a message."""
        assert self.transport is not None
        self.transport.write(text_frame(message))

    def data_received(self, data: bytes) -> None:
        """Take frames apart."""
        data = self._rest + data
        if not self._upgraded:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return
            self._upgraded, data = True, data[end + 4 :]
            self.begun = time.perf_counter()
            self.send(self._first)
        at = 0
        while len(data) - at >= 2:
            length, head = data[at + 1], 2
            if length == 126:
                length, head = int.from_bytes(data[at + 2 : at + 4], "big"), 4
            if len(data) - at < head + length:
                break
            self._message(data[at + head : at + head + length])
            at += head + length
        self._rest = data[at:]
        self.news.set()

    def _message(self, message: bytes) -> None:
        if message.startswith((DELTA, APPEND[:40])):
            self.arrivals.append(time.perf_counter())
        elif message.startswith(b'{"type":"session.created"'):
            told = json.loads(message)
            self.created = {"session_id": told["session"]["id"], "resume_token": told["resume_token"]}

    async def until(self, sounds: int) -> None:
        """Wait for so many pieces of sound."""
        while len(self.arrivals) < sounds:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 30)


async def connect(port: int, path: str, first: bytes) -> Returning:
    """Connect and send the first message."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Returning(path, first), "127.0.0.1", port)
    return client


async def resumed(child: Child) -> tuple[float, float]:
    """Return the milliseconds to the first replayed sound, and to the last."""
    return await come_back(child, await leave(child))


async def restarted(data: Path) -> tuple[float, float]:
    """The same, with a server that is killed and another one on the same directory."""
    with antiphon(data) as before:
        created = await leave(before)
        before.process.kill()
    with antiphon(data) as after:
        await asyncio.sleep(0.5)
        return await come_back(after, created)


async def leave(child: Child) -> dict[str, str]:
    """Hear 60 s of sound, and lose the socket; return what is needed to come back."""
    client = await connect(child.port, DUPLEX, OPEN)
    while not client.created:
        client.news.clear()
        await client.news.wait()
    for _ in range(PIECES // 50):
        for _ in range(50):
            client.send(APPEND)
        await asyncio.sleep(0.01)
    await client.until(PIECES)
    assert client.transport is not None
    client.transport.abort()
    await asyncio.sleep(0.1)
    return client.created


async def come_back(child: Child, created: dict[str, str]) -> tuple[float, float]:
    """Resume from the beginning; return the milliseconds."""
    resume = event(
        "session.resume",
        session_id=created["session_id"],
        resume_token=created["resume_token"],
        last_received_server_event_seq=0,
    )
    again = await connect(child.port, DUPLEX, resume)
    await again.until(PIECES)
    return _times(again)


async def sent(child: Child) -> tuple[float, float]:
    """The same of the bare server, which has the messages in memory."""
    client = await connect(child.port, "/", APPEND)
    await client.until(1)
    client.arrivals.clear()
    client.begun = time.perf_counter()
    client.send(b"backlog %d" % PIECES)
    await client.until(PIECES)
    return _times(client)


def _times(client: Returning) -> tuple[float, float]:
    assert client.transport is not None
    first, last = client.arrivals[0] - client.begun, client.arrivals[PIECES - 1] - client.begun
    client.transport.abort()
    return first * 1e3, last * 1e3


async def resuming(say: Say) -> list[Figure]:
    """Measure a few resumes."""
    ours: list[tuple[float, float]] = []
    again: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with fresh_folder() as data, antiphon(data) as server, helper("rival") as rival:
        for n in range(ROUNDS):
            say(f"resume {n + 1} of {ROUNDS}")
            ours.append(await resumed(server))
            theirs.append(await sent(rival))
    for n in range(RESTARTS):
        say(f"resume after a kill, {n + 1} of {RESTARTS}")
        with fresh_folder() as data:
            again.append(await restarted(data))
    return [
        Figure(
            part="resume",
            what=f"{what}{where}, median",
            ours=percentile([took[index] for took in mine], 0.5),
            unit="ms",
            beside="bare websockets, from memory",
            theirs=percentile([took[index] for took in theirs], 0.5),
            goal=goal,
        )
        for where, mine in (("", ours), (" after a kill and a start", again))
        for index, (what, goal) in enumerate((("first replayed sound", "<= 50"), ("60 s of backlog", "<= 150")))
    ]


def replaying(say: Say) -> list[Figure]:
    """Decide recorded sessions again: two long conversations, and all golden logs one behind the other."""
    say("replay: conversations")
    logs = {f"{MINUTES} min of {kind}": [[decode(data) for _, _, data, _ in held(kind).records]] for kind in TALKS}
    goldens = golden()
    logs[f"{len(goldens)} golden logs"] = goldens
    made: list[Figure] = []
    for name, group in logs.items():
        say(f"replay: {name}")
        gc.collect()
        results = [max((replay(log) for _ in range(3)), key=lambda result: result.speed) for log in group]
        lasted, took = sum(found.session_s for found in results), sum(found.seconds for found in results)
        whole = all(found.identical for found in results)
        made.append(
            Figure(
                part="replay",
                what=f"{name}: {lasted:,.0f} s in {took * 1e3:,.0f} ms{'' if whole else ' (differs!)'}",
                ours=lasted / took,
                unit="x real time",
                goal=">= 1000",
            )
        )
    return made


def folding(say: Say) -> list[Figure]:
    """Fold conversations that the engine has held."""
    say("fold")
    made: list[Figure] = []
    for kind in TALKS:
        data = [data for _, _, data, _ in held(kind).records]
        log = [decode(record) for record in data]
        events = sum(len(transaction.events) for transaction in log)
        made.append(
            Figure(
                part="replay",
                what=f"{MINUTES} min of {kind}: events folded a second",
                ours=events / (timed(lambda log=log: core.fold(log), 1) / 1e6),
                unit="1/s",
                beside="only decoding their records",
                theirs=events / (timed(lambda data=data: [decode(record) for record in data], 1) / 1e6),
                goal=">= 250,000",
            )
        )
    return made


@cache
def held(kind: str) -> Kept:
    """A conversation."""
    with fresh_folder() as folder:
        return uvloop.run(talk(folder, kind, MINUTES * 60))


def golden() -> list[list[Transaction]]:
    """Return the golden logs that can be decided again here: not those that are damaged or differ on purpose."""
    found: list[list[Transaction]] = []
    for file in sorted(HISTORIES.glob("*.jsonl")):
        lines = [line for line in file.read_bytes().splitlines() if b'"command"' in line]
        try:
            log = [from_json(line) for line in lines]
            if replay(log).identical:
                found.append(log)
        except (ValueError, UnknownPlugin):
            continue
    return found


def measure(say: Say) -> list[Figure]:
    """Run it: about 25 seconds."""
    quiet()
    return [*uvloop.run(resuming(say)), *replaying(say), *folding(say)]
