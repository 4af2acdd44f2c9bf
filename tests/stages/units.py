"""Units of input, as short as tests want to write them."""

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.effects import FeedStage
from antiphon.stages.base import Append

OUT = AudioFormat("pcm16", 16_000)


def unit(request: str, number: int, data: bytes = b"") -> Append:
    """The unit of a request that has this number, in every count."""
    return Append(request=request, operation=number, seq=number, turn_seq=number, data=data, format=OUT)


def fed(request: str, ref: SampleRef, number: int) -> FeedStage:
    """The effect that hands this unit over."""
    return FeedStage(request=request, operation=number, seq=number, turn_seq=number, refs=(ref,), format=OUT)
