"""The websocket on a transport: what has arrived is read in steps."""

import asyncio
import tracemalloc
from collections.abc import Callable

import anyio.lowlevel
import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.uri import parse_uri

from antiphon.engine.clock import VirtualClock
from antiphon.transport.websocket import SLICE, WebSocket

from tests.rules import rule

pytestmark = pytest.mark.anyio

WORDS = [b"%d" % number + b"." * 60 for number in range(2_000)]


class TiringClock(VirtualClock):
    """A clock on which every look takes a millisecond."""

    def monotonic_us(self) -> int:
        self._now += 1_000
        return self._now


class Pipe(asyncio.Transport):
    """A transport that notes what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.paused = 0
        self.resumed = 0
        self.gone = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.gone

    def pause_reading(self) -> None:
        self.paused += 1

    def resume_reading(self) -> None:
        self.resumed += 1

    def close(self) -> None:
        self.gone = True

    def abort(self) -> None:
        self.gone = True


class Ear:
    """Hears everything; `heard` is called with each message."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self.on_text = heard
        self.lost = 0

    def on_binary(self) -> None:
        raise AssertionError

    def on_sign_of_life(self) -> None:
        raise AssertionError

    def on_lost(self) -> None:
        self.lost += 1


def connected(heard: Callable[[bytes], None]) -> tuple[WebSocket, Pipe, Ear, ClientProtocol]:
    """A websocket whose upgrade is done, and the client of it."""
    ear, pipe = Ear(heard), Pipe()

    def accept(_websocket: WebSocket, _request: Request) -> Ear | Response:
        return ear

    socket = WebSocket(accept, TiringClock())
    socket.connection_made(pipe)
    client = ClientProtocol(parse_uri("ws://localhost/v1/realtime"))
    client.send_request(client.connect())
    socket.data_received(b"".join(client.data_to_send()))
    client.receive_data(pipe.written)
    return socket, pipe, ear, client


def frames(client: ClientProtocol, words: list[bytes]) -> bytes:
    for word in words:
        client.send_text(word)
    return b"".join(client.data_to_send())


@rule("P57")
async def test_thousands_of_frames_are_read_in_steps_and_in_their_order() -> None:
    """Whoever sends the smallest frames as fast as it can leaves the other connections their turn."""
    seen: list[bytes] = []
    socket, pipe, _, client = connected(seen.append)
    data = frames(client, WORDS)
    socket.data_received(data[:-10])
    assert 0 < len(seen) < 4 * SLICE / 60
    assert (pipe.paused, pipe.resumed) == (1, 0)
    socket.data_received(data[-10:])
    for _ in range(len(data) // SLICE):
        await anyio.lowlevel.checkpoint()
    assert seen == WORDS
    assert (pipe.paused > 10, pipe.resumed) == (True, 1)


@rule("P57")
@pytest.mark.parametrize("end", ["eof", "lost"])
async def test_what_has_arrived_is_carried_out_before_the_end_is_told(end: str) -> None:
    seen: list[bytes] = []
    socket, _, ear, client = connected(seen.append)
    socket.data_received(frames(client, WORDS))
    assert len(seen) < len(WORDS)
    if end == "eof":
        socket.eof_received()
    else:
        socket.connection_lost(None)
    assert seen == WORDS
    assert ear.lost == (end == "lost")
    await anyio.lowlevel.checkpoint()
    assert seen == WORDS


@pytest.mark.parametrize("part", [1, 2, 5, 20])
async def test_a_frame_that_never_ends_ends_with_the_connection(part: int) -> None:
    seen: list[bytes] = []
    socket, _, ear, client = connected(seen.append)
    socket.data_received(frames(client, WORDS[:1])[:part])
    socket.eof_received()
    socket.connection_lost(None)
    assert (seen, ear.lost) == ([], 1)


@rule("P57")
async def test_who_asked_for_a_pause_says_when_to_read_on() -> None:
    seen: list[bytes] = []
    socket, pipe, _, client = connected(seen.append)
    socket.data_received(frames(client, WORDS))
    socket.pause()
    socket.resume()
    assert pipe.resumed == 0, "not before what is here has been read"
    socket.pause()
    for _ in range(100):
        await anyio.lowlevel.checkpoint()
    assert (seen, pipe.resumed) == (WORDS, 0)
    socket.resume()
    assert pipe.resumed == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_error_of_ours_in_a_later_step_ends_the_connection() -> None:
    """As the loop does with one in the first step: a connection that is not read any more must not stay open."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    failing = iter(range(len(WORDS)))

    def heard(_data: bytes) -> None:
        if next(failing) > len(WORDS) // 2:
            raise RuntimeError("broken")

    socket, pipe, _, client = connected(heard)
    socket.data_received(frames(client, WORDS))
    for _ in range(100):
        await anyio.lowlevel.checkpoint()
    assert pipe.gone
    assert len(told) == 1


async def test_pieces_of_a_message_that_hold_nothing_cost_nothing() -> None:
    """What is kept of a message are its bytes, not its frames: a client may send empty ones without end."""
    heard: list[bytes] = []
    socket, _pipe, _ear, client = connected(heard.append)
    client.send_text(b"be", fin=False)
    empty = Frame(Opcode.CONT, b"", fin=False).serialize(mask=True)
    tracemalloc.start()
    for _ in range(200):
        socket.data_received(b"".join(client.data_to_send()) + empty * 100)
        while socket._behind:
            await anyio.lowlevel.checkpoint()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 100_000, "20,000 frames came"
    client.send_continuation(b"gun", fin=True)
    client.send_text(b"next")
    socket.data_received(b"".join(client.data_to_send()))
    assert heard == [b"begun", b"next"]
