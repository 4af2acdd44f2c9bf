"""One turn of the cascade: recognise, write, speak; two threads, stopped within a token or a piece of sound."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

from antiphon.events.audio import TextMark
from antiphon.events.commands import StageCost, StageFinished, StageProduced, StageTranscribed, Usage
from antiphon.events.items import FunctionCall, FunctionOutput, ImagePart, Item, Message, Part, TextPart
from antiphon.stages.base import AnyReport, Submit
from antiphon.stages.chat_prompt import ChatMessage
from antiphon.stages.clauses import ClauseCutter
from antiphon.stages.delivery import Delivery
from antiphon.stages.llm import ChatModel
from antiphon.stages.piper import PiperVoice
from antiphon.stages.whisper import WhisperRecogniser

MAX_TOKENS = 160
"""Length of an answer that nobody bounded: about a minute of speech. At most half of the model's context."""

SILENCE = "(says nothing)"
"""What the language model is told of a user who is to be prompted."""

Say = Callable[[AnyReport, bytes], None]


@dataclass(frozen=True, slots=True)
class Models:
    """The loaded models of a cascade, shared by its turns, and what to tell the language model by default."""

    recogniser: WhisperRecogniser
    chat: ChatModel
    voice: PiperVoice
    instructions: str


@dataclass(slots=True)
class _Costs:
    """When the turn began, and what each stage spent on it (seconds, by `time.perf_counter`)."""

    begun: float = field(default_factory=time.perf_counter)
    done: list[StageCost] = field(default_factory=list[StageCost])

    def add(self, stage: str, since: float, first: float | None, outputs: int) -> None:
        now = time.perf_counter()
        self.done.append(
            StageCost(
                stage=stage,
                queue_ms=round((since - self.begun) * 1000, 1),
                first_output_ms=round(((first or now) - since) * 1000, 1),
                total_ms=round((now - since) * 1000, 1),
                outputs=outputs,
            )
        )


class Turn:
    """The work on one request. `run` does it; `stop` may be called from any thread, once or more."""

    def __init__(self, submit: Submit, models: Models, writers: Executor, say: Say) -> None:
        self._request = submit.request
        self._payload = submit.payload
        self._sound = dict(submit.sound)
        self._models = models
        self._writers = writers
        self._way_out = say
        self._held: list[tuple[AnyReport, bytes]] | None = [] if submit.hold else None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._costs = _Costs()
        self._usage = Usage()

    def stop(self) -> None:
        """End the work within one token or one piece of sound."""
        self._stopped.set()

    def confirm(self) -> None:
        """Let held reports flow, and those to come."""
        with self._lock:
            held, self._held = self._held or [], None
            for report, sound in held:
                self._way_out(report, sound)

    def run(self) -> None:
        """Do the turn. Exceptions of the models are the caller's to report."""
        messages = self._conversation()
        if messages is None or self._stopped.is_set():
            self._finish("stop")
            return
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        writer = self._writers.submit(self._write, messages, pieces)
        spoken = self._speak if self._payload.speaks else self._show
        spoken(iter(pieces.get, None))
        self._finish("max_output_tokens" if writer.result() else "stop")

    def _finish(self, stop: str) -> None:
        self._say(
            StageFinished(
                request=self._request,
                stop="max_output_tokens" if stop == "max_output_tokens" else "stop",
                usage=self._usage,
                costs=tuple(self._costs.done),
            )
        )

    def _say(self, report: AnyReport, sound: bytes = b"") -> None:
        with self._lock:
            if self._held is not None:
                self._held.append((report, sound))
            elif not self._stopped.is_set():
                self._way_out(report, sound)

    # -- recognise -------------------------------------------------------------------------------------------

    def _conversation(self) -> list[ChatMessage] | None:
        """Return what to answer, with speech recognised; None if the last thing said held no words, but should."""
        messages = [ChatMessage("system", self._payload.instructions or self._models.instructions)]
        for item in self._payload.items:
            message = self._message(item)
            if message is not None and message.content:
                messages.append(message)
            elif message is not None and item is self._payload.items[-1]:
                if not self._payload.idle:
                    return None
                messages.append(ChatMessage("user", SILENCE))
        return messages if len(messages) > 1 else None

    def _message(self, item: Item) -> ChatMessage | None:
        match item:
            case Message(role=role, content=content):
                words = [self._words_of(item.id, part) for part in content]
                return ChatMessage(role, " ".join(word for word in words if word))
            case FunctionCall() | FunctionOutput():
                return None  # the shipped language model knows no tools

    def _words_of(self, item_id: str, part: Part) -> str:
        if isinstance(part, TextPart):
            return part.text
        if isinstance(part, ImagePart):
            return ""  # no stage of it sees
        if part.transcript is not None:
            return part.transcript
        if part.ref is None or self._stopped.is_set():
            return ""
        since = time.perf_counter()
        found = self._models.recogniser.recognise(self._sound[part.ref])
        self._costs.add("asr", since, None, 1)
        seconds = round(part.ms / 1000, 3)
        self._say(StageTranscribed(request=self._request, item_id=item_id, text=found.text, seconds=seconds))
        return found.text

    # -- write -----------------------------------------------------------------------------------------------

    def _write(self, messages: list[ChatMessage], pieces: queue.SimpleQueue[str | None]) -> bool:
        """Put what is to be said into `pieces`, None at the end; return whether the answer hit its limit."""
        since, first, count = time.perf_counter(), None, 0
        cutter = ClauseCutter() if self._payload.speaks else None
        try:
            reply = self._models.chat.stream(
                messages,
                max_tokens=min(self._payload.max_output_tokens or MAX_TOKENS, self._models.chat.context // 2),
                temperature=self._payload.temperature or 0.0,
                stop=self._stopped.is_set,
            )
            for text in reply:
                first = first or time.perf_counter()
                for piece in cutter.push(text) if cutter else [text]:
                    pieces.put(piece)
                    count += 1
            if cutter and (rest := cutter.flush()):
                pieces.put(rest)
            self._usage = Usage(input_text=reply.prompt_tokens, output_text=reply.completion_tokens)
            self._costs.add("llm", since, first, count)
            return reply.finish == "length"
        finally:
            pieces.put(None)

    # -- speak -----------------------------------------------------------------------------------------------

    def _show(self, pieces: Iterator[str]) -> None:
        for piece in pieces:
            self._say(StageProduced(request=self._request, text=piece))

    def _speak(self, pieces: Iterator[str]) -> None:
        voice = self._models.voice
        delivery = Delivery(voice.sample_rate, self._payload.format)
        since, first, count = time.perf_counter(), None, 0
        for text in pieces:
            if self._stopped.is_set():
                continue  # the writer sees the flag too and ends the pieces
            utterance = voice.speak(text, speed=self._payload.speed, stop=self._stopped.is_set)
            words, marks = text, delivery.begin(text, utterance.marks)
            for samples in utterance:
                sound = delivery.push(samples)
                if sound or words:
                    first = first or time.perf_counter()
                    self._produce(words, sound, marks)
                    words, marks, count = "", (), count + 1
            if words:
                self._produce(words, b"", marks)  # nothing in it can be spoken
        if rest := delivery.flush():
            self._produce("", rest, ())
        self._costs.add("tts", since, first, count)

    def _produce(self, text: str, sound: bytes, marks: tuple[TextMark, ...]) -> None:
        self._say(StageProduced(request=self._request, text=text, size=len(sound), marks=marks), sound)
