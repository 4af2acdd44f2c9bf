"""What a configuration must be, whoever asks for it and through which door: formats first (B10)."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from antiphon.events.audio import G711_RATE, MAX_RATE, MIN_RATE, AudioFormat
from antiphon.events.config import Dialect, SessionConfig, TurnDetection

from .refusal import Refusal, refuse

OPENAI_PCM_RATE = 24_000
MAX_TOKENS = 4096
MAX_INSTRUCTIONS = 1024 * 1024

Direction = Literal["input", "output"]

_G711 = frozenset({"g711_ulaw", "g711_alaw"})


def check_config(config: SessionConfig, dialect: Dialect) -> None:
    """Accept a whole configuration, at opening and at every update.

    Audio formats are looked at first and turn detection second, so that an object which is wrong in both ways
    always reports the format (B10, WIRE 4.8).

    Raises:
        Refusal: `unsupported_audio_format`, `unsupported_turn_detection`, or `bad_event` for a value out of range.
    """
    _check_format(config.input_format, "input", dialect)
    _check_format(config.output_format, "output", dialect)
    if config.turn_detection is not None:
        _check_detection(config.turn_detection)
    _check_values(config)


@contextmanager
def asked_of_the_model() -> Generator[None]:
    """Let a model look at the configuration of a session that is being opened (B9).

    What it refuses has its own code; a plain value error of its code is the configuration's fault all the same.

    Raises:
        Refusal: `invalid_duplex_runtime_config`, or what the model refuses.
    """
    try:
        yield
    except ValueError as error:
        refuse("invalid_duplex_runtime_config", f"The model cannot take this configuration: {str(error)[:64]}")


@contextmanager
def asked_for_one_response() -> Generator[None]:
    """Check a configuration that is the session's with the options of one response: those are what can be wrong.

    Raises:
        Refusal: by the same code, with the path that the field has in `response.create` (WIRE 2.6).
    """
    try:
        yield
    except Refusal as refusal:
        refusal.param = (refusal.param or "").replace("session.", "response.", 1) or None
        raise


def _check_format(given: AudioFormat, direction: Direction, dialect: Dialect) -> None:
    at = f"session.audio.{direction}.format"
    if direction == "input":
        refused = given.encoding == "wav"
    else:
        refused = given.encoding == "pcm_f32le" or (given.encoding == "wav" and dialect != "duplex")
    if refused:
        refuse("unsupported_audio_format", f"Audio format '{given.encoding}' is not supported here.", f"{at}.type")
    if given.encoding in _G711:
        if given.rate != G711_RATE:
            refuse("bad_event", f"G.711 has a rate of {G711_RATE} Hz.", f"{at}.rate", "value")
    elif not MIN_RATE <= given.rate <= MAX_RATE:
        refuse("bad_event", f"A rate lies between {MIN_RATE} and {MAX_RATE} Hz.", f"{at}.rate", "value")
    elif direction == "output" and dialect != "duplex" and given.rate != OPENAI_PCM_RATE:
        refuse("bad_event", f"PCM output has a rate of {OPENAI_PCM_RATE} Hz.", f"{at}.rate", "value")


def _check_detection(given: TurnDetection) -> None:
    idle = given.idle_timeout_ms
    ranges = (
        ("threshold", 0 <= given.threshold <= 1),
        ("prefix_padding_ms", 0 <= given.prefix_padding_ms <= 10_000),
        ("silence_duration_ms", 0 <= given.silence_duration_ms <= 60_000),
        ("min_speech_duration_ms", 0 <= given.min_speech_duration_ms <= 10_000),
        ("idle_timeout_ms", idle is None or 5_000 <= idle <= 30_000),
    )
    for name, fits in ranges:
        if not fits:
            at = f"session.audio.input.turn_detection.{name}"
            refuse("unsupported_turn_detection", f"Turn detection cannot be like that at '{name}'.", at)


def _check_values(config: SessionConfig) -> None:
    limit, temperature = config.max_output_tokens, config.temperature
    ranges = (
        ("output_modalities", bool(config.output_modalities)),
        ("audio.output.speed", 0.25 <= config.speed <= 1.5),
        ("max_output_tokens", limit is None or 1 <= limit <= MAX_TOKENS),
        ("temperature", temperature is None or 0 <= temperature <= 2),
        ("instructions", len(config.instructions) <= MAX_INSTRUCTIONS),
    )
    for name, fits in ranges:
        if not fits:
            refuse("bad_event", f"The value of '{name}' is out of range.", f"session.{name}", "value")
