"""What a client opens a session of each model with (N65): options for `connect`, and how its sound is sent.

Every preset leaves it to the client to say what was heard: `playback.ack` is for sound that was *played*, not for
sound that has come; `talk_dialogue.Dialogue.acks` counts it.
"""

import base64

from msgspec import Struct
from msgspec.structs import replace

from .client_link import SessionOptions

Extra = dict[str, object]

NAMES = ("minicpm-o", "nemotron", "personaplex", "aura", "qwen3-omni")
"""What the names of the models that have a preset begin with."""


class Preset(Struct, frozen=True, kw_only=True):
    """How to talk with one model.

    `plugin` names its session half. Sound is sent with `rate` samples a second of `width` bytes, in pieces of
    `append_ms`.
    """

    plugin: str
    options: SessionOptions
    rate: int
    width: int
    append_ms: int


def minicpm(
    voice: bytes,
    *,
    instructions: str | None = None,
    auto_response: bool = True,
    initial_user_text: str | None = None,
    extra_body: Extra | None = None,
) -> Preset:
    """Return the preset of MiniCPM-o 4.5; it speaks with the voice of `voice`, a WAV file."""
    extra: Extra = {"auto_response": auto_response, "force_listen_count": 0, **(extra_body or {})}
    preset = _preset("minicpm-o-4.5", "pcm16", 16_000, 24_000, 1000, instructions, extra)
    options = replace(
        preset.options,
        ref_audio=base64.b64encode(voice).decode(),
        initial_user_text=initial_user_text,
        overlap_policy="listen_only",
        turn_detection=None,
    )
    return replace(preset, options=options)


def nemotron(
    *,
    instructions: str | None = None,
    tools: list[dict[str, object]] | None = None,
    idle_timeout_s: float | None = None,
    extra_body: Extra | None = None,
) -> Preset:
    """Return the preset of Nemotron VoiceChat: it listens and speaks all the time, and may call `tools`."""
    extra: Extra = {"auto_response": True, **(extra_body or {})}
    if tools is not None:
        extra["realtime_tools"] = tools
    preset = _preset("nemotron-voicechat", "pcm_f32le", 16_000, 22_050, 80, instructions, extra)
    options = replace(preset.options, idle_timeout_s=idle_timeout_s, turn_detection=None)
    return replace(preset, options=options)


def personaplex(*, voice: str | None = None, persona: str | None = None, extra_body: Extra | None = None) -> Preset:
    """Return the preset of PersonaPlex; `voice` is a bundled name."""
    extra: Extra = {"auto_response": True, **(extra_body or {})}
    extra |= {key: value for key, value in (("voice", voice), ("persona", persona)) if value is not None}
    preset = _preset("personaplex", "pcm_f32le", 24_000, 24_000, 80, None, extra)
    return replace(preset, options=replace(preset.options, turn_detection=None))


def aura(*, instructions: str | None = None, extra_body: Extra | None = None) -> Preset:
    """Return the preset of AURA: the client shows pictures and commits its turns, each of which is answered."""
    extra: Extra = {"auto_response": True, **(extra_body or {})}
    preset = _preset("aura", "pcm16", 16_000, 24_000, 200, instructions, extra)
    return replace(preset, options=replace(preset.options, turn_detection=None))


def qwen3_omni(
    *, instructions: str | None = None, hands_free: bool = True, extra_body: Extra | None = None
) -> Preset:
    """Return the preset of Qwen3-Omni. `hands_free`: the server hears where a turn ends, else the client says."""
    preset = _preset("qwen3-omni", "pcm16", 16_000, 24_000, 80, instructions, extra_body or {})
    detection: dict[str, object] | None = {"type": "server_vad"} if hands_free else None
    return replace(preset, options=replace(preset.options, turn_detection=detection))


def for_model(
    model: str, *, voice: bytes | None = None, instructions: str | None = None, extra_body: Extra | None = None
) -> Preset:
    """Return the preset of a model by its name or its plugin's; `voice` is a WAV file, for one that needs it.

    Raises:
        ValueError: there is none for it (the message names those that there are), or it needs a voice.
    """
    name = next((known for known in NAMES if model.lower().startswith(known)), None)
    match name:
        case "minicpm-o":
            if voice is None:
                raise ValueError("MiniCPM-o speaks with a voice that is given to it: a WAV file")
            return minicpm(voice, instructions=instructions, extra_body=extra_body)
        case "nemotron":
            return nemotron(instructions=instructions, extra_body=extra_body)
        case "personaplex":
            return personaplex(persona=instructions, extra_body=extra_body)
        case "aura":
            return aura(instructions=instructions, extra_body=extra_body)
        case "qwen3-omni":
            return qwen3_omni(instructions=instructions, extra_body=extra_body)
        case _:
            raise ValueError(f"there is no preset for {model!r}; there are {', '.join(NAMES)}")


def _preset(
    plugin: str, encoding: str, rate: int, output_rate: int, append_ms: int, instructions: str | None, extra: Extra
) -> Preset:
    return Preset(
        plugin=plugin,
        options=SessionOptions(
            instructions=instructions,
            modalities=["audio", "text"],
            input_audio_format=encoding,
            output_audio_format="pcm16",
            sample_rate_hz=rate,
            audio={"input": {"sample_rate_hz": rate}, "output": {"sample_rate_hz": output_rate}},
            playback_commit_policy="ack_only",
            extra_body=extra,
        ),
        rate=rate,
        width=4 if encoding == "pcm_f32le" else 2,
        append_ms=append_ms,
    )
