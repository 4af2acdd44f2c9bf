"""The overrides of `response.create`, as options of one response (WIRE 2.6)."""

import msgspec
from msgspec import Raw

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import ResponseOptions
from antiphon.events.config import Dialect, Modality, SessionConfig

from .wire_client import ABSENT, ResponseAudioOut, ResponseIn, VoiceIn
from .wire_errors import WireError, bad_value, translate
from .wire_formats import FormatIn, Spelled, SpelledRate, output_format
from .wire_tools import choice_from, tools_from

_decode = msgspec.json.Decoder(ResponseIn | None).decode
_PREFIX = "response."


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
        raise translate(error, _PREFIX) from None
    if given.input not in (ABSENT, Raw(b"null")):
        raise WireError(
            "unsupported_native_response_options",
            "A response answers the conversation; input of its own is not supported.",
            "response.input",
        )
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
        remember=given.conversation != "none",
    )


def _modalities(given: ResponseIn) -> tuple[Modality, ...] | None:
    chosen = given.modalities if given.modalities is not None else given.output_modalities
    if chosen is None:
        return None
    return modalities(chosen, "response.output_modalities")


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


def _limit(given: ResponseIn) -> int | None:
    for value in (given.max_response_output_tokens, given.max_output_tokens, given.max_tokens):
        if value is not None:
            return None if value == "inf" else value
    return None
