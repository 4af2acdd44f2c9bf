"""The overrides of `response.create`, as options of one response (WIRE 2.6)."""

from typing import Literal

import msgspec
from msgspec import Raw

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import ResponseOptions
from antiphon.events.config import Dialect, JsonText, Modality, SessionConfig
from antiphon.events.items import Item, ItemReference

from .wire_client import ABSENT, ItemIn, ResponseAudioOut, ResponseIn, VoiceIn
from .wire_errors import WireError, bad_value, missing, translate
from .wire_formats import FormatIn, Spelled, SpelledRate, output_format
from .wire_items import item_from
from .wire_limits import MOST_INPUT, check_options
from .wire_tools import choice_from, tools_from

_Items = list[ItemIn] | ItemIn
_decode = msgspec.json.Decoder(ResponseIn | None).decode
_decode_input = msgspec.json.Decoder(_Items).decode
_PREFIX = "response."
_INPUT = "response.input"
_MODALITIES = "response.output_modalities"


def options_from(raw: Raw, config: SessionConfig, dialect: Dialect) -> ResponseOptions:
    """Return the options that a client gave; an absent object asks for nothing special.

    Raises:
        WireError: by the contract's code.
    """
    if raw == ABSENT:
        return ResponseOptions()
    try:
        given = _decode(raw) or ResponseIn()
    except msgspec.ValidationError as error:
        raise translate(error, ResponseIn, _PREFIX) from None
    audio = (given.audio.output if given.audio else None) or ResponseAudioOut()
    tools = None if given.tools == ABSENT else tools_from(given.tools, "response.tools")
    return ResponseOptions(
        instructions=given.instructions,
        output_modalities=_modalities(given),
        output_format=_format(given, audio, config, dialect),
        voice=_voice(audio.voice if given.voice is None else given.voice),
        speed=audio.speed if given.speed is None else given.speed,
        max_output_tokens=_limit(given),
        temperature=given.temperature,
        metadata=given.metadata,
        tools=tools,
        tool_choice=None
        if given.tool_choice == ABSENT
        else choice_from(given.tool_choice, tools or config.tools, "response.tool_choice"),
        extras=_extras(given),
        input=None if given.input in (ABSENT, Raw(b"null")) else _input(given.input),
        remember=given.conversation != "none",
    )


def _extras(given: ResponseIn) -> dict[str, JsonText] | None:
    if given.extra_body is None:
        return None
    extras = {key: bytes(text).decode() for key, text in given.extra_body.items()}
    check_options(extras, "response.extra_body")
    return extras


def _input(raw: Raw) -> tuple[Item | ItemReference, ...]:
    """Return what the response reads in place of the conversation: items and references, or one of them."""
    if memoryview(raw).nbytes > MOST_INPUT:
        raise bad_value(f"The input of one response has at most {MOST_INPUT} bytes of JSON.", _INPUT)
    try:
        given = _decode_input(raw)
    except msgspec.ValidationError as error:
        raise translate(error, _Items, f"{_INPUT}.") from None
    if not isinstance(given, list):
        return (_entry(given, _INPUT),)
    return tuple(_entry(item, f"{_INPUT}[{index}]") for index, item in enumerate(given))


def _entry(given: ItemIn, path: str) -> Item | ItemReference:
    if given.type == "item_reference":
        if given.id is None:
            raise missing(f"{path}.id")
        return ItemReference(given.id)
    try:
        return item_from(given)
    except WireError as error:
        param = error.param.replace("item", path, 1) if error.param is not None else None
        raise WireError(error.code, error.message, param, error.detail) from None


def _modalities(given: ResponseIn) -> tuple[Modality, ...] | None:
    if given.modalities is not None:
        return modalities(given.modalities, "response.modalities")
    return None if given.output_modalities is None else modalities(given.output_modalities, _MODALITIES)


def modalities(chosen: list[Modality], path: str) -> tuple[Modality, ...]:
    """Return what an answer is made of: any list with `audio` in it means sound and its transcript.

    Raises:
        WireError: the list is empty.
    """
    if not chosen:
        raise bad_value("At least one modality is needed.", path)
    return ("audio",) if "audio" in chosen else ("text",)


def _format(
    given: ResponseIn, audio: ResponseAudioOut, config: SessionConfig, dialect: Dialect
) -> AudioFormat | None:
    name: Spelled | None = None
    rate: SpelledRate | None = None
    if isinstance(audio.format, FormatIn):
        name = Spelled(audio.format.type, "response.audio.output.format.type")
        if audio.format.rate is not None:
            rate = SpelledRate(audio.format.rate, "response.audio.output.format.rate")
    elif audio.format is not None:
        name = Spelled(audio.format, "response.audio.output.format")
    if given.response_format is not None:
        name = Spelled(given.response_format, "response.response_format")
    if given.output_audio_format is not None:
        name = Spelled(given.output_audio_format, "response.output_audio_format")
    if name is None:
        return None
    return output_format(name, rate, config.output_format, dialect)


def _voice(voice: str | VoiceIn | None) -> str | None:
    return voice.id if isinstance(voice, VoiceIn) else voice


def _limit(given: ResponseIn) -> int | Literal["inf"] | None:
    limits = (given.max_response_output_tokens, given.max_output_tokens, given.max_tokens)
    return next((value for value in limits if value is not None), None)
