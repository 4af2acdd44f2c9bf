"""Raw frames: valid ones, and every way in which one can be wrong."""

import random

from .oracle import BINARY, CLOSE, CONT, PING, PONG, TEXT

HEARTBEAT = b'{"type":"session.heartbeat"}'
TEXTS = (
    HEARTBEAT,
    HEARTBEAT,
    b"{}",
    b"[]",
    b"",
    b'{"type":"input_audio_buffer.clear"}',
    b'{"type":"no.such.event"}',
    b'{"type":"response.create"}',
    '{"type":"input.text.append","text":"grün ☃ 😀"}'.encode(),
)
BAD_TEXTS = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b'{"type":"\xe2\x98', b"\xf5\x80\x80\x80", b"\x80" * 7)
CLOSINGS = (
    b"",
    b"\x03\xe8",
    b"\x03\xe8bye",
    b"\x03",
    b"\x00\x00",
    b"\x03\xed",
    b"\x03\xee",
    b"\x03\xf7",
    b"\x07\xd0",
    b"\x0b\xb8",
    b"\x13\x87",
    b"\x13\x88",
    b"\xff\xff",
    b"\x03\xe8\xff\xfe",
)


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, mask: bytes = bytes(4), rsv: int = 0) -> bytes:
    """Return a client's frame, whatever is wrong with it."""
    head = (0x80 if fin else 0) | rsv << 4 | opcode
    return _head(head, len(payload), masked=True) + mask + _masked(payload, mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    if not any(mask):
        return payload
    return bytes(byte ^ mask[index & 3] for index, byte in enumerate(payload))


def _head(first: int, size: int, *, masked: bool, wide: int = 0) -> bytes:
    bit = 0x80 if masked else 0
    wide = wide or (0 if size < 126 else 2 if size < 65536 else 8)
    if wide == 0:
        return bytes((first, bit | size))
    return bytes((first, bit | (126 if wide == 2 else 127))) + size.to_bytes(wide, "big")


def stream(rng: random.Random) -> bytes:
    """Draw what a client sends behind the request."""
    data = b"".join(_piece(rng) for _ in range(rng.choice((1, 2, 3, 5, 8, 13))))
    if rng.random() < 0.25:
        data = damaged(rng, data)
    return data


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes some of which are others, are missing, or stand twice."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        roll = rng.random()
        if roll < 0.4 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif roll < 0.6:
            del changed[at : at + rng.choice((1, 2, 7))]
        elif roll < 0.8:
            changed[at:at] = rng.randbytes(rng.choice((1, 2, 9)))
        elif roll < 0.9:
            changed[at:at] = changed[at : at + rng.randrange(1, 40)]
        else:
            del changed[at:]
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    """Cut bytes into the pieces in which they arrive."""
    roll = rng.random()
    if roll < 0.4 or len(data) < 2:
        return [data] if data else []
    if roll < 0.5 and len(data) < 300:
        return [data[at : at + 1] for at in range(len(data))]
    places = sorted(rng.randrange(len(data)) for _ in range(rng.choice((1, 2, 4))))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]


def _piece(rng: random.Random) -> bytes:
    return rng.choice(_PIECES)(rng)


def _text(rng: random.Random) -> bytes:
    return frame(rng.choice(TEXTS), mask=rng.randbytes(4))


def _binary(rng: random.Random) -> bytes:
    return frame(rng.randbytes(rng.choice((0, 1, 200))), BINARY)


def _ping(rng: random.Random) -> bytes:
    return frame(rng.randbytes(rng.choice((0, 1, 4, 125))), rng.choice((PING, PONG)), mask=rng.randbytes(4))


def _fragments(rng: random.Random) -> bytes:
    """A message in pieces, control frames between them; now and then without its end."""
    text = rng.choice((*TEXTS, *BAD_TEXTS))
    opcode = rng.choice((TEXT, TEXT, BINARY))
    pieces = cut(rng, text) if text else [b"", b""]
    made = b""
    for number, piece in enumerate(pieces):
        made += frame(piece, CONT if number else opcode, fin=number == len(pieces) - 1 and rng.random() < 0.9)
        if rng.random() < 0.2:
            made += _ping(rng)
    return made


def _nothing_but_fragments(rng: random.Random) -> bytes:
    return frame(b"", TEXT, fin=False) + frame(b"", CONT, fin=False) * rng.choice((3, 300)) + frame(b"", CONT)


def _bad_text(rng: random.Random) -> bytes:
    return frame(rng.choice(BAD_TEXTS))


def _bad_opcode(rng: random.Random) -> bytes:
    return frame(b"x" * rng.choice((0, 3)), rng.choice((3, 4, 7, 11, 12, 15)))


def _reserved(rng: random.Random) -> bytes:
    return frame(b"abc", rng.choice((CONT, TEXT, PING, CLOSE)), rsv=rng.randrange(1, 8))


def _unmasked(rng: random.Random) -> bytes:
    payload = rng.choice(TEXTS)
    return _head(0x81, len(payload), masked=False) + payload


def _long_control(rng: random.Random) -> bytes:
    return frame(b"x" * rng.choice((126, 127, 1000)), rng.choice((PING, PONG, CLOSE)))


def _cut_control(rng: random.Random) -> bytes:
    return frame(b"x", rng.choice((PING, PONG, CLOSE)), fin=False)


def _stray(rng: random.Random) -> bytes:
    return frame(HEARTBEAT, CONT, fin=rng.random() < 0.5)


def _interleaved(rng: random.Random) -> bytes:
    return frame(b"{", TEXT, fin=False) + frame(HEARTBEAT, rng.choice((TEXT, BINARY)))


def _huge(rng: random.Random) -> bytes:
    size = rng.choice((16 * 2**20 + 1, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1))
    return _head(0x81, size, masked=True, wide=8) + rng.randbytes(rng.choice((0, 4, 40)))


def _wide(rng: random.Random) -> bytes:
    """A length written with more bytes than it takes."""
    return _head(0x81, len(HEARTBEAT), masked=True, wide=rng.choice((2, 8))) + b"\0\0\0\0" + HEARTBEAT


def _short(rng: random.Random) -> bytes:
    whole = _text(rng)
    return whole[: rng.randrange(1, len(whole))]


def _close(rng: random.Random) -> bytes:
    return frame(rng.choice(CLOSINGS), CLOSE)


def _noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((1, 2, 16, 300)))


_PIECES = (
    *(_text, _text, _text, _text, _ping, _ping, _fragments, _fragments, _binary, _wide),
    *(_nothing_but_fragments, _bad_text, _bad_opcode, _reserved, _unmasked, _long_control, _cut_control, _stray),
    *(_interleaved, _huge, _short, _close, _noise),
)
