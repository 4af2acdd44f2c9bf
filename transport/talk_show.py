"""A conversation on a terminal: both sides as they are understood, with the times that matter."""

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from .plain import plain
from .talk_dialogue import Dialogue, Reply
from .talk_mic import Microphone, Utterance

YOU, IT = "you", "antiphon"
_WIDTH = 10


class Screen:
    """Prints what `Dialogue` tells: whole lines of the user, the assistant's words as they come."""

    def __init__(self, console: Console) -> None:
        """Print to a console."""
        self._console = console
        self._open = False

    def tell(self, kind: str, text: str) -> None:
        """Show one thing (see `Dialogue`)."""
        if kind == "assistant":
            if not self._open:
                self._console.print(f"[bold green]{IT:>{_WIDTH}}[/]  ", end="")
                self._open = True
            self._console.print(Text(plain(text.replace("\n", " "))), end="", soft_wrap=True)
            return
        self.close()
        match kind:
            case "user":
                self._line(YOU, "bold blue", escape(text) or "[dim](no words)[/]")
            case "interrupted":
                self._line("", "red", f"[red]✂ you cut in: {escape(text)}[/]")
            case "error":
                self._line("error", "red", escape(text))
            case "done" if text != "completed":
                self._line("", "dim", f"[dim]({escape(text)})[/]")
            case _:
                pass

    def note(self, text: str) -> None:
        """Say something about the conversation."""
        self.close()
        self._line("", "dim", f"[dim]{text}[/]")

    def close(self) -> None:
        """End the line of words that is being printed."""
        if self._open:
            self._console.print()
            self._open = False

    def _line(self, who: str, style: str, text: str) -> None:
        self._console.print(f"[{style}]{who:>{_WIDTH}}[/]  {text}", highlight=False, soft_wrap=True)


def latencies(dialogue: Dialogue, mic: Microphone) -> list[int]:
    """Return for each answer the milliseconds from the end of the voice before it to its first sound."""
    waits: list[int] = []
    for reply in dialogue.replies:
        if reply.first_us is not None:
            ends = [mic.time_of(said.end) for said in mic.utterances if mic.time_of(said.end) <= reply.created_us]
            if ends:
                waits.append((reply.first_us - ends[-1]) // 1000)
    return waits


def reaction(reply: Reply, voice: Utterance, mic: Microphone) -> int | None:
    """Return the milliseconds from the first sample of a voice to the moment at which it silenced an answer."""
    return None if reply.stopped_us is None else (reply.stopped_us - mic.time_of(voice.start)) // 1000
