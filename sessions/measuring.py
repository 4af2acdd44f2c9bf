"""Costs added up (BEHAVIOURS K24-K28): pure arithmetic that no number of a stage can make fail."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from antiphon.events.metrics import StageCost, Usage

from .state import Session

_ADDED = (
    "total_ms",
    "postprocess_ms",
    "outputs",
    "input_tokens",
    "output_tokens",
    "audio_frames",
    "audio_s",
    "image_pixels",
)
"""Counters add up (K26)."""

_LISTS = ("token_intervals_ms", "output_intervals_ms")
"""Lists are joined (K26), as far as they are kept."""

KEPT_INTERVALS = 1024
"""The last intervals of a stage: enough for a response, and a bound for a model that only listens (K25)."""

_FIRST = ("first_output_ms", "first_token_ms")
"""Of these the first positive one is kept (K26)."""


def shows_costs(session: Session) -> bool:
    """Return whether the client asked to see what every stage spent (WIRE 3.8)."""
    return session.config.extras.get("return_stage_metrics") == "true"


def outlined(session: Session, costs: tuple[StageCost, ...]) -> tuple[StageCost, ...]:
    """Return costs as every delta shows them, if the client asked for them: without the lists, which grow."""
    if not costs or not shows_costs(session):
        return ()
    return tuple(
        replace(
            cost,
            token_intervals_ms=(),
            output_intervals_ms=(),
            token_interval_ms=_mean(cost.token_intervals_ms),
            output_interval_ms=_mean(cost.output_intervals_ms),
        )
        for cost in costs
    )


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values) if values else 0.0


def folded(before: StageCost, after: StageCost) -> StageCost:
    """Return what a stage spent in two pieces of its work on one response (K26).

    The mean time of a token is weighted by the tokens behind the first one, at least 1. Of everything else the last
    value that was given stands.
    """
    earlier, later = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    both: dict[str, object] = {name: later[name] or earlier[name] for name in later}
    both |= {name: earlier[name] + later[name] for name in _ADDED}
    both |= {name: earlier[name] if earlier[name] > 0 else later[name] for name in _FIRST}
    both |= {name: (earlier[name] + later[name])[-KEPT_INTERVALS:] for name in _LISTS}
    both["token_ms"] = _token_ms(before, after)
    return msgspec.convert(both, StageCost)


def _token_ms(before: StageCost, after: StageCost) -> float:
    if not (before.token_ms and after.token_ms):
        return before.token_ms or after.token_ms
    earlier, later = max(before.output_tokens - 1, 1), max(after.output_tokens - 1, 1)
    return (before.token_ms * earlier + after.token_ms * later) / (earlier + later)


def added(costs: tuple[StageCost, ...], more: Iterable[StageCost]) -> tuple[StageCost, ...]:
    """Return one entry for each stage, in the order in which they first came (K24)."""
    known = {cost.stage: cost for cost in costs}
    for cost in more:
        before = known.get(cost.stage)
        known[cost.stage] = cost if before is None else folded(before, cost)
    return tuple(known.values())


def spent(usage: Usage, more: Usage) -> Usage:
    """Return the sum of two counts of tokens."""
    return Usage(
        input_text=usage.input_text + more.input_text,
        input_audio=usage.input_audio + more.input_audio,
        cached=usage.cached + more.cached,
        output_text=usage.output_text + more.output_text,
        output_audio=usage.output_audio + more.output_audio,
    )
