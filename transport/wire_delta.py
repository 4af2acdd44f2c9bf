"""Messages of a piece of sound, made in a mould: those of one response differ in numbers, sound and words alone.

The mould is cast from what `audio_delta` and the encoder make of a piece in which a stopper stands for everything
that varies, so these messages are described once. A test holds that both ways give the same bytes.
"""

from collections.abc import Iterable

import msgspec
import pybase64
from msgspec import Struct
from msgspec.structs import replace

from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, TextMark

from .wire_project import Form, Scene, audio_delta
from .wire_server import MarkOut

Place = tuple[bytes] | tuple[bytes, int]
"""A message's id, and its number if it has one."""

Stopper = tuple[bytes, bytes]
"""What stands for something that varies, and the format that takes its place."""


class Mould(Struct, frozen=True):
    """The two messages of a piece as formats, the sound first, and all of them that does not vary.

    `told`: the first one has the metadata of the duplex dialect. Without formats, a piece like this is not made in
    a mould.
    """

    form: Form
    session: str
    response_id: str
    item_id: str
    epoch: int
    format: AudioFormat
    audio: bytes = b""
    words: bytes = b""
    told: bool = False

    def fits(self, event: ev.AudioDelta, form: Form) -> bool:
        """Return whether it is the mould of a piece."""
        return (
            self.response_id == event.response_id
            and self.epoch == event.epoch
            and self.form == form
            and self.format == event.format
            and self.item_id == event.item_id
            and self.session == event.session
        )

    def sound_of(self, event: ev.AudioDelta, place: Place, sound: bytes) -> bytes:
        """Return the message of the sound."""
        text = pybase64.b64encode(sound)
        if not self.told:
            return self.audio % (*place, text)
        shown = event.playback
        return self.audio % (
            *place,
            text,
            event.audio_ms,
            _encode([MarkOut(mark.chars, mark.ms) for mark in event.marks]) if event.marks else b"[]",
            shown.generated_ms,
            shown.sent_ms,
            shown.played_ms,
            shown.committed_ms,
        )

    def words_of(self, event: ev.AudioDelta, place: Place) -> bytes:
        """Return the message of the words."""
        return self.words % (*place, _encode(event.text) if event.text else b'""')


def cast(event: ev.AudioDelta, scene: Scene) -> Mould:
    """Make the mould of `event` and what is like it."""
    stopped = replace(
        event,
        audio_ms=_MS,
        text=_WORDS,
        marks=(TextMark(_CHARS, _AT),),
        playback=ev.PlaybackCursor(_GENERATED, _SENT, _PLAYED, _COMMITTED),
        costs=(),
    )
    made: list[bytes] = []
    for message in audio_delta(stopped, replace(scene, sound={event.ref: _SOUND}, epoch=event.epoch)):
        assert message is not None, "its sound is not void"
        message.event_id = _ID
        if scene.form == "duplex":
            message.server_event_seq = _NUMBER
        made.append(_encode(message))
    place = [_quoted(_ID)]
    if scene.form == "duplex":
        place.append(_number(_NUMBER))
    told: list[Stopper] = []
    if scene.extended:
        marks = _encode([MarkOut(_CHARS, _AT)])
        told += [_number(_MS), (marks, b"%b")]
        told += map(_number, (_GENERATED, _SENT, _PLAYED, _COMMITTED))
    sound = _quoted(pybase64.b64encode_as_string(_SOUND))
    audio = _hollow(made[0], [*place, sound, *told])
    words = _hollow(made[1], [*place, (_encode(_WORDS), b"%b")])
    mould = Mould(scene.form, event.session, event.response_id, event.item_id, event.epoch, event.format)
    return replace(mould, audio=audio, words=words, told=scene.extended) if audio and words else mould


def _hollow(message: bytes, stoppers: Iterable[Stopper]) -> bytes:
    """Return a message as a format; empty if a stopper does not stand in it, once and in its order."""
    shaped, at = message.replace(b"%", b"%%"), 0
    for stopper, hole in stoppers:
        found = shaped.find(stopper)
        if found < at or shaped.count(stopper) != 1:
            return b""
        shaped = shaped.replace(stopper, hole)
        at = found + len(hole)
    return shaped


def _quoted(text: str) -> Stopper:
    return text.encode(), b"%b"


def _number(number: int) -> Stopper:
    return b"%d" % number, b"%d"


_encode = msgspec.json.Encoder().encode

# Numbers that nobody counts to, and a text and a sound that are none.
_NUMBER, _MS, _GENERATED, _SENT, _PLAYED, _COMMITTED, _CHARS, _AT = range(2**53 - 8, 2**53)
_ID = "stopper: id"
_WORDS = "stopper: words"
_SOUND = b"\xb2\xda\x29\xa6\x9e\xac" * 4
