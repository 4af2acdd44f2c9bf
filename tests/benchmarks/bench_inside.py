"""Inside the server: from the bytes of a frame to the bytes of its answer, echo stage, without the kernel.

Run it: python tests/benchmarks/run.py inside

The server's own websocket, connection, hub, log and stage run in this process on a transport that only notes the
time of what is written to it: a frame's delay is that from `data_received` to the `write` of its audio delta, which
is written only once it is durable. The rival is the same server whose log lies in memory.

The second part is the CPU of one 80 ms delta without socket, log and tasks: decode the append, decide, fold and
react, twice (the sound comes in, the stage's answer comes in), and encode the messages; beside two `json.dumps`
of the same event.
"""

import asyncio
import gc
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import anyio
import uvloop
from anyio.abc import TaskGroup
from figures import Figure, Say, fresh_folder, percentile, timed
from talkers import ACK_EVERY, APPEND, DELTA, OPEN, RATE, SOUND, text_frame
from talkers import event as said
from websockets.http11 import Request, Response

from antiphon.engine.published import published
from antiphon.events import commands as cmd
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.config import Limits, SessionConfig
from antiphon.events.events import AudioDelta
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.transport import serve
from antiphon.transport.connection import Connection
from antiphon.transport.handshake import Invitation
from antiphon.transport.pipelines import load
from antiphon.transport.serve import ServeSettings, hub_for
from antiphon.transport.websocket import Handler, WebSocket
from antiphon.transport.wire_in import decode
from antiphon.transport.wire_out import Reader, project
from antiphon.transport.wire_read import Reading

SECONDS = 5.0
MEMORY, DURABLE = "the same, log in memory", "durable log"


class Ear:
    """Stands for the socket: notes when an audio delta is written."""

    def __init__(self) -> None:
        self.begun: deque[float] = deque()
        self.delays: list[float] = []
        self.echoes = 0
        self.number = 0
        self.opened = asyncio.Event()
        self.websocket: WebSocket | None = None

    def write(self, data: bytes) -> None:
        """Take what the server says; sound is the first message of its transaction."""
        now = time.perf_counter()
        found = data.find(DELTA, 0, 64) if self.echoes else data.find(DELTA)  # much comes before the first one
        if found >= 0:
            self.echoes += 1
            if self.begun:
                self.delays.append(now - self.begun.popleft())
            if self.echoes % ACK_EVERY == 0:
                at = data.find(b'"server_event_seq":', found) + 19
                self.number = int(data[at : data.find(b",", at)])
        elif b'"session.created"' in data[:64]:
            self.opened.set()

    def say(self, frame: bytes) -> None:
        """Let a frame arrive."""
        assert self.websocket is not None
        if self.number:
            number, self.number = self.number, 0
            self.websocket.data_received(text_frame(said("session.event_ack", server_event_seq=number)))
        self.begun.append(time.perf_counter())
        self.websocket.data_received(frame)

    def get_write_buffer_size(self) -> int:
        """Everything is taken at once."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There are none."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def pause_reading(self) -> None:
        """Nothing to pause."""

    def resume_reading(self) -> None:
        """Nothing to resume."""

    def close(self) -> None:
        """Be lost."""
        self.abort()

    def abort(self) -> None:
        """Be lost."""
        if self.websocket is not None:
            websocket, self.websocket = self.websocket, None
            asyncio.get_running_loop().call_soon(websocket.connection_lost, None)


_UPGRADE = (
    b"GET /v1/realtime?duplex=1 HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@asynccontextmanager
async def listening(count: int, *, durable: bool) -> AsyncIterator[list[Ear]]:
    """Serve `count` sessions."""
    async with AsyncExitStack() as stack:
        data = stack.enter_context(fresh_folder()) if durable else None
        hub = await stack.enter_async_context(
            hub_for(load("echo"), ServeSettings(pipeline="echo", data=data, max_sessions=4000))
        )
        await hub.ready.wait()
        # What `serve` does to the collector of its process, if it does.
        getattr(serve, "calm_collector", gc.collect)()
        group: TaskGroup = await stack.enter_async_context(anyio.create_task_group())

        def accept(websocket: WebSocket, _request: Request) -> Handler | Response:
            connection = Connection(hub, websocket, Invitation("duplex", None, at_once=False))
            group.start_soon(connection.run)
            return connection

        ears: list[Ear] = []
        for _ in range(count):
            ear = Ear()
            ear.websocket = WebSocket(accept, hub.clock)
            ear.websocket.connection_made(cast("asyncio.Transport", ear))
            ear.websocket.data_received(_UPGRADE)
            ear.websocket.data_received(text_frame(OPEN))
            await ear.opened.wait()
            ears.append(ear)
        yield ears
        group.cancel_scope.cancel()


async def paced(ears: list[Ear], every_s: float, seconds: float) -> None:
    """Let each session speak once in `every_s`, each at its own moment."""
    loop, frame = asyncio.get_running_loop(), text_frame(APPEND)
    end = loop.time() + seconds

    def speak(ear: Ear, due: float) -> None:
        ear.say(frame)
        due += every_s
        if due < end:
            loop.call_at(due, speak, ear, due)

    begin = loop.time()
    for n, ear in enumerate(ears):
        due = begin + every_s * (n * 0.618 % 1)
        loop.call_at(due, speak, ear, due)
    await asyncio.sleep(seconds + 0.2)


async def delays(count: int, every_s: float, *, durable: bool) -> tuple[list[float], float]:
    """Return the delays, in seconds, and the CPU of the process for an echo."""
    async with listening(count, durable=durable) as ears:
        await paced(ears, every_s, 0.8)
        before = sum(ear.echoes for ear in ears)
        for ear in ears:
            ear.delays.clear()
        cpu = time.process_time()
        await paced(ears, every_s, SECONDS)
        cpu = time.process_time() - cpu
        found = [delay for ear in ears for delay in ear.delays]
        return found, cpu / max(sum(ear.echoes for ear in ears) - before, 1)


def inside(say: Say) -> list[Figure]:
    """Measure the delays with the log on disk and in memory."""
    figures: list[Figure] = []
    for count, every_s, goal in ((1, 0.08, ("<= 0.5", "")), (100, 0.08, ("", "<= 5"))):
        found: dict[bool, tuple[list[float], float]] = {}
        for durable in (True, False):
            say(f"inside: {count} sessions, {1 / every_s:g} frames/s each, {DURABLE if durable else MEMORY}")
            found[durable] = uvloop.run(delays(count, every_s, durable=durable))
        what = f"frame read to frame written, {count} x {2 / every_s:g} events/s"
        for index, (label, share) in enumerate((("p50", 0.5), ("p99", 0.99))):
            figures.append(
                Figure(
                    part="inside",
                    what=f"{what}, {label}",
                    ours=percentile(found[True][0], share) * 1e3,
                    unit="ms",
                    beside=MEMORY,
                    theirs=percentile(found[False][0], share) * 1e3,
                    goal=goal[index],
                )
            )
        if count > 1:
            cpu = [found[durable][1] * 1e6 for durable in (True, False)]
            figures.append(
                Figure(
                    part="inside",
                    what=f"CPU an echo, {count} x {2 / every_s:g} events/s",
                    ours=cpu[0],
                    unit="µs",
                    beside=MEMORY,
                    theirs=cpu[1],
                )
            )
    return figures


# -- one delta -----------------------------------------------------------------------------------------------


LATEST = 2**40
"""The operation of no unit: an answer to it accepts all that were handed over."""


class Step:
    """A resident session without its surroundings."""

    def __init__(self) -> None:
        model = core.REGISTRY["echo"]
        config = SessionConfig(
            model="echo",
            turn_detection=None,
            auto_response=True,
            input_format=AudioFormat("pcm16", RATE),
            output_format=AudioFormat("pcm16", RATE),
        )
        self.session = core.new()
        self.now = self.seq = 0
        opened = self.do(
            cmd.OpenSession(
                session="duplex-" + "0" * 32,
                control_id="open",
                dialect="duplex",
                plugin="echo",
                plugin_version=model.version,
                capabilities=model.capabilities,
                config=config,
                limits=Limits(input_bytes=2**40),
                wall_us=0,
                token_digest="0" * 64,
            )
        )
        self.reading = Reading(dialect="duplex", attachment=1)
        self.reader = Reader(session=self.session.id, form="duplex", attachment=1)
        self.append = cmd.AppendAudio(attachment=1, size=len(SOUND), wire_bytes=len(SOUND))
        heard = self.do(self.append)
        head = self.session.response
        request = head.request if head is not None else core.outstanding(self.session)[0]
        self.produced = cmd.StageProduced(request=request, size=len(SOUND), operation=LATEST)
        self.log = [opened, heard, self.do(self.produced)]
        """How the session began."""
        self.delta = self.do(self.produced)
        """A piece of sound behind the first one."""

    def do(self, command: cmd.AnyCommand) -> Transaction:
        """Decide, fold and react."""
        self.now += 40_000
        self.seq += 1
        events = core.decide(self.session, command, self.now)
        for event in events:
            core.evolve(self.session, event, self.now)
        for event in events:
            if type(event) in core.REACTIONS:
                core.react(self.session, event)
        return Transaction(seq=self.seq, term=1, at=self.now, command=command, events=tuple(events))

    def encode(self, transaction: Transaction) -> list[bytes]:
        """Return the messages of a transaction."""
        sound: dict[SampleRef, bytes] = {
            event.ref: SOUND for event in transaction.events if isinstance(event, AudioDelta)
        }
        entry = published(transaction, sound, self.session.epoch)
        return [message.data for message in project(entry, self.reader, self.session.epoch)]

    def both(self) -> None:
        """The core's part of it."""
        self.do(self.append)
        self.do(self.produced)

    def whole(self) -> None:
        """An append in, an audio delta out."""
        decode(APPEND, self.reading, self.session.config)
        self.do(self.append)
        self.encode(self.do(self.produced))


def one_delta(say: Say, count: int = 3000) -> list[Figure]:
    """Measure the CPU of each step."""
    say("inside: CPU of one delta")
    step = Step()
    message = json.loads(step.encode(step.do(step.produced))[0])
    gc.collect()
    gc.disable()
    dumps = timed(lambda: json.dumps(message), count) * 2
    parts = {
        "decode the append, core twice, encode the delta": timed(step.whole, count),
        "  decode an append": timed(lambda: decode(APPEND, step.reading, step.session.config), count),
        "  core: the sound that came in, and that goes out": timed(step.both, count),
        "  encode a delta": timed(lambda: step.encode(step.delta), count),
    }
    gc.enable()
    return [
        Figure(
            part="inside",
            what=what,
            ours=us,
            unit="µs",
            beside="json.dumps of it, twice",
            theirs=dumps,
            goal="" if what.startswith(" ") else "<= 25",
        )
        for what, us in parts.items()
    ]


def measure(say: Say) -> list[Figure]:
    """Run all of it: about 30 seconds."""
    return [*one_delta(say), *inside(say)]
