"""A piece of the user's sound, the one event that comes all the time: from its frame to a request (WIRE 2.2).

Nearly all of the frame is base64. It is undone as it stands, and what is around it is read as any event is, once
for all frames that say the same around their sound.
"""

from functools import lru_cache
from typing import TypeVar

import msgspec
import pybase64
from msgspec import Struct
from msgspec.structs import replace

from antiphon.engine.ingress import AppendRequest
from antiphon.events import commands
from antiphon.events.audio import AudioFormat
from antiphon.events.config import Dialect, SessionConfig

from . import wire_client as given
from .wire_errors import WireError, bad_value, missing
from .wire_formats import Spelled, SpelledRate, input_format
from .wire_images import read_frames
from .wire_items import unbase64
from .wire_json import check
from .wire_read import Reading, Undecided, Understood

NAME = "input_audio_buffer.append"

MOST_AROUND = 512
"""Bytes around the sound of a frame that is read quickly."""

MOST_SOUND = 1024 * 1024
"""Bytes of base64 in it."""

_KEY = b'"audio"'


class Outline(Struct, frozen=True):
    """An append without its sound: the request, and the format as the client spelled it."""

    request: AppendRequest
    name: Spelled | None
    rate: SpelledRate | None

    def filled(
        self, sound: bytes, reading: Reading, config: SessionConfig | None = None
    ) -> AppendRequest | Undecided:
        """Return the append of this sound; undecided if its format depends on a configuration that is not known."""
        if self.name is None and self.rate is None:
            return replace(self.request, data=sound)
        if config is not None:
            known = _format(self.name, self.rate, config.input_format, reading.dialect)
            if known is not None:
                return replace(self.request, data=sound, format=known)
        request, name, rate = replace(self.request, data=sound), self.name, self.rate

        def build(config: SessionConfig) -> Understood:
            return replace(request, format=input_format(name, rate, config.input_format, reading.dialect))

        return Undecided(
            build=build,
            size=request.size,
            sound=True,
            event_id=request.event_id,
            event_type=NAME,
            client_seq=request.client_seq,
        )


@lru_cache(maxsize=1024)
def _format(
    name: Spelled | None, rate: SpelledRate | None, current: AudioFormat, dialect: Dialect
) -> AudioFormat | None:
    """Return the format that an append asks for; None: it is refused."""
    try:
        return input_format(name, rate, current, dialect)
    except WireError:
        return None


def outline(event: given.AppendBuffer) -> Outline:
    """Understand all that an append says beside its sound.

    Raises:
        WireError: by the contract's code.
    """
    vad = event.vad or given.Vad()
    name, name_path = event.format, "format"
    if name is None:
        name, name_path = event.input_audio_format, "input_audio_format"
    rate, rate_path = event.sample_rate_hz, "sample_rate_hz"
    if rate is None:
        rate, rate_path = event.sample_rate, "sample_rate"
    request = AppendRequest(
        frames=read_frames(event.video_frames, event.max_slice_nums),
        frames_size=sum(map(len, event.video_frames or ())),
        speech=_first(event.is_speech, event.speech, vad.is_speech),
        probability=_first(vad.speech_probability, vad.probability, event.speech_probability),
        silence_rms=_first(event.overlap_silence_rms, vad.silence_rms),
        transcript=_first(event.transcript, event.text),
        overlap=commands.overlap_action(_first(event.overlap_action, event.overlap)),
        force_listen=bool(event.force_listen),
        force_barge_in=bool(event.force_barge_in),
        event_id=event.event_id,
        client_seq=event.client_seq,
    )
    return Outline(
        request,
        Spelled(name, name_path) if name is not None else None,
        SpelledRate(rate, rate_path) if rate is not None else None,
    )


def append(event: given.AppendBuffer, reading: Reading) -> AppendRequest | Undecided:
    """Understand an append.

    Raises:
        WireError: by the contract's code.
    """
    text = event.audio if event.audio is not None else event.delta
    around = outline(event)
    if text is None and not around.request.frames:
        raise missing("audio")
    if not text and not around.request.frames:
        raise bad_value("An append carries audio.", "audio")
    return around.filled(unbase64(text or "", "audio"), reading)


# -- quickly -------------------------------------------------------------------------------------------------


def quick(frame: bytes, reading: Reading, config: SessionConfig | None = None) -> AppendRequest | Undecided | None:
    """Read a frame if it is an append as clients write them; None: it is something else, or something is wrong.

    With the `config` that it is understood by it is decided, unless it is refused then.

    What is taken out must be the value of the event's own `audio`, and nothing but base64 may be left out of the
    reading. Without a backslash every text ends at the next quote, and a key has one spelling; where that stands
    once, and its value is the text that is empty now, the frame says what is read here.
    """
    key = frame.find(_KEY, 0, MOST_AROUND)
    if key < 0:
        return None
    begin = frame.find(b'"', key + len(_KEY)) + 1
    end = frame.find(b'"', begin)
    if not begin < end <= begin + MOST_SOUND or len(frame) - (end - begin) > MOST_AROUND:
        return None
    known = around(frame[:begin] + frame[end:])
    if known is None:
        return None
    try:
        sound = pybase64.b64decode(frame[begin:end], validate=True)
    except ValueError:
        return None
    return known.filled(sound, reading, config)


@lru_cache(maxsize=1024)
def around(rest: bytes) -> Outline | None:
    """Read an append whose sound was taken out; None if it is not one, or not sure to be one."""
    if b"\\" in rest or rest.count(_KEY) != 1:
        return None
    try:
        check(rest)
        if _decode_head(rest).type != NAME:
            return None
        event = _decode(rest)
        return outline(event) if event.audio == "" else None
    except (WireError, msgspec.DecodeError, RecursionError):
        return None


_decode_head = msgspec.json.Decoder(given.Head).decode
_decode = msgspec.json.Decoder(given.AppendBuffer).decode

V = TypeVar("V")


def _first(*values: V | None) -> V | None:
    return next((value for value in values if value is not None), None)
