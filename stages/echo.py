"""The echo: a stage without a model, which gives back what it is given. Useful wherever the model is not."""

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import (
    StageAccepted,
    StageFinished,
    StageProduced,
    StageReleased,
    StageTranscribed,
    Usage,
)
from antiphon.events.effects import TurnInput
from antiphon.events.items import AudioPart, Item, Message, text_of
from antiphon.stages.base import Abort, AnyMessage, Append, Confirm, Release, Report, Submit
from antiphon.stages.converter import Converter

PIECE_MS = 80
INPUT = AudioFormat("pcm16", 16_000)


class EchoStage:
    """Answers a turn with its own sound, or with its words; a resident request plays back every piece at once."""

    def __init__(self) -> None:
        self._report: Report | None = None
        self._live: dict[str, Converter | None] = {}
        self._formats: dict[str, AudioFormat] = {}
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
            case Append(request=request, data=data):
                converter = self._live.get(request)
                if converter is not None:
                    self._say(request, sound=converter.feed(data))
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
            self._live[request] = Converter(INPUT.rate, payload.format)
            return
        self._live[request] = None
        spoken = _last_sound(payload.items)
        if spoken is None:
            words = _last_words(payload.items)
            self._say(request, f'You said: "{words}"' if words else "You said nothing.")
        else:
            item, part, ref = spoken
            self._play(request, payload, item, part, dict(submit.sound).get(ref, b""))
        usage = Usage(input_text=len(payload.items), output_text=1)
        self._tell(StageFinished(request=request, usage=usage))

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

    def _say(self, request: str, text: str = "", sound: bytes = b"") -> None:
        if self._report is not None and (text or sound):
            self._report(StageProduced(request=request, text=text, size=len(sound)), sound)

    def _tell(self, report: StageAccepted | StageTranscribed | StageFinished | StageReleased) -> None:
        if self._report is not None:
            self._report(report, b"")


def _last_sound(items: tuple[Item, ...]) -> tuple[Message, AudioPart, SampleRef] | None:
    """Return the sound of the last user message, if that is what is to be answered."""
    last = items[-1] if items else None
    if not isinstance(last, Message) or last.role != "user":
        return None
    for part in reversed(last.content):
        if isinstance(part, AudioPart) and part.ref is not None:
            return last, part, part.ref
    return None


def _last_words(items: tuple[Item, ...]) -> str:
    return text_of(items[-1]) if items else ""
