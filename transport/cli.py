"""The command line: `antiphon serve | talk | log | replay | doctor`."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from . import cli_logs
from .cli_errors import UNUSABLE, Stop
from .wav import WavError

DATA = Path("antiphon-data")
URL = "ws://127.0.0.1:8000"

app = typer.Typer(
    name="antiphon",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    help=f"""
    Antiphon {cli_logs.VERSION}: a realtime voice server whose sessions leave a log that can be replayed.

    Start the server, talk to it, and look at what was written down:

        antiphon serve --pipeline voice --data antiphon-data

        antiphon talk question.wav --out reply.wav

        antiphon log ls --data antiphon-data

        antiphon replay latest --data antiphon-data

    Exit codes: 0 all is well, 1 it failed or a replay differs, 2 what was given cannot be used.
    """,
)
logs = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""
    The logs of a data directory.

    Reading disturbs no server that writes there at the same time. SESSION is an id, the beginning of one,
    `latest`, or an exported file.

        antiphon log ls

        antiphon log show latest

        antiphon log export duplex-4f02 --out session.jsonl

        antiphon log draw session.jsonl --out timeline.png
    """,
)
app.add_typer(logs, name="log")

Session = Annotated[
    str, typer.Argument(metavar="SESSION|FILE", help="An id, its beginning, `latest`, or a .jsonl.")
]
DataOption = Annotated[Path, typer.Option("--data", help="The data directory of the server.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


class Durability(StrEnum):
    """What a session survives."""

    NORMAL = "normal"
    FULL = "full"


@app.command()
def serve(
    pipeline: Annotated[
        str, typer.Option(metavar="voice|echo|FILE.toml", help="What answers: a shipped pipeline or a file.")
    ] = "voice",
    asr: Annotated[str | None, typer.Option(metavar="MODEL", help="Another recogniser (Whisper).")] = None,
    llm: Annotated[str | None, typer.Option(metavar="MODEL", help="Another language model.")] = None,
    tts: Annotated[str | None, typer.Option(metavar="MODEL", help="Another voice (Piper).")] = None,
    vad: Annotated[str | None, typer.Option(metavar="MODEL", help="Another voice detector (Silero).")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8000,
    data: Annotated[Path, typer.Option("--data", help="Where the sessions are written down.")] = DATA,
    durability: Annotated[
        Durability, typer.Option(help="What is survived: `normal` a killed process, `full` a loss of power too.")
    ] = Durability.NORMAL,
    api_key: Annotated[
        list[str] | None,
        typer.Option(envvar="ANTIPHON_API_KEY", help="A key that clients must show; may be repeated."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Let other machines in without a key.")] = False,
    max_sessions: Annotated[int | None, typer.Option(min=1, help="At most so many; default by pipeline.")] = None,
) -> None:
    """
    Serve voice sessions over ws://HOST:PORT/v1/realtime until it is stopped with Ctrl-C.

        antiphon serve

        antiphon serve --asr base --llm ./my-model.gguf

        antiphon serve --pipeline echo --port 0 --data /tmp/antiphon

        antiphon serve --host 0.0.0.0 --api-key "$KEY" --durability full

    A MODEL is a packaged one by its name (`antiphon doctor` lists them), a local file or directory, or
    OWNER/NAME on a model hub.

    Prints `listening on http://HOST:PORT` when the port is open. Sessions outlive the server: they can be
    resumed when it is started again with the same --data.
    """
    from . import cli_serve
    from .serve import ServeSettings

    cli_serve.run(
        ServeSettings(
            pipeline=pipeline,
            models={
                place: model
                for place, model in {"asr": asr, "llm": llm, "tts": tts, "vad": vad}.items()
                if model is not None
            },
            host=host,
            port=port,
            data=data,
            durability=durability.value,
            api_keys=tuple(api_key or ()),
            insecure=insecure,
            max_sessions=max_sessions,
        )
    )


@app.command()
def talk(
    file: Annotated[Path, typer.Argument(metavar="FILE.wav", help="What you say: any plain WAV file.")],
    url: Annotated[str, typer.Option(help="The server.")] = URL,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write what you heard to this WAV file.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="ANTIPHON_API_KEY", help="The server's key.")] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Speak a WAV file to a server in real time, as a microphone would, and listen to the answer.

        antiphon talk question.wav

        antiphon talk question.wav --url ws://gpu-box:8000 --out reply.wav --json

    Both sides are shown as they are understood, and how long you waited for the first sound.
    """
    from . import cli_talk
    from .wav import read_wav

    voice = read_wav(file)
    console = Console(stderr=as_json)
    report = cli_talk.run(voice, url, api_key, out, console)
    if as_json:
        print(msgspec.json.encode(report).decode())
        return
    waits = ", ".join(f"{wait:,} ms" for wait in report.voice_to_voice_ms) or "no sound"
    console.print(
        f"[dim]end of your voice to the first sound: {waits}; session {report.session}[/]", highlight=False
    )
    if out is not None:
        console.print(f"[dim]{report.audio_ms / 1000:.1f} s of answer in {escape(str(out))}[/]", highlight=False)


@app.command()
def replay(target: Session, data: DataOption = DATA, as_json: JsonOption = False) -> None:
    """
    Decide a session again from its recorded commands, and compare every event.

        antiphon replay latest

        antiphon replay session.jsonl --json

    Exit code 0: identical; 1: different; 2: the log cannot be read, or needs a plugin that is not here.
    """
    from . import cli_replay

    result = cli_replay.run(cli_logs.load(target, data))
    if as_json:
        print(msgspec.json.encode(result.verdict).decode())
    else:
        Console().print(cli_replay.sentence(result), highlight=False, soft_wrap=True)
    if not result.verdict.identical:
        raise typer.Exit(1)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """
    Say what is installed, and what each pipeline still lacks and how to get it.

        antiphon doctor
    """
    from . import cli_doctor, cli_doctor_text

    report = cli_doctor.examine()
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        cli_doctor_text.show(Console(), report)


# -- logs ----------------------------------------------------------------------------------------------------


@logs.command("ls")
def log_ls(data: DataOption = DATA, as_json: JsonOption = False) -> None:
    """
    List the sessions, newest first.

        antiphon log ls --data antiphon-data
    """
    from . import cli_show

    rows = cli_logs.index(data)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    elif rows:
        console = Console()
        Console(width=max(console.width, cli_show.INDEX_WIDTH)).print(cli_show.index(rows))
    else:
        Console().print(f"No session was recorded in {data} yet.", highlight=False)


@logs.command("show")
def log_show(
    target: Session,
    data: DataOption = DATA,
    everything: Annotated[
        bool, typer.Option("--all", help="Also every piece of sound and acknowledgement.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Print a session: each command, and the events that it decided.

        antiphon log show latest

        antiphon log show session.jsonl --json
    """
    from antiphon.events.log import to_json

    from . import cli_show

    log = cli_logs.load(target, data)
    if as_json:
        for transaction in log.transactions:
            print(to_json(transaction).decode())
    else:
        cli_show.show(Console(soft_wrap=True), log.transactions, everything=everything)


@logs.command("export")
def log_export(
    target: Session,
    data: DataOption = DATA,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file; default: SESSION.jsonl.")] = None,
) -> None:
    """
    Write a session to one file that can be read, drawn and replayed elsewhere. Sound is not in it.

        antiphon log export latest --out session.jsonl
    """
    log = cli_logs.load(target, data)
    path = out or Path(f"{log.header.session}.jsonl")
    cli_logs.write_export(path, log)
    Console().print(f"{path}: {log.header.session}, {len(log.transactions):,} transactions", highlight=False)


@logs.command("draw")
def log_draw(
    target: Session,
    data: DataOption = DATA,
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture: .png, .svg or .pdf.")] = Path(
        "timeline.png"
    ),
) -> None:
    """
    Draw a session: who spoke when, what was asked of the stages, what was sent and what was heard.

        antiphon log draw latest --out timeline.png
    """
    from . import cli_draw

    cli_draw.draw(target, data, out)
    Console().print(f"{out}", highlight=False)


def version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        print(cli_logs.VERSION)
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take what stands before the command."""


def main() -> None:
    """Run the command line; whatever goes wrong is told in one sentence."""
    try:
        app()
    except Stop as stop:
        Console(stderr=True).print(
            f"[bold red]antiphon:[/] {escape(stop.message)}", highlight=False, soft_wrap=True
        )
        sys.exit(stop.code)
    except WavError as error:
        _tell(str(error))
        sys.exit(UNUSABLE)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(UNUSABLE)


def _tell(message: str) -> None:
    Console(stderr=True).print(f"[bold red]antiphon:[/] {escape(message)}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
