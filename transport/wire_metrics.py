"""What a response cost, as the duplex dialect spells it (WIRE 3.8)."""

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.events.metrics import Latency, StageCost

LANGUAGE = frozenset({"llm", "language", "language_model", "thinker", "vision_language", "answer"})
"""Names of stages that write the answer; the first of them is stage 0."""

Number = float | UnsetType


class StageMetrics(Struct, frozen=True, kw_only=True):
    """What one stage spent; what was not measured is left out."""

    stage_name: str
    num_tokens_in: Number = UNSET
    num_tokens_out: Number = UNSET
    vllm_ttft_ms: Number = UNSET
    vllm_tpot_ms: Number = UNSET
    vllm_itls_ms: Sequence[float] | UnsetType = UNSET
    vllm_itl_ms: Number = UNSET
    final_output_type: str | UnsetType = UNSET
    output_unit_type: str | UnsetType = UNSET
    output_unit_count: Number = UNSET
    serving_time_to_first_output_ms: Number = UNSET
    time_per_output_unit_ms: Number = UNSET
    inter_output_latencies_ms: Sequence[float] | UnsetType = UNSET
    audio_generated_frames: Number = UNSET
    audio_duration_s: Number = UNSET
    audio_sample_rate: Number = UNSET
    stage_gen_time_ms: Number = UNSET
    postprocess_time_ms: Number = UNSET
    image_pixels: Number = UNSET


class Origins(Struct, frozen=True, kw_only=True):
    """From which moment the two times count, in words."""

    ttft: str
    ttfp: str


class RequestMetrics(Struct, frozen=True, kw_only=True):
    """The time to the first word and to the first sound of a response."""

    source: Literal["server_monotonic_request_start"] = "server_monotonic_request_start"
    ttft_ms: float | None
    ttfp_ms: float | None
    measurement_origin: Origins


class Metrics(Struct, frozen=True, kw_only=True):
    """The object `vllm_omni`: a stage's number as text -> what it spent; and the times of the response."""

    stage_metrics: dict[str, StageMetrics] | UnsetType = UNSET
    response_request_metrics: RequestMetrics | UnsetType = UNSET


def request_metrics(latency: Latency) -> RequestMetrics:
    """Return the times of a response."""
    return RequestMetrics(
        ttft_ms=latency.first_text_ms,
        ttfp_ms=latency.first_audio_ms,
        measurement_origin=Origins(ttft=latency.since, ttfp=latency.since),
    )


def stage_metrics(costs: Sequence[StageCost]) -> dict[str, StageMetrics]:
    """Return what each stage spent; the language model is stage 0, the others are counted from 1."""
    first = next((cost for cost in costs if cost.stage in LANGUAGE), None)
    others = [cost for cost in costs if cost is not first]
    numbered = {str(number): _stage(cost) for number, cost in enumerate(others, 1)}
    return numbered if first is None else {"0": _stage(first), **numbered}


def _stage(cost: StageCost) -> StageMetrics:
    return StageMetrics(
        stage_name=cost.stage,
        num_tokens_in=cost.input_tokens or UNSET,
        num_tokens_out=cost.output_tokens or UNSET,
        vllm_ttft_ms=cost.first_token_ms or UNSET,
        vllm_tpot_ms=cost.token_ms or UNSET,
        vllm_itls_ms=cost.token_intervals_ms or UNSET,
        vllm_itl_ms=_mean(cost.token_intervals_ms, cost.token_interval_ms),
        final_output_type=cost.output_type or UNSET,
        output_unit_type=cost.output_unit or UNSET,
        output_unit_count=cost.outputs or UNSET,
        serving_time_to_first_output_ms=cost.first_output_ms or UNSET,
        time_per_output_unit_ms=_mean(cost.output_intervals_ms, cost.output_interval_ms),
        inter_output_latencies_ms=cost.output_intervals_ms or UNSET,
        audio_generated_frames=cost.audio_frames or UNSET,
        audio_duration_s=cost.audio_s or UNSET,
        audio_sample_rate=cost.audio_rate or UNSET,
        stage_gen_time_ms=cost.total_ms or UNSET,
        postprocess_time_ms=cost.postprocess_ms or UNSET,
        image_pixels=cost.image_pixels or UNSET,
    )


def _mean(values: Sequence[float], known: float) -> Number:
    return sum(values) / len(values) if values else known or UNSET
