"""Conversation items of the wire, in both directions (WIRE 7.1)."""

from collections.abc import Callable
from typing import Literal, cast

import msgspec
import pybase64
from msgspec import UNSET, Struct, UnsetType, field

from antiphon.engine.item_request import Piece
from antiphon.events.audio import AudioFormat
from antiphon.events.config import Dialect
from antiphon.events.items import (
    AudioPart,
    Detail,
    FunctionCall,
    FunctionOutput,
    ImagePart,
    Item,
    Message,
    Part,
    Role,
    TextPart,
)

from .wire_client import ABSENT, ItemIn, PartIn
from .wire_errors import WireError, bad_value, missing, quoted
from .wire_images import image_from
from .wire_limits import check_written

# -- in ------------------------------------------------------------------------------------------------------

_ROLES = frozenset({"user", "assistant", "system"})
_TEXT = {
    "user": frozenset({"input_text", "text"}),
    "system": frozenset({"input_text", "text"}),
    "assistant": frozenset({"output_text", "text"}),
}
_AUDIO = {
    "user": frozenset({"input_audio"}),
    "system": frozenset[str](),
    "assistant": frozenset({"output_audio", "audio"}),
}


class Pieces(Struct):
    """The bytes of an item's parts, collected while they are read; `formatted` says what format a sound has."""

    dialect: Dialect
    formatted: Callable[[PartIn, str], AudioFormat | None]
    pieces: list[Piece] = field(default_factory=list[Piece])


def item_from(given: ItemIn, pieces: Pieces | None = None) -> Item:
    """Return the item that a client wrote; the bytes of its parts are put into `pieces`, without which it has none.

    Raises:
        WireError: `bad_event`, `bad_audio`, `unsupported` or `invalid_function_call_output`.
    """
    build = _BUILDERS.get(given.type)
    if build is None:
        raise WireError("unsupported", f"Items of type {quoted(given.type)} are not supported.", "item.type")
    item = build(given, pieces)
    check_written(item, "item")
    return item


def _message(given: ItemIn, pieces: Pieces | None) -> Item:
    if given.role is None:
        raise missing("item.role")
    if given.role not in _ROLES:
        raise bad_value(f"There is no role {quoted(given.role)}.", "item.role")
    role = cast("Role", given.role)
    content = given.content
    parts = [PartIn("text", text=content)] if isinstance(content, str) else content or []
    return Message(
        id=given.id or "",
        role=role,
        content=tuple(_part(part, role, f"item.content[{index}]", pieces) for index, part in enumerate(parts)),
    )


def _part(part: PartIn, role: Role, path: str, pieces: Pieces | None) -> Part:
    if part.type in _TEXT[role]:
        if part.text is None:
            raise missing(f"{path}.text")
        return TextPart(part.text)
    if part.type in _AUDIO[role]:
        return _audio(part, role, path, pieces)
    if part.type == "input_image" and role == "user":
        return _image(part, path, pieces)
    raise bad_value(f"A part of type {quoted(part.type)} does not fit the role {role!r}.", f"{path}.type")


def _audio(part: PartIn, role: Role, path: str, pieces: Pieces | None) -> Part:
    """Keep an audio part by its words if it has them, else by its sound."""
    data = unbase64(part.audio, f"{path}.audio") if part.audio is not None else b""
    if part.transcript is not None:
        return AudioPart(part.transcript)
    if role == "assistant":
        raise missing(f"{path}.transcript")
    if not data:
        raise missing(f"{path}.audio")
    if pieces is None:
        raise WireError("unsupported", "Sound needs a transcript here; or name an item that has it.", path)
    speech = part.is_speech if part.is_speech is not None else part.speech
    if speech is None and part.speech_probability is not None:
        speech = part.speech_probability >= 0.5
    duplex = pieces.dialect == "duplex"
    piece = Piece(data=data, format=pieces.formatted(part, path), speech=speech if duplex else None, judged=duplex)
    pieces.pieces.append(piece)
    return AudioPart()


def _image(part: PartIn, path: str, pieces: Pieces | None) -> Part:
    if pieces is None:
        raise WireError("unsupported", "A picture cannot stand here; name an item that has it.", path)
    if part.image_url is None:
        raise missing(f"{path}.image_url")
    mime, data = image_from(part.image_url, f"{path}.image_url")
    detail = _DETAILS.get(part.detail or "auto")
    if detail is None:
        raise bad_value("The detail of an image is auto, low or high.", f"{path}.detail")
    pieces.pieces.append(Piece(data=data))
    return ImagePart(mime=mime, size=len(data), detail=detail)


def _function_call(given: ItemIn, _pieces: Pieces | None) -> Item:
    if not given.name:
        raise missing("item.name")
    if given.arguments is None:
        raise missing("item.arguments")
    return FunctionCall(id=given.id or "", call_id=given.call_id or "", name=given.name, arguments=given.arguments)


def _function_output(given: ItemIn, _pieces: Pieces | None) -> Item:
    if not given.call_id:
        raise WireError("invalid_function_call_output", "A call_id is needed.", "item.call_id")
    try:
        output = msgspec.json.decode(given.output, type=str) if given.output != ABSENT else None
    except msgspec.ValidationError:
        output = None
    if output is None:
        raise WireError("invalid_function_call_output", "The output must be a string.", "item.output")
    return FunctionOutput(id=given.id or "", call_id=given.call_id, output=output)


_DETAILS: dict[str, Detail] = {"auto": "auto", "low": "low", "high": "high"}

_BUILDERS: dict[str, Callable[[ItemIn, Pieces | None], Item]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_output,
}


def unbase64(text: str, param: str) -> bytes:
    """Undo base64: the standard alphabet with padding, nothing else.

    Raises:
        WireError: `bad_audio`.
    """
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        raise WireError("bad_audio", f"'{param}' is not valid base64.", param) from None


# -- out -----------------------------------------------------------------------------------------------------


class PartOut(Struct, frozen=True, kw_only=True):
    """A content part as it is shown in an item."""

    type: str
    text: str | UnsetType = UNSET
    transcript: str | UnsetType | None = UNSET
    audio: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class ItemOut(Struct, frozen=True, kw_only=True):
    """A conversation item as it is shown."""

    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: str
    status: str
    role: str | UnsetType = UNSET
    content: list[PartOut] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    output: str | UnsetType = UNSET


def item_out(item: Item, *, beta: bool = False) -> ItemOut:
    """Return an item as the wire shows it; the beta dialect has other names for what the assistant says."""
    match item:
        case Message():
            names = _PART_NAMES[item.role == "assistant", beta]
            return ItemOut(
                id=item.id,
                type="message",
                status=item.status,
                role=item.role,
                content=[_part_out(part, *names) for part in item.content],
            )
        case FunctionCall():
            return ItemOut(
                id=item.id,
                type="function_call",
                status=item.status,
                name=item.name,
                call_id=item.call_id,
                arguments=item.arguments,
            )
        case FunctionOutput():
            return ItemOut(
                id=item.id,
                type="function_call_output",
                status=item.status,
                call_id=item.call_id,
                output=item.output,
            )


def content_out(content: tuple[Part, ...]) -> list[PartOut]:
    """Return what a user said as items show it; the sound itself is not shown."""
    return [_part_out(part, *_PART_NAMES[False, False]) for part in content]


_PART_NAMES = {
    (True, False): ("output_text", "output_audio"),
    (True, True): ("text", "audio"),
    (False, False): ("input_text", "input_audio"),
    (False, True): ("input_text", "input_audio"),
}


def _part_out(part: Part, text: str, audio: str) -> PartOut:
    if isinstance(part, TextPart):
        return PartOut(type=text, text=part.text)
    if isinstance(part, ImagePart):
        return PartOut(type="input_image", detail=part.detail)
    return PartOut(type=audio, transcript=part.transcript)
