"""Messages about responses: the response object, its items and parts, and the path of a delta (WIRE 3.3 to 3.8)."""

from collections.abc import Iterator
from struct import pack
from typing import Literal

import msgspec
import pybase64
from msgspec import UNSET, Struct

from antiphon.engine.tokens import Veiled
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.commands import AnyCommand, Usage
from antiphon.events.errors import error_type
from antiphon.events.events import ResponseHead
from antiphon.events.items import FunctionCall, Item

from . import wire_server as out
from .wire_formats import shown
from .wire_items import item_out
from .wire_metrics import Metrics, request_metrics, stage_metrics
from .wire_server import ServerEvent
from .wire_view import playback_out, spoken_modalities

Form = Literal["ga", "beta", "duplex", "plain"]
"""A dialect as it is written; `plain` is the duplex dialect without numbers: of a session that cannot be resumed,
or of what came when its replay window had overflowed."""


class Scene(Veiled, Struct):
    """What a message depends on besides its event.

    `sound` holds the bytes of the transaction's deltas. `epoch` is the latest durable one: sound of an older
    epoch is not sent any more. `attachment` and the tokens belong to the reader. `asked_to_close`: it sent
    `session.close` itself.
    """

    session: str
    form: Form
    attachment: int
    token: str | None
    command: AnyCommand
    sound: dict[SampleRef, bytes]
    epoch: int
    asked_to_close: bool = False
    observer_token: str | None = None

    @property
    def extended(self) -> bool:
        """Whether the extensions of the duplex dialect are sent."""
        return self.form in ("duplex", "plain")

    @property
    def beta(self) -> bool:
        """Whether the retired names are sent."""
        return self.form == "beta"


# -- the path of a delta -------------------------------------------------------------------------------------


def is_void(event: ev.AudioDelta, epoch: int) -> bool:
    """Return whether an interruption has voided a piece of sound; `epoch` is where the session is."""
    return event.epoch < epoch and not event.aside


def audio_delta(event: ev.AudioDelta, scene: Scene) -> Iterator[ServerEvent | None]:
    """Sound and its words; in the duplex dialect always as a pair, elsewhere only what is not empty.

    None takes the place of sound that is void: its words keep theirs, and so their id.
    """
    stale = is_void(event, scene.epoch)
    if scene.extended:
        yield out.AudioDeltaOut(
            response_id=event.response_id,
            item_id=event.item_id,
            delta="" if stale else _base64(event, scene),
            format=event.format.encoding,
            sample_rate_hz=event.format.rate,
            metadata=out.DeltaMetadata(
                session_id=event.session,
                epoch=event.epoch,
                audio_duration_ms=event.audio_ms,
                audio_text_marks=tuple(out.MarkOut(mark.chars, mark.ms) for mark in event.marks),
                playback=playback_out(event.playback),
                vllm_omni=Metrics(stage_metrics=stage_metrics(event.costs)) if event.costs else UNSET,
            ),
        )
        yield out.TranscriptDelta(response_id=event.response_id, item_id=event.item_id, delta=event.text)
        return
    if stale:
        yield None
    else:
        kind = out.BetaAudioDelta if scene.beta else out.AudioDeltaOut
        yield kind(
            response_id=event.response_id,
            item_id=event.item_id,
            delta=_base64(event, scene),
        )
    if event.text:
        yield from _transcript(event.response_id, event.item_id, event.text, scene)


def _base64(event: ev.AudioDelta, scene: Scene) -> str:
    sound = scene.sound[event.ref]
    if event.format.encoding == "wav":
        sound = _wav_header(len(sound), event.format.rate) + sound
    return pybase64.b64encode_as_string(sound)


def _wav_header(size: int, rate: int) -> bytes:
    """Return the header of a WAV file with `size` bytes of mono pcm16: each delta is one file (WIRE 5)."""
    return pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", size
    )


def text_delta(event: ev.TextDelta, scene: Scene) -> Iterator[ServerEvent]:
    """Words without sound: of a written answer, or of a spoken one ahead of its sound."""
    if event.part == "audio":
        yield from _transcript(event.response_id, event.item_id, event.text, scene)
        return
    kind = out.BetaTextDelta if scene.beta else out.TextDeltaOut
    yield kind(response_id=event.response_id, item_id=event.item_id, delta=event.text)


def _transcript(response_id: str, item_id: str, text: str, scene: Scene) -> Iterator[ServerEvent]:
    kind = out.BetaTranscriptDelta if scene.beta else out.TranscriptDelta
    yield kind(response_id=response_id, item_id=item_id, delta=text)


# -- beginning and end ---------------------------------------------------------------------------------------


def response_created(event: ev.ResponseCreated, scene: Scene) -> Iterator[ServerEvent]:
    """A response opens."""
    head = event.head
    metadata: dict[str, object] | None = dict(head.metadata) if head.metadata else None
    if scene.extended:
        duplex_event = {
            "type": "response.created",
            "session_id": scene.session,
            "response_id": head.id,
            "turn_id": head.turn,
            "epoch": head.epoch,
        }
        metadata = {"duplex_event": duplex_event, **(metadata or {})}
    yield out.ResponseCreatedOut(
        response_id=head.id, response=_response(head, scene, status="in_progress", metadata=metadata)
    )


def output_started(event: ev.OutputStarted, scene: Scene) -> Iterator[ServerEvent]:
    """The message of a response opens, and its one part."""
    item = item_out(event.item, beta=scene.beta)
    yield out.OutputItemAdded(response_id=event.response_id, output_index=0, item=item)
    if not scene.beta and not event.aside:
        yield out.ItemAdded(item=item, previous_item_id=event.previous_item_id)
    if scene.form != "ga" and not event.aside:
        yield out.ItemCreatedOut(item=item, previous_item_id=event.previous_item_id)
    part = (
        out.ResponsePart(type="audio", transcript="")
        if event.part == "audio"
        else out.ResponsePart(type="text", text="")
    )
    yield out.ContentPartAdded(response_id=event.response_id, item_id=event.item.id, part=part)
    if scene.extended and event.part == "audio":
        yield out.ResponseSpeak(
            response_id=event.response_id,
            item_id=event.item.id,
            metadata=out.SpeakMetadata(session_id=event.session, epoch=event.epoch),
        )


def response_ended(event: ev.ResponseEnded, scene: Scene) -> Iterator[ServerEvent]:
    """Everything that is open of a response closes, then the response."""
    head, aside = event.head, event.head.conversation_id is None
    if event.item is not None and not event.item_done:
        yield from _part_ended(head.id, event.item.id, head.part, event.text, scene)
        yield from _item_ended(head.id, 0, event.item, event.previous_item_id, scene, aside=aside)
    if event.cut is not None:
        index = len(event.calls) + (event.item is not None)
        previous = event.calls[-1].id if event.calls else event.item.id if event.item else event.previous_item_id
        yield from _arguments_ended(head.id, index, event.cut)
        yield from _item_ended(head.id, index, event.cut, previous, scene, aside=aside)
    yield out.ResponseDone(
        response_id=head.id,
        response=_response(head, scene, status=event.status, metadata=_ended_metadata(event, scene), ended=event),
    )
    yield out.RateLimits()


def output_ended(event: ev.OutputEnded, scene: Scene) -> Iterator[ServerEvent]:
    """The message of a response closes; calls follow."""
    yield from _part_ended(event.response_id, event.item.id, event.part, event.text, scene)
    previous = event.previous_item_id
    yield from _item_ended(event.response_id, 0, event.item, previous, scene, aside=event.aside)


def _item_ended(
    response_id: str, index: int, item: Item, previous: str | None, scene: Scene, *, aside: bool
) -> Iterator[ServerEvent]:
    shown = item_out(item, beta=scene.beta)
    yield out.OutputItemDone(response_id=response_id, output_index=index, item=shown)
    if not (scene.beta or aside):
        yield out.ItemDone(item=shown, previous_item_id=previous)


# -- function calls ------------------------------------------------------------------------------------------


def call_started(event: ev.CallStarted, scene: Scene) -> Iterator[ServerEvent]:
    """A call is an item of the response (WIRE 7.4)."""
    item = item_out(event.item, beta=scene.beta)
    yield out.OutputItemAdded(response_id=event.response_id, output_index=event.output_index, item=item)
    if not (scene.beta or event.aside):
        yield out.ItemAdded(item=item, previous_item_id=event.previous_item_id)
    if scene.form != "ga" and not event.aside:
        yield out.ItemCreatedOut(item=item, previous_item_id=event.previous_item_id)


def call_delta(event: ev.CallDelta, _scene: Scene) -> Iterator[ServerEvent]:
    """A piece of its arguments."""
    yield out.ArgumentsDelta(
        response_id=event.response_id,
        item_id=event.item_id,
        output_index=event.output_index,
        call_id=event.call_id,
        delta=event.arguments,
    )


def call_ended(event: ev.CallEnded, scene: Scene) -> Iterator[ServerEvent]:
    """All of its arguments."""
    yield from _arguments_ended(event.response_id, event.output_index, event.item)
    index, previous = event.output_index, event.previous_item_id
    yield from _item_ended(event.response_id, index, event.item, previous, scene, aside=event.aside)


def _arguments_ended(response_id: str, index: int, call: FunctionCall) -> Iterator[ServerEvent]:
    yield out.ArgumentsDone(
        response_id=response_id,
        item_id=call.id,
        output_index=index,
        call_id=call.call_id,
        name=call.name,
        arguments=call.arguments,
    )


def _part_ended(
    response_id: str, item_id: str, kind: ev.PartKind, text: str, scene: Scene
) -> Iterator[ServerEvent]:
    if kind == "audio":
        audio_done = out.BetaAudioDone if scene.beta else out.AudioDone
        transcript_done = out.BetaTranscriptDone if scene.beta else out.TranscriptDone
        yield audio_done(response_id=response_id, item_id=item_id)
        yield transcript_done(response_id=response_id, item_id=item_id, transcript=text)
        part = out.ResponsePart(type="audio", transcript=text)
    else:
        text_done = out.BetaTextDone if scene.beta else out.TextDone
        yield text_done(response_id=response_id, item_id=item_id, text=text)
        part = out.ResponsePart(type="text", text=text)
    yield out.ContentPartDone(response_id=response_id, item_id=item_id, part=part)


def _outputs(event: ev.ResponseEnded) -> list[Item]:
    message = [] if event.item is None else [event.item]
    return [*message, *event.calls, *([] if event.cut is None else [event.cut])]


def _response(
    head: ResponseHead,
    scene: Scene,
    *,
    status: str,
    metadata: dict[str, object] | None,
    ended: ev.ResponseEnded | None = None,
) -> out.ResponseOut:
    spoken = spoken_modalities(head.output_modalities)
    return out.ResponseOut(
        id=head.id,
        status=status,
        status_details=_details(ended, scene) if ended else None,
        output=[item_out(item, beta=scene.beta) for item in _outputs(ended)] if ended else [],
        conversation_id=head.conversation_id,
        output_modalities=head.output_modalities,
        modalities=UNSET if scene.form == "ga" else spoken,
        audio=out.ResponseAudioInfo(
            output=out.ResponseAudioFormat(format=shown(head.output_format), voice=head.voice)
        ),
        max_output_tokens="inf" if head.max_output_tokens is None else head.max_output_tokens,
        metadata=metadata,
        usage=_usage(ended.usage) if ended else None,
        temperature=head.temperature if scene.beta else UNSET,
        voice=head.voice if scene.beta else UNSET,
        output_audio_format=head.output_format.encoding if scene.beta else UNSET,
    )


def _details(event: ev.ResponseEnded, scene: Scene) -> out.StatusDetails | None:
    if event.status == "cancelled":
        return out.StatusDetails(
            type="cancelled",
            reason="turn_detected" if event.reason == "turn_detected" else "client_cancelled",
            cause=event.cause if scene.extended and event.cause else UNSET,
        )
    if event.status == "incomplete":
        return out.StatusDetails(type="incomplete", reason=event.reason or "max_output_tokens")
    if event.status == "failed":
        code = event.failure.code if event.failure else "internal_error"
        message = event.failure.message if event.failure else "The answer failed."
        return out.StatusDetails(
            type="failed", error=out.FailureOut(type=error_type(code), code=code, message=message)
        )
    return None


def _ended_metadata(event: ev.ResponseEnded, scene: Scene) -> dict[str, object] | None:
    head = event.head
    client: dict[str, object] | None = dict(head.metadata) if head.metadata else None
    if not scene.extended:
        return client
    metrics = Metrics(
        stage_metrics=stage_metrics(event.costs) if event.shows_costs else UNSET,
        response_request_metrics=request_metrics(event.latency),
    )
    ours: dict[str, object] = {
        "type": "response.done",
        "session_id": event.session,
        "response_id": head.id,
        "epoch": head.epoch,
        "committed": event.committed,
        "finish_reason": _finish_reason(event),
        "playback": msgspec.to_builtins(playback_out(event.playback)),
        "vllm_omni": msgspec.to_builtins(metrics),
        "stage_costs": msgspec.to_builtins(event.costs),
    }
    return {**ours, **(client or {})}


def _finish_reason(event: ev.ResponseEnded) -> str:
    if event.failure:
        return event.failure.code
    return event.cause or event.reason or "stop"


def _usage(usage: Usage) -> out.UsageOut:
    spent_in = usage.input_text + usage.input_audio
    spent_out = usage.output_text + usage.output_audio
    return out.UsageOut(
        total_tokens=spent_in + spent_out,
        input_tokens=spent_in,
        output_tokens=spent_out,
        input_token_details=out.InputTokens(
            text_tokens=usage.input_text,
            audio_tokens=usage.input_audio,
            cached_tokens=usage.cached,
            cached_tokens_details=out.CachedTokens(text_tokens=usage.cached),
        ),
        output_token_details=out.OutputTokens(text_tokens=usage.output_text, audio_tokens=usage.output_audio),
    )
