"""An answer as chat clients read it: one message, or the chunks of a stream (WIRE 11.4)."""

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np
import pybase64
from msgspec import UNSET, Struct, UnsetType

from antiphon.events.audio import AudioFormat
from antiphon.events.events import AudioDelta, CallDelta, CallStarted, PublicEvent, ResponseEnded, TextDelta
from antiphon.events.items import FunctionCall
from antiphon.events.metrics import Usage

from .http_errors import Failed
from .sound_files import FileFormat, Sound, write_sound
from .wav import wav_head
from .wire_metrics import Metrics, request_metrics, stage_metrics

KEPT_S = 24 * 3600
"""How long the sound of an answer may be referred to, as its message says."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class PromptTokens(Struct, frozen=True, kw_only=True):
    """What was read."""

    text_tokens: int
    audio_tokens: int
    cached_tokens: int


class CompletionTokens(Struct, frozen=True, kw_only=True):
    """What was written."""

    text_tokens: int
    audio_tokens: int


class ChatUsage(Struct, frozen=True, kw_only=True):
    """Tokens; what is unknown is 0."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokens
    completion_tokens_details: CompletionTokens


class AudioMetadata(Struct, frozen=True, kw_only=True):
    """What the sound beside it is; `frame_count` counts samples."""

    format: FileFormat
    sample_rate_hz: int
    frame_count: int
    channels: Literal[1] = 1


class AudioOut(Struct, frozen=True, kw_only=True):
    """The sound of a whole answer, in base64, and its words."""

    id: str
    data: str
    expires_at: int
    transcript: str


class FunctionOut(Struct, frozen=True, kw_only=True):
    """A function, or a further piece of its arguments."""

    name: str | UnsetType = UNSET
    arguments: str


class CallOut(Struct, frozen=True, kw_only=True):
    """A call that the client is asked to make; `index` stands in streams."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionOut


class MessageOut(Struct, frozen=True, kw_only=True):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    audio: AudioOut | UnsetType = UNSET
    tool_calls: list[CallOut] | UnsetType = UNSET


class ChoiceOut(Struct, frozen=True, kw_only=True):
    """The one choice."""

    index: Literal[0] = 0
    message: MessageOut
    finish_reason: FinishReason
    logprobs: None = None
    audio_metadata: AudioMetadata | UnsetType = UNSET


class Completion(Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[ChoiceOut]
    usage: ChatUsage
    metrics: Metrics


class DeltaOut(Struct, frozen=True, kw_only=True):
    """What is new."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: tuple[CallOut] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    """The one choice of a chunk."""

    index: Literal[0] = 0
    delta: DeltaOut
    finish_reason: FinishReason | None = None
    logprobs: None = None
    audio_metadata: AudioMetadata | UnsetType = UNSET


class Chunk(Struct, frozen=True, kw_only=True):
    """A piece of a streamed answer; in those of sound the content is the sound, in base64."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    modality: Literal["text", "audio"]
    choices: tuple[ChunkChoice, ...]
    usage: ChatUsage | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"


def line(body: Struct) -> bytes:
    """Return a body as an event of a stream."""
    return b"data: " + _encode(body) + b"\n\n"


class Answer:
    """An answer as it comes about. `created` in seconds of the wall clock."""

    def __init__(self, *, model: str, created: int, file: FileFormat | None, shows_usage: bool = False) -> None:
        self.id = ""
        self._model = model
        self._created = created
        self._file: FileFormat | None = file
        self._shows_usage = shows_usage
        self._words: list[str] = []
        self._sound: list[bytes] = []
        self._format = AudioFormat("pcm16", 24_000)
        self._headed = False
        self._calls: list[int] = []

    # -- a stream --------------------------------------------------------------------------------------------

    def begun(self, response_id: str) -> bytes:
        """Note which response it is; return the first chunk, which says who speaks."""
        self.id = f"chatcmpl-{response_id.removeprefix('resp_')}"
        return self._chunk(DeltaOut(role="assistant", content=""))

    def chunks(self, event: PublicEvent, sound: bytes) -> Iterator[bytes]:
        """Give what an event adds to the stream; `sound` are the samples of an `AudioDelta`."""
        match event:
            case AudioDelta():
                if event.text:
                    yield self._chunk(DeltaOut(content=event.text))
                if sound:
                    yield self._sounding(sound, event.format)
            case TextDelta():
                yield self._chunk(DeltaOut(content=event.text))
            case CallStarted(item=item):
                function = FunctionOut(name=item.name, arguments="")
                index = self._index(event.output_index)
                yield self._calling(CallOut(index=index, id=item.call_id, type="function", function=function))
            case CallDelta():
                function = FunctionOut(arguments=event.arguments)
                yield self._calling(CallOut(index=self._index(event.output_index), function=function))
            case ResponseEnded():
                yield self._chunk(DeltaOut(), finish_reason(event))
                if self._shows_usage:
                    yield line(
                        Chunk(
                            id=self.id,
                            created=self._created,
                            model=self._model,
                            modality="text",
                            choices=(),
                            usage=usage_out(event.usage),
                        )
                    )
            case _:
                pass

    def _sounding(self, sound: bytes, form: AudioFormat) -> bytes:
        """Return sound as a chunk; all of them together are one file."""
        head = b"" if self._headed or self._file != "wav" else wav_head(None, form.rate)
        self._headed = True
        metadata = AudioMetadata(
            format=self._file or "pcm", sample_rate_hz=form.rate, frame_count=form.samples(len(sound))
        )
        content = pybase64.b64encode(head + sound).decode()
        choice = ChunkChoice(delta=DeltaOut(content=content), audio_metadata=metadata)
        return self._line("audio", choice)

    def _index(self, output: int) -> int:
        """Return which of the calls stands at an index of the response's output."""
        if output not in self._calls:
            self._calls.append(output)
        return self._calls.index(output)

    def _calling(self, call: CallOut) -> bytes:
        return self._chunk(DeltaOut(tool_calls=(call,)))

    def _chunk(self, delta: DeltaOut, reason: FinishReason | None = None) -> bytes:
        return self._line("text", ChunkChoice(delta=delta, finish_reason=reason))

    def _line(self, modality: Literal["text", "audio"], choice: ChunkChoice) -> bytes:
        return line(
            Chunk(id=self.id, created=self._created, model=self._model, modality=modality, choices=(choice,))
        )

    # -- a message -------------------------------------------------------------------------------------------

    def take(self, event: PublicEvent, sound: bytes) -> None:
        """Keep what an event adds to the message."""
        match event:
            case AudioDelta():
                self._words.append(event.text)
                self._sound.append(sound)
                self._format = event.format
            case TextDelta():
                self._words.append(event.text)
            case _:
                pass

    def completion(self, ended: ResponseEnded) -> bytes:
        """Return the whole answer. Writing its sound as a file may take a while: to be called in a thread.

        Raises:
            Failed: there is none.
        """
        reason = finish_reason(ended)
        words = "".join(self._words)
        audio, metadata = self._audio(words)
        calls = [_call(call) for call in ended.calls]
        message = MessageOut(content=words or None, audio=audio, tool_calls=calls or UNSET)
        return _encode(
            Completion(
                id=self.id,
                created=self._created,
                model=self._model,
                choices=(ChoiceOut(message=message, finish_reason=reason, audio_metadata=metadata),),
                usage=usage_out(ended.usage),
                metrics=Metrics(
                    stage_metrics=stage_metrics(ended.costs),
                    response_request_metrics=request_metrics(ended.latency),
                ),
            )
        )

    def _audio(self, words: str) -> tuple[AudioOut | UnsetType, AudioMetadata | UnsetType]:
        samples = np.frombuffer(b"".join(self._sound), "<i2").astype(np.int16)
        if self._file is None or not len(samples):
            return UNSET, UNSET
        rate = self._format.rate
        data = write_sound(Sound(samples, rate), self._file)
        audio = AudioOut(
            id=self.id.replace("chatcmpl-", "audio-"),
            data=pybase64.b64encode(data).decode(),
            expires_at=self._created + KEPT_S,
            transcript=words,
        )
        return audio, AudioMetadata(format=self._file, sample_rate_hz=rate, frame_count=len(samples))


def finish_reason(ended: ResponseEnded) -> FinishReason:
    """Return how an answer ended.

    Raises:
        Failed: it is none.
    """
    if ended.status == "completed":
        return "tool_calls" if ended.calls else "stop"
    if ended.status == "incomplete":
        return "content_filter" if ended.reason == "content_filter" else "length"
    if ended.failure is not None and ended.failure.code == "context_length_exceeded":
        raise Failed(400, ended.failure.message, "messages")
    raise Failed(500, ended.failure.message if ended.failure is not None else "The answer was cut off.")


def usage_out(usage: Usage) -> ChatUsage:
    """Return tokens as this API counts them."""
    read, written = usage.input_text + usage.input_audio, usage.output_text + usage.output_audio
    return ChatUsage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        prompt_tokens_details=PromptTokens(
            text_tokens=usage.input_text, audio_tokens=usage.input_audio, cached_tokens=usage.cached
        ),
        completion_tokens_details=CompletionTokens(text_tokens=usage.output_text, audio_tokens=usage.output_audio),
    )


def _call(call: FunctionCall) -> CallOut:
    function = FunctionOut(name=call.name, arguments=call.arguments)
    return CallOut(id=call.call_id, type="function", function=function)
