"""The echo: a stage without a model, which gives back what it is given. Useful wherever the model is not."""

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import (
    StageAccepted,
    StageFinished,
    StageProduced,
    StageReleased,
    StageSegmentFinished,
    StageTranscribed,
    Usage,
)
from antiphon.events.effects import TurnInput
from antiphon.events.items import AudioPart, Item, Message, text_of
from antiphon.stages.base import Abort, AnyMessage, AnyReport, Append, Confirm, Release, Report, Submit
from antiphon.stages.converter import Converter

PIECE_MS = 80
INPUT = AudioFormat("pcm16", 16_000)


class EchoStage:
    """Answers a turn with its own sound, or with its words; in between it plays back every piece at once."""

    def __init__(self) -> None:
        self._report: Report | None = None
        self._live: dict[str, _Line | None] = {}
        self._held: dict[str, Submit] = {}

    @property
    def input_format(self) -> AudioFormat:
        """16-bit samples at 16 kHz."""
        return INPUT

    def start(self, report: Report) -> None:
        """Begin; there is nothing to load."""
        self._report = report

    def handle(self, message: AnyMessage) -> None:
        """Answer at once."""
        match message:
            case Submit(request=request) if request in self._live or request in self._held:
                pass
            case Submit(hold=True):
                self._held[message.request] = message
            case Submit():
                self._begin(message)
            case Append(request=request):
                line = self._live.get(request)
                if line is not None and message.operation > line.operation:
                    line.operation = message.operation
                    self._take(line, message)
            case Confirm(request=request):
                if request in self._held:
                    self._begin(self._held.pop(request))
            case Abort(requests=requests) | Release(requests=requests):
                for request in requests:
                    self._forget(request)

    def close(self) -> None:
        """Forget everything."""
        self._live.clear()
        self._held.clear()
        self._report = None

    def _forget(self, request: str) -> None:
        self._live.pop(request, None)
        self._held.pop(request, None)
        self._tell(StageReleased(request=request))

    def _begin(self, submit: Submit) -> None:
        request, payload = submit.request, submit.payload
        self._tell(StageAccepted(request=request))
        if payload.response_id is None:
            self._live[request] = _Line(payload.format)
            return
        self._live[request] = None
        self._answer(request, payload, dict(submit.sound))
        self._tell(StageFinished(request=request, usage=_usage(payload)))

    def _take(self, line: "_Line", unit: Append) -> None:
        """Play a unit back; or, if a turn ends with it, answer that."""
        request, operation, turn = unit.request, unit.operation, unit.turn
        if turn is None:
            sound = line.to(unit.format).feed(unit.data)
            if sound:
                self._say(request, sound=sound, operation=operation)
            else:
                self._tell(StageAccepted(request=request, operation=operation))
            return
        self._tell(StageAccepted(request=request, operation=operation))
        spoken = _last_sound(turn.items)
        if spoken is not None and unit.data:
            self._play(request, turn, *spoken, unit.data)
        else:
            self._answer(request, turn, dict(unit.sound))
        self._tell(StageSegmentFinished(request=request, decision="end_of_turn", usage=_usage(turn)))

    def _answer(self, request: str, payload: TurnInput, sound: dict[SampleRef, bytes]) -> None:
        spoken = _last_sound(payload.items)
        if spoken is None or spoken[1].ref is None:
            words = _last_words(payload.items)
            self._say(request, f'You said: "{words}"' if words else "You said nothing.")
        else:
            self._play(request, payload, *spoken, sound.get(spoken[1].ref, b""))

    def _play(self, request: str, payload: TurnInput, item: Message, part: AudioPart, pcm16: bytes) -> None:
        """Say what was heard, and play it back."""
        ms = len(pcm16) // 2 * 1000 // part.rate
        words = part.transcript
        if words is None:
            words = f"[{ms} ms of speech]"
            self._tell(StageTranscribed(request=request, item_id=item.id, text=words, seconds=ms / 1000))
        text = f'You said: "{words}"'
        if not payload.speaks or not pcm16:
            self._say(request, text)
            return
        sound = Converter(part.rate, payload.format).feed(pcm16, last=True)
        size = payload.format.bytes_for(PIECE_MS)
        for at in range(0, len(sound), size):
            self._say(request, text if at == 0 else "", sound[at : at + size])

    def _say(self, request: str, text: str = "", sound: bytes = b"", operation: int | None = None) -> None:
        if self._report is not None and (text or sound):
            report = StageProduced(request=request, text=text, size=len(sound), operation=operation)
            self._report(report, sound)

    def _tell(self, report: AnyReport) -> None:
        if self._report is not None:
            self._report(report, b"")


class _Line:
    """A resident request: the last unit that came, and what turns its sound into what is wanted."""

    def __init__(self, wanted: AudioFormat) -> None:
        self.operation = 0
        self._format = wanted
        self._converter = Converter(INPUT.rate, wanted)

    def to(self, wanted: AudioFormat) -> Converter:
        """Return the converter; it begins anew when another format is wanted."""
        if wanted != self._format:
            self._format, self._converter = wanted, Converter(INPUT.rate, wanted)
        return self._converter


def _usage(payload: TurnInput) -> Usage:
    return Usage(input_text=len(payload.items), output_text=1)


def _last_sound(items: tuple[Item, ...]) -> tuple[Message, AudioPart] | None:
    """Return the sound of the last user message, if that is what is to be answered."""
    last = items[-1] if items else None
    if not isinstance(last, Message) or last.role != "user":
        return None
    return next(((last, part) for part in reversed(last.content) if isinstance(part, AudioPart)), None)


def _last_words(items: tuple[Item, ...]) -> str:
    return text_of(items[-1]) if items else ""
