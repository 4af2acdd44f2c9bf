"""A spoken conversation on this machine, cut off twice, written to a log and replayed: `make demo`.

Every promise is checked; the last line is one JSON object, and the exit code is 1 when a promise was not kept.
"""

import fcntl
import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
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

from antiphon.engine.datadir import DataDirectory, DataDirectoryError

from . import cli_draw, cli_logs, demo_server
from .cli_errors import UNUSABLE, Stop
from .cli_talk import voice_in
from .cli_terminal import ended, screen
from .demo_checks import Claim, check
from .demo_talk import Heard, converse
from .speaker import track
from .talk import Unanswered, Unheard
from .talk_show import latencies
from .timeline import tell
from .wav import Pcm, read_wav, write_wav

OUT = Path("out/demo")
LOG, CONVERSATION, PICTURE, SERVER_LOG = "session.jsonl", "conversation.wav", "timeline.png", "server.log"
WAV_RATE = 24_000
QUESTIONS = (
    "What is the capital of France?",
    "Please tell me a long story about a cat.",
    "Wait, stop. What is the weather like in Paris in the spring?",
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
        Stop: it could not be held, nobody speaks in `audio`, or another demo uses `out`.
        WavError: `audio` is no usable file.
    """
    began = time.monotonic()
    data = out / "data"
    own = [voice_in(audio)] if audio is not None else []
    with _taken(out), tempfile.TemporaryDirectory(dir=out, prefix="questions-") as spoken:
        voices = [*own, *_questions(Path(spoken))[len(own) :]]
        _clear(out)
        shutil.copytree(spoken, out / "questions")
        with demo_server.server("voice", data, out / SERVER_LOG) as address:
            console.print(f"[bold]A server listens on {address}[/], its log is {escape(str(data))}\n")
            demo_server.wait_until_healthy(address)
            try:
                talking = partial(converse, address, voices, console)
                heard = anyio.run(talking, backend_options={"use_uvloop": True})
            except Unheard:
                raise Stop(f"no speech was heard in {audio or 'the spoken questions'}") from None
            except Unanswered as unanswered:
                raise Stop(f"the conversation did not go as it should: {unanswered}") from None
        claims, summary = _settle(heard, data, out)
    _account(console, claims, summary, time.monotonic() - began)
    print(msgspec.json.encode(summary).decode())
    return all(claim.kept for claim in claims)


@contextmanager
def _taken(out: Path) -> Generator[None]:
    """Have the folder to oneself: another demo's files are alive, and so are those of a server on its data.

    Raises:
        Stop: somebody has it.
    """
    out.mkdir(parents=True, exist_ok=True)
    busy = f"{out} is in use by another demo; wait for its end, or take another folder: make demo ARGS='--out DIR'"
    with open(out / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            DataDirectory(out / "data").close()
        except BlockingIOError:
            raise Stop(busy, UNUSABLE) from None
        except DataDirectoryError as error:
            raise Stop(f"{out} is in use: {error}", UNUSABLE) from error
        yield


def _clear(out: Path) -> None:
    """Remove what an earlier demo left, and nothing else."""
    for name in ("data", "questions"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (LOG, CONVERSATION, PICTURE, SERVER_LOG):
        (out / name).unlink(missing_ok=True)


def _questions(folder: Path) -> list[Pcm]:
    """Let the voice speak the questions into a folder; return them as sound."""
    files = [folder / f"{number}.wav" for number in range(1, len(QUESTIONS) + 1)]
    demo_server.speak(QUESTIONS, files)
    return [read_wav(file) for file in files]


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
    speaker = heard.dialogue.speaker
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
        console.print(f"  {mark} {claim.promise}")
        console.print(f"    [dim]{escape(claim.evidence)}[/]")
    waits = ", ".join(f"{wait:,}" for wait in summary.voice_to_voice_ms)
    folder = Path(summary.log).parent
    console.print(f"\n  end of your voice to its first sound: {waits} ms")
    console.print(
        f"  look at {folder / PICTURE}, listen to {summary.conversation_wav}, read {summary.log}",
    )
    console.print(f"  [dim]{seconds:.0f} s in all[/]\n")


def main(
    audio: Annotated[str, typer.Option(help="A WAV file to ask first, in place of the spoken question.")] = "",
    out: Annotated[Path, typer.Option(help="Where the files go; those of an earlier demo are replaced.")] = OUT,
) -> None:
    """Hold a spoken conversation with this machine and show what its log proves."""
    if not run(Path(audio) if audio else None, out, screen()):
        raise Stop("not every promise was kept (marked ✗ above)")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    sys.exit(ended("demo", partial(app, standalone_mode=False)))
