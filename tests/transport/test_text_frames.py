"""What is read and written without the core of `websockets` is what the core would have read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response

from antiphon.transport import text_frames
from antiphon.transport.text_frames import head
from antiphon.transport.websocket import WebSocket

from .test_websocket import Pipe, TiringClock
from tests.rules import rule

REQUEST = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Note:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def on_text(self, data: bytes) -> None:
        self.told.append(data)

    def on_binary(self) -> None:
        self.told.append("binary")

    def on_sign_of_life(self) -> None:
        self.told.append("sign of life")

    def on_lost(self) -> None:
        self.told.append("lost")


class CoreOnly(WebSocket):
    """One in which the core reads everything."""

    def _request(self, data: bytes, at: int) -> int:
        size = super()._request(data, at)
        self._aligned = False
        return size


class StillClock(TiringClock):
    """Everything is read in one step."""

    def monotonic_us(self) -> int:
        return 0


def heard(kind: type[WebSocket], pieces: list[bytes]) -> tuple[list[bytes | str], bytes, bool]:
    """Return what is made of what arrives in these pieces: what the handler is told, what is written, the end."""
    note, pipe = Note(), Pipe()

    def accept(_websocket: WebSocket, _request: Request) -> Note | Response:
        return note

    socket = kind(accept, StillClock())
    socket.connection_made(pipe)
    for piece in pieces:
        if not pipe.gone:
            socket.data_received(piece)
    if not pipe.gone:
        socket.eof_received()
    return note.told, pipe.written.partition(b"\r\n\r\n")[2], pipe.gone


def compare(pieces: list[bytes]) -> None:
    """Hold what is made of what arrives against what the core makes of it.

    The core takes all frames of a piece apart before the first is handled. What follows a text that is no text is
    therefore not always the same: here nothing does.
    """
    told, written, gone = heard(WebSocket, pieces)
    core_told, core_written, core_gone = heard(CoreOnly, pieces)
    if b"invalid UTF-8" in written:
        assert told == core_told[: len(told)]
        assert gone == core_gone
    else:
        assert (told, written, gone) == (core_told, core_written, core_gone)


def masked(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


texts = st.one_of(
    st.text(max_size=200),
    st.sampled_from([0, 125, 126, 127, 128, 255, 256, 5_000, 65_535, 65_536, 70_000]).map("x".__mul__),
)
data_frames = st.builds(
    masked,
    st.sampled_from([Opcode.TEXT, Opcode.TEXT, Opcode.BINARY, Opcode.CONT]),
    texts.map(str.encode) | st.binary(max_size=20),
    fin=st.booleans(),
)
control_frames = st.builds(
    masked,
    st.sampled_from([Opcode.PING, Opcode.PONG, Opcode.CLOSE]),
    st.binary(max_size=20).map(b"\x03\xe8".__add__),
)
texts_only = texts.map(lambda text: masked(Opcode.TEXT, text.encode()))
other_bytes = st.binary(max_size=12) | st.sampled_from(
    [b"\x81\x05hello", b"\x81\xfe\x00\x01abcdZ", b"\x81\xff" + bytes(7)]
)
frames = st.lists(st.one_of(texts_only, texts_only, data_frames, control_frames, other_bytes), max_size=8)


@rule("P57")
@given(frames, st.lists(st.integers(0, 100_000), max_size=12))
def test_however_it_arrives_the_core_would_have_read_the_same(sent: list[bytes], cuts: list[int]) -> None:
    data = REQUEST + b"".join(sent)
    ends = sorted({*(cut % (len(data) + 1) for cut in cuts), len(data)})
    pieces = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if end > begin]
    compare(pieces)


@given(st.lists(texts_only, min_size=1, max_size=5), st.integers(1, 40))
def test_texts_in_small_pieces(sent: list[bytes], step: int) -> None:
    data = b"".join(sent)
    pieces = [REQUEST, *(data[at : at + step] for at in range(0, min(len(data), 2_000), step))]
    compare(pieces)


def test_texts_of_every_size() -> None:
    """A length of two bytes may be the number that stands for one of eight."""
    sent = [b"x" * size for size in (*range(600), 65_534, 65_535, 65_536)]
    pieces = [REQUEST, b"".join(masked(Opcode.TEXT, text) for text in sent)]
    assert heard(WebSocket, pieces)[0] == sent


def test_a_request_in_pieces_hides_no_frames() -> None:
    frame = masked(Opcode.TEXT, b"\r\n\r\n" * 3)
    for cut in range(1, len(REQUEST)):
        pieces = [REQUEST[:cut], REQUEST[cut:] + frame, frame]
        assert heard(WebSocket, pieces)[0] == [b"\r\n\r\n" * 3] * 2


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 1_000_000])
def test_texts_are_written_as_the_core_writes_them(size: int) -> None:
    text = b"x" * size
    assert head(size) + text == Frame(Opcode.TEXT, text).serialize(mask=False)


def test_most_texts_do_not_pass_through_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of this would be for nothing."""
    read: list[bytes] = []

    def noting(data: bytes, at: int) -> tuple[bytes, int] | None:
        found = reading(data, at)
        if found is not None:
            read.append(found[0])
        return found

    reading = text_frames.read_text
    monkeypatch.setattr(text_frames, "read_text", noting)
    frame = masked(Opcode.TEXT, b"x" * 4_000)
    pieces = [REQUEST[:50], REQUEST[50:] + frame, frame[:1], frame[1:3], frame[3:], masked(Opcode.PING, b""), frame]
    assert heard(WebSocket, pieces)[0] == [*[b"x" * 4_000] * 2, "sign of life", b"x" * 4_000]
    assert len(read) == 3
