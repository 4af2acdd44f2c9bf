"""An item as a client sent it: its parts with bytes of their own, brought into what the session keeps."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import CreateItem
from antiphon.events.config import SessionConfig
from antiphon.events.items import AudioPart, ImagePart, Message, Part, written

from .errors import Refused
from .pcm import Resampler, decode, level


class Piece(Struct, frozen=True, kw_only=True):
    """The bytes of one part, base64 undone. `format` is for sound; None: the session's input format.

    `speech` is the client's own verdict on it. `judged`: without one its level decides whether the model hears it.
    """

    data: bytes
    format: AudioFormat | None = None
    speech: bool | None = None
    judged: bool = False


class ItemRequest(Struct, frozen=True, kw_only=True):
    """A command to create an item, and a piece for each of its audio parts without words and its pictures."""

    command: CreateItem
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Bytes that it brings along, and of its words."""
        return sum(len(piece.data) for piece in self.pieces) + written(self.command.item)


def placed(request: ItemRequest, config: SessionConfig, model: AudioFormat) -> tuple[CreateItem, bytes]:
    """Return the command with the sizes of its parts, and the bytes that travel beside it.

    Sound becomes 16-bit samples at the rate of `model`. What is no speech by its verdict is not heard by the model:
    the item is created with an empty part (WIRE 7.2).

    Raises:
        Refused: `bad_audio`, `bad_event` or `unsupported_audio_format`.
    """
    item = request.command.item
    if not request.pieces or not isinstance(item, Message):
        return request.command, b""
    rest = iter(request.pieces)
    content: list[Part] = []
    sound: list[bytes] = []
    for part in item.content:
        if isinstance(part, AudioPart) and part.transcript is None:
            part, data = _heard(next(rest), config, model)
            sound.append(data)
        elif isinstance(part, ImagePart):
            sound.append(next(rest).data)
        content.append(part)
    return replace(request.command, item=replace(item, content=tuple(content))), b"".join(sound)


def _heard(piece: Piece, config: SessionConfig, model: AudioFormat) -> tuple[AudioPart, bytes]:
    source = piece.format or config.input_format
    pcm = decode(piece.data, source)
    speaks = piece.speech
    if speaks is None and piece.judged:
        speaks = bool(pcm) and level(pcm) >= config.overlap_silence_rms
    if source.rate != model.rate:
        resampler = Resampler(source.rate, model.rate)
        pcm = resampler.feed(pcm) + resampler.flush()
    if not pcm or speaks is False:
        return AudioPart(transcript="", rate=model.rate, ms=model.ms(len(pcm))), b""
    if model.encoding != "pcm16":
        raise Refused("unsupported_audio_format", "The sound of items cannot be brought into the model's format.")
    return AudioPart(rate=model.rate, ms=model.ms(len(pcm)), size=len(pcm)), pcm
