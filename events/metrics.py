"""What a response cost: tokens, and what each stage spent, measured where it happened."""

from msgspec import Struct


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens spent on a response; sums."""

    input_text: int = 0
    input_audio: int = 0
    cached: int = 0
    output_text: int = 0
    output_audio: int = 0


class StageCost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one stage spent on a request; times in milliseconds, 0 or empty: not measured.

    `first_output_ms` and `first_token_ms` count from when the stage had the request, `total_ms` is the time in
    which it worked, `postprocess_ms` what came after. `outputs` counts its pieces, of the unit `output_unit`;
    `token_ms` is the mean time for a token behind the first one. The intervals are those between tokens, and
    between outputs; where the lists are left out, `token_interval_ms` and `output_interval_ms` are their means.
    `output_type` says what its final output is.
    """

    stage: str
    queue_ms: float = 0.0
    first_output_ms: float = 0.0
    first_token_ms: float = 0.0
    total_ms: float = 0.0
    postprocess_ms: float = 0.0
    outputs: int = 0
    output_unit: str = ""
    output_type: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    token_ms: float = 0.0
    token_intervals_ms: tuple[float, ...] = ()
    output_intervals_ms: tuple[float, ...] = ()
    token_interval_ms: float = 0.0
    output_interval_ms: float = 0.0
    audio_frames: int = 0
    audio_s: float = 0.0
    audio_rate: int = 0
    image_pixels: int = 0


class Latency(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long the first words and the first sound of a response took, from the moment `since` (K27)."""

    since: str = ""
    first_text_ms: float | None = None
    first_audio_ms: float | None = None
