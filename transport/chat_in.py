"""A chat request as it is read: the guards of its raw fields first, then what a session is asked (WIRE 11.4)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from antiphon.engine.item_request import ItemRequest, Piece
from antiphon.events.audio import MAX_RATE, MIN_RATE, AudioFormat
from antiphon.events.commands import CreateItem
from antiphon.events.config import ConfigPatch, Modality
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

from .sound_files import LONGEST_S, FileFormat, SoundFileError, check_writable, read_sound
from .wire_client import ABSENT, Instructions, Metadata, Name, VoiceIn, VoiceName
from .wire_errors import WireError, bad_value, missing, quoted, translate, wrong_type
from .wire_images import image_from
from .wire_items import unbase64
from .wire_json import check, check_numbers, diagnose, invalid_json
from .wire_limits import check_written
from .wire_tools import choice_from, tools_from

BARE_RATE = 24_000
"""Hz of samples without a head, in both directions."""

MOST_MESSAGES = 4096
MOST_SOUND = LONGEST_S * 48_000 * 2
"""Bytes of samples in a request, all its parts together: small files may hold a lot of silence."""

_NULL = Raw(b"null")


class Wanted(Struct, frozen=True, kw_only=True):
    """What a session is opened with and asked. `file` None: the answer is not spoken."""

    model: str | None
    patch: ConfigPatch
    items: Sequence[ItemRequest]
    stream: bool
    shows_usage: bool
    file: FileFormat | None


class ImageUrl(Struct, frozen=True):
    """Where a picture is: a data URL, as nothing is fetched for a client."""

    url: str
    detail: Detail | None = None


class SoundIn(Struct, frozen=True):
    """A sound file in base64."""

    data: str
    format: str = "wav"


class SoundUrl(Struct, frozen=True):
    """Where a sound file is: a data URL."""

    url: str


class ChatPart(Struct, frozen=True):
    """A part of a message; which field is read follows from `type`."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None
    input_audio: SoundIn | None = None
    audio_url: SoundUrl | str | None = None


class FunctionCalled(Struct, frozen=True):
    """The function of a call."""

    name: Name
    arguments: str = "{}"


class CallIn(Struct, frozen=True):
    """A call that the assistant has made."""

    id: Name
    function: FunctionCalled
    type: Literal["function"] = "function"


class ChatMessage(Struct, frozen=True):
    """A message of the conversation so far."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ChatPart] | None = None
    tool_calls: list[CallIn] | None = None
    tool_call_id: Name | None = None


class AudioAsked(Struct, frozen=True):
    """What the sound of the answer shall be."""

    format: str = "wav"
    voice: VoiceName | VoiceIn | None = None


class StreamOptions(Struct, frozen=True):
    """What a stream tells beside the answer."""

    include_usage: bool | None = None


class NamedFunction(Struct, frozen=True):
    """The function that must be called."""

    name: Name


class ChoiceIn(Struct, frozen=True):
    """The object spelling of a tool choice."""

    type: str
    function: NamedFunction | None = None


class ChatRequest(Struct, frozen=True, kw_only=True):
    """The body of a request; what is not named here is ignored."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MOST_MESSAGES)]
    model: Annotated[str, Meta(max_length=256)] | None = None
    modalities: list[str] | None = None
    audio: AudioAsked | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    metadata: Metadata | None = None
    tools: Raw = ABSENT
    tool_choice: Raw = ABSENT


_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_request = msgspec.json.Decoder(ChatRequest).decode
_list = msgspec.json.Decoder(list[str] | None).decode
_flag = msgspec.json.Decoder(bool | None).decode
_CHOICE = str | ChoiceIn | None
_choice = msgspec.json.Decoder(_CHOICE).decode
_instructions = msgspec.json.Decoder(Instructions).decode


def wanted(body: bytes) -> Wanted:
    """Return what a body asks for.

    Raises:
        WireError: what is wrong with it; `param` is the path of the field.
    """
    check(body)
    check_numbers(body, len(body))
    guard(body)
    try:
        asked = _request(body)
    except msgspec.ValidationError as error:
        raise translate(error, ChatRequest) from None
    except RecursionError:
        raise invalid_json("JSON is nested too deeply.") from None
    if asked.n not in (None, 1):
        raise bad_value("There is one answer to a request: 'n' is 1.", "n")
    file = _file(asked)
    instructions, items = _conversation(asked.messages)
    tools = None if asked.tools in (ABSENT, _NULL) else tools_from(asked.tools, "tools")
    spoken: tuple[Modality, ...] = ("audio",) if file is not None else ("text",)
    limit = asked.max_completion_tokens or asked.max_tokens
    voice = asked.audio.voice if asked.audio is not None else None
    return Wanted(
        model=asked.model or None,
        patch=ConfigPatch(
            instructions=UNSET if instructions is None else instructions,
            output_modalities=spoken,
            turn_detection=None,
            voice=UNSET if voice is None else voice.id if isinstance(voice, VoiceIn) else voice,
            tools=UNSET if tools is None else tools,
            tool_choice=_tool_choice(asked.tool_choice, tools or "[]"),
            max_output_tokens=UNSET if limit is None else limit,
            temperature=UNSET if asked.temperature is None else asked.temperature,
            metadata=UNSET if asked.metadata is None else asked.metadata,
        ),
        items=items,
        stream=bool(asked.stream),
        shows_usage=asked.stream_options is not None and bool(asked.stream_options.include_usage),
        file=file,
    )


def guard(body: bytes) -> None:
    """Hold the raw fields that libraries like to coerce to their types, before anything else is looked at (B-L7).

    Raises:
        WireError: the body is no JSON object, or one of these fields has another type.
    """
    try:
        fields: Mapping[str, Raw] = _fields(body)
    except msgspec.ValidationError:
        raise wrong_type("The body must be a JSON object.", "") from None
    except msgspec.DecodeError as error:
        raise diagnose(body, error) from None
    except RecursionError:
        raise invalid_json("JSON is nested too deeply.") from None
    try:
        _list(fields.get("modalities", _NULL))
    except msgspec.ValidationError:
        raise wrong_type("modalities must be a list of strings", "modalities") from None
    try:
        _flag(fields.get("logprobs", _NULL))
    except msgspec.ValidationError:
        raise wrong_type("logprobs must be a boolean", "logprobs") from None


def _file(asked: ChatRequest) -> FileFormat | None:
    """Return the format of the answer's sound: it is spoken only if that is asked for."""
    chosen = ["text"] if asked.modalities is None else asked.modalities
    if not chosen:
        raise bad_value("At least one modality is needed.", "modalities")
    for name in chosen:
        if name not in ("text", "audio"):
            raise bad_value(f"An answer has the modalities text and audio, not {quoted(name)}.", "modalities")
    if "audio" not in chosen:
        return None
    asked_for = asked.audio.format if asked.audio is not None else ("pcm" if asked.stream else "wav")
    file = _FILES.get(asked_for)
    if file is None:
        raise bad_value(f"The format of the sound is {', '.join(_FILES)}.", "audio.format")
    if asked.stream and file not in ("wav", "pcm"):
        raise bad_value(f"A stream carries wav or pcm16; {file} is made of a whole answer.", "audio.format")
    try:
        check_writable(file)
    except SoundFileError as error:
        raise bad_value(f"{error}.", "audio.format") from None
    return file


_FILES: Mapping[str, FileFormat] = {
    "wav": "wav",
    "pcm": "pcm",
    "pcm16": "pcm",
    "flac": "flac",
    "mp3": "mp3",
    "opus": "opus",
}


def _tool_choice(raw: Raw, tools: str) -> str | UnsetType:
    if raw in (ABSENT, _NULL):
        return UNSET
    try:
        choice = _choice(raw)
    except msgspec.ValidationError as error:
        raise translate(error, _CHOICE, "tool_choice.") from None
    if isinstance(choice, ChoiceIn) and choice.function is not None:
        raw = Raw(msgspec.json.encode({"type": choice.type, "name": choice.function.name}))
    return choice_from(raw, tools, "tool_choice")


class _Room:
    """How much sound the rest of a request may bring."""

    def __init__(self) -> None:
        self.left = MOST_SOUND


# -- messages ------------------------------------------------------------------------------------------------


def _conversation(messages: Sequence[ChatMessage]) -> tuple[str | None, list[ItemRequest]]:
    """Return the instructions, which the first messages of the system are, and the items of the conversation."""
    instructions: list[str] = []
    items: list[ItemRequest] = []
    room = _Room()
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not items and message.role in ("system", "developer"):
            instructions.append(_text(message, path))
            continue
        for item, pieces in _items(message, path, room):
            check_written(item, path)
            items.append(ItemRequest(command=CreateItem(attachment=1, item=item), pieces=tuple(pieces)))
    if not items:
        raise bad_value("There must be a message that is not the system's.", "messages")
    if not instructions:
        return None, items
    try:
        return _instructions(msgspec.json.encode("\n\n".join(instructions))), items
    except msgspec.ValidationError:
        raise bad_value("The instructions have at most 1048576 characters.", "messages") from None


def _items(message: ChatMessage, path: str, room: _Room) -> list[tuple[Item, list[Piece]]]:
    match message.role:
        case "tool":
            if not message.tool_call_id:
                raise missing(f"{path}.tool_call_id")
            output = FunctionOutput(id="", call_id=message.tool_call_id, output=_text(message, path))
            return [(output, [])]
        case "assistant":
            return _assistant(message, path)
        case role:
            return [_message(message, "user" if role == "user" else "system", path, room)]


def _assistant(message: ChatMessage, path: str) -> list[tuple[Item, list[Piece]]]:
    calls = message.tool_calls or []
    items: list[tuple[Item, list[Piece]]] = []
    if message.content or not calls:
        said = TextPart(_text(message, path))
        items.append((Message(id="", role="assistant", content=(said,)), []))
    for call in calls:
        function = call.function
        item = FunctionCall(id="", call_id=call.id, name=function.name, arguments=function.arguments)
        items.append((item, []))
    return items


def _text(message: ChatMessage, path: str) -> str:
    """Return the words of a message that has nothing else."""
    if message.content is None:
        raise missing(f"{path}.content")
    if isinstance(message.content, str):
        return message.content
    for index, part in enumerate(message.content):
        if part.type != "text":
            at = f"{path}.content[{index}].type"
            raise bad_value(f"A message of the role {message.role!r} has text, not {quoted(part.type)}.", at)
    return "".join(_words(part, f"{path}.content[{index}]") for index, part in enumerate(message.content))


def _words(part: ChatPart, path: str) -> str:
    if part.text is None:
        raise missing(f"{path}.text")
    return part.text


def _message(message: ChatMessage, role: Role, path: str, room: _Room) -> tuple[Item, list[Piece]]:
    if role == "system" or isinstance(message.content, str):
        return Message(id="", role=role, content=(TextPart(_text(message, path)),)), []
    if not message.content:
        raise missing(f"{path}.content")
    pieces: list[Piece] = []
    content = [_part(part, pieces, f"{path}.content[{index}]", room) for index, part in enumerate(message.content)]
    return Message(id="", role=role, content=tuple(content)), pieces


def _part(part: ChatPart, pieces: list[Piece], path: str, room: _Room) -> Part:
    match part.type:
        case "text":
            return TextPart(_words(part, path))
        case "image_url":
            return _image(part, pieces, f"{path}.image_url")
        case "input_audio":
            if part.input_audio is None:
                raise missing(f"{path}.input_audio")
            given = part.input_audio
            sound = _samples(unbase64(given.data, f"{path}.input_audio.data"), given.format, path, room)
        case "audio_url":
            sound = _samples_at(part, f"{path}.audio_url", room)
        case "video_url":
            raise WireError("unsupported", "The models here take no video.", f"{path}.type")
        case other:
            raise bad_value(f"There is no part of type {quoted(other)}.", f"{path}.type")
    pieces.append(sound)
    return AudioPart()


def _image(part: ChatPart, pieces: list[Piece], path: str) -> Part:
    given = part.image_url
    if given is None:
        raise missing(path)
    url = given if isinstance(given, str) else given.url
    mime, data = image_from(url, path if isinstance(given, str) else f"{path}.url")
    pieces.append(Piece(data=data))
    detail = given.detail if isinstance(given, ImageUrl) else None
    return ImagePart(mime=mime, size=len(data), detail=detail or "auto")


def _samples_at(part: ChatPart, path: str, room: _Room) -> Piece:
    given = part.audio_url
    if given is None:
        raise missing(path)
    head, comma, body = (given if isinstance(given, str) else given.url).partition(",")
    kind = head.removeprefix("data:audio/").removesuffix(";base64")
    if not comma or head != f"data:audio/{kind};base64":
        raise bad_value("Sound is a data URL of an audio file in base64; nothing is fetched.", path)
    return _samples(unbase64(body, path), _MIME.get(kind, kind), path, room)


_MIME = {"x-wav": "wav", "wave": "wav", "vnd.wave": "wav", "mpeg": "mp3", "x-flac": "flac"}


def _samples(data: bytes, kind: str, path: str, room: _Room) -> Piece:
    try:
        sound = read_sound(data, kind, BARE_RATE)
    except SoundFileError as error:
        raise WireError("bad_audio", f"The sound cannot be read: {error}.", path) from None
    if not MIN_RATE <= sound.rate <= MAX_RATE:
        raise WireError("bad_audio", f"Sound has {MIN_RATE} to {MAX_RATE} samples a second.", path)
    room.left -= sound.samples.nbytes
    if room.left < 0:
        raise WireError("bad_audio", f"The sound of a request has at most {MOST_SOUND} bytes as samples.", path)
    return Piece(data=sound.samples.astype("<i2").tobytes(), format=AudioFormat("pcm16", sound.rate))
