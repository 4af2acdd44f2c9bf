"""A spoken conversation on this machine, cut off twice, written to a log and replayed: `make demo`.

Every promise is checked; the last line is one JSON object, and the exit code is 1 when a promise was not kept.
"""

import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import numpy as np
import typer
from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from . import cli_draw, cli_logs, demo_server
from .cli_errors import UNUSABLE, Stop
from .demo_checks import Claim, check
from .demo_talk import Heard, converse
from .talk import Unanswered
from .talk_player import track
from .talk_show import latencies
from .timeline import tell
from .wav import Pcm, WavError, read_wav, write_wav

OUT = Path("out/demo")
LOG, CONVERSATION, PICTURE, SERVER_LOG = "session.jsonl", "conversation.wav", "timeline.png", "server.log"
WAV_RATE = 24_000
QUESTIONS = (
    "What is the capital of France?",
    "Please tell me a long story about a cat.",
    "Wait, stop. Tell me about the history of Paris instead.",
)
"""The third one is spoken over the answer to the second."""


class Summary(Struct, frozen=True, kw_only=True):
    """The last line of the demo. `said` holds all words of each answer, also those that were not heard any more."""

    heard: list[str]
    said: list[str]
    voice_to_voice_ms: list[int]
    interrupted_after_ms: int | None
    resumed: bool
    events: int
    replay: str
    log: str
    conversation_wav: str


def run(audio: Path | None, out: Path, console: Console) -> bool:
    """Hold the conversation, write everything down, check it; return whether all promises were kept.

    Raises:
        Stop: it could not be held.
        WavError: `audio` is no usable file.
    """
    began = time.monotonic()
    data = out / "data"
    _clear(out)
    voices = _voices(audio, out / "questions")
    with demo_server.server("voice", data, out / SERVER_LOG) as address:
        console.print(f"[bold]A server listens on {address}[/], its log is {data}\n", highlight=False)
        demo_server.wait_until_healthy(address)
        try:
            heard = anyio.run(partial(converse, address, voices, console), backend_options={"use_uvloop": True})
        except Unanswered as unanswered:
            raise Stop(f"the conversation did not go as it should: {unanswered}") from None
    claims, summary = _settle(heard, data, out)
    _account(console, claims, summary, time.monotonic() - began)
    print(msgspec.json.encode(summary).decode())
    return all(claim.kept for claim in claims)


def _clear(out: Path) -> None:
    """Remove what an earlier demo left, and nothing else."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("data", "questions"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (LOG, CONVERSATION, PICTURE, SERVER_LOG):
        (out / name).unlink(missing_ok=True)


def _voices(audio: Path | None, folder: Path) -> list[Pcm]:
    """Return the three questions as sound; `audio` is asked in place of the first."""
    own = [read_wav(audio)] if audio is not None else []
    files = [folder / f"{number}.wav" for number in range(1, len(QUESTIONS) + 1)]
    demo_server.speak(QUESTIONS, files)
    return [*own, *(read_wav(file) for file in files[len(own) :])]


def _settle(heard: Heard, data: Path, out: Path) -> tuple[list[Claim], Summary]:
    """Export, replay, draw and check."""
    log, wav = out / LOG, out / CONVERSATION
    demo_server.antiphon("log", "export", heard.session, "--data", str(data), "--out", str(log))
    verdict = demo_server.replay_verdict([str(log)])
    dialogue, mic = heard.dialogue, heard.mic
    _write_conversation(heard, wav)
    transactions = cli_logs.read_export(log).transactions
    story = tell(transactions)
    cli_draw.draw(str(log), data, out / PICTURE)
    claims = check(transactions, story, heard, verdict)
    summary = Summary(
        heard=[ask.text for ask in dialogue.asks],
        said=[reply.text.strip() for reply in dialogue.replies],
        voice_to_voice_ms=latencies(dialogue, mic),
        interrupted_after_ms=heard.answers[1].heard_ms,
        resumed=dialogue.numbers.whole and len(story.connections) >= 2,
        events=story.events,
        replay="identical" if verdict.get("identical") is True else "different",
        log=str(log),
        conversation_wav=str(wav),
    )
    return claims, summary


def _write_conversation(heard: Heard, path: Path) -> None:
    """Write what a third person in the room would have heard: left the user, right the assistant."""
    user = heard.mic.recording()
    speaker = heard.dialogue.player
    left = track(heard.spoken(), heard.mic.start_us, WAV_RATE, len(user) * WAV_RATE // 16_000)
    right = track(speaker.heard, heard.mic.start_us, WAV_RATE, len(left))
    stereo = np.zeros((max(len(left), len(right)), 2), np.int16)
    stereo[: len(left), 0] = left
    stereo[: len(right), 1] = right
    write_wav(path, stereo, WAV_RATE)


def _account(console: Console, claims: list[Claim], summary: Summary, seconds: float) -> None:
    console.print("\n[bold]What was promised, and what the log shows[/]")
    for claim in claims:
        mark = "[bold green]✓[/]" if claim.kept else "[bold red]✗[/]"
        console.print(f"  {mark} {claim.promise}", highlight=False)
        console.print(f"    [dim]{escape(claim.evidence)}[/]", highlight=False, soft_wrap=True)
    waits = ", ".join(f"{wait:,}" for wait in summary.voice_to_voice_ms)
    folder = Path(summary.log).parent
    console.print(f"\n  end of your voice to its first sound: {waits} ms", highlight=False)
    console.print(
        f"  look at {folder / PICTURE}, listen to {summary.conversation_wav}, read {summary.log}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"  [dim]{seconds:.0f} s in all[/]\n", highlight=False)


def main(
    audio: Annotated[str, typer.Option(help="A WAV file to ask first, in place of the spoken question.")] = "",
    out: Annotated[Path, typer.Option(help="Where the files go; those of an earlier demo are replaced.")] = OUT,
) -> None:
    """Hold a spoken conversation with this machine and show what its log proves."""
    console = Console(soft_wrap=True)
    errors = Console(stderr=True)
    try:
        kept = run(Path(audio) if audio else None, out, console)
    except (Stop, WavError) as error:
        code = error.code if isinstance(error, Stop) else UNUSABLE
        errors.print(f"[bold red]demo:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(130)
    if not kept:
        errors.print("[bold red]demo:[/] not every promise was kept (marked ✗ above)", highlight=False)
        sys.exit(1)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
