"""The command line: `antiphon serve | talk | models | log | keys | replay | doctor`."""

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from . import cli_check, cli_export, cli_keys, cli_logs, cli_look, cli_models, cli_what_if
from .cli_errors import FAILED, UNUSABLE, Stop
from .cli_options import (
    DATA,
    CaOption,
    DataOption,
    JsonOption,
    Session,
    UrlKeyOption,
    command_of,
    explain,
    given,
    named,
    origin_of,
    retained,
)
from .cli_terminal import INTERRUPTED, ended, print_json, screen

if TYPE_CHECKING:
    from .cli_talk import Report

URL = "ws://127.0.0.1:8000"

app = typer.Typer(
    name="antiphon",
    invoke_without_command=True,
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
    invoke_without_command=True,
    rich_markup_mode="markdown",
    help="""
    The logs of a data directory.

    Reading disturbs no server that writes there at the same time. SESSION is an id, the beginning of one,
    `latest`, or an exported file or bundle.

        antiphon log ls

        antiphon log show latest

        antiphon log export duplex-4f02 --with-samples --out session.antiphon

        antiphon log import session.antiphon

        antiphon log play latest

        antiphon log timeline latest -o session.html

        antiphon log draw session.jsonl --out timeline.png

        antiphon log check

        antiphon log rm duplex-4f02
    """,
)
app.add_typer(logs, name="log")
logs.command("check")(cli_check.log_check)
app.add_typer(cli_keys.app, name="keys")
cli_what_if.register(app)


class Durability(StrEnum):
    """What a session survives."""

    NORMAL = "normal"
    FULL = "full"


@app.command()
def serve(
    pipeline: Annotated[
        str, typer.Option(metavar="voice|echo|FILE.toml", help="What answers: a shipped pipeline or a file.")
    ] = "voice",
    asr: Annotated[
        str | None, typer.Option(parser=given, metavar="MODEL", help="Another recogniser (Whisper).")
    ] = None,
    llm: Annotated[str | None, typer.Option(parser=given, metavar="MODEL", help="Another language model.")] = None,
    tts: Annotated[str | None, typer.Option(parser=given, metavar="MODEL", help="Another voice (Piper).")] = None,
    vad: Annotated[
        str | None, typer.Option(parser=given, metavar="MODEL", help="Another voice detector (Silero).")
    ] = None,
    host: Annotated[
        str, typer.Option(parser=given, metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8000,
    data: Annotated[
        Path,
        typer.Option("--data", parser=named, metavar="FOLDER", help="Where the sessions are written down."),
    ] = DATA,
    durability: Annotated[
        Durability, typer.Option(help="What is survived: `normal` a killed process, `full` a loss of power too.")
    ] = Durability.NORMAL,
    retain: Annotated[
        str,
        typer.Option(
            parser=retained,
            metavar="session|window|TIME",
            help="How long sound is kept: as its log, as a live session needs it, or for a time (12h, 7d).",
        ),
    ] = "session",
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            envvar="ANTIPHON_API_KEY",
            parser=given,
            metavar="KEY",
            help="A key that clients must show; may be repeated.",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="FILE", help="The keys that clients must show: see `antiphon keys`."),
    ] = None,
    key_in_query: Annotated[
        bool, typer.Option("--key-in-query", help="Take a key from the address too; addresses end up in logs.")
    ] = False,
    origin: Annotated[
        list[str] | None,
        typer.Option(parser=origin_of, metavar="ORIGIN", help="Whose pages may connect; may be repeated."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(parser=named, metavar="FILE", help="Speak TLS with this certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(parser=named, metavar="FILE", help="The key of that certificate (PEM).")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Let other machines in without a key.")] = False,
    max_sessions: Annotated[int | None, typer.Option(min=1, help="At most so many; default by pipeline.")] = None,
    strict_model: Annotated[
        bool,
        typer.Option("--strict-model", help="Refuse clients that ask for another model than those at /v1/models."),
    ] = False,
) -> None:
    """
    Serve voice sessions over ws://HOST:PORT/v1/realtime until it is stopped with Ctrl-C.

        antiphon serve

        antiphon serve --asr base --llm ./my-model.gguf

        antiphon serve --pipeline echo --port 0 --data /tmp/antiphon

        antiphon serve --host 0.0.0.0 --keys keys.json --tls-cert chain.pem --tls-key key.pem

    A MODEL is a packaged one by its name (`antiphon doctor` lists them), a local file or directory, or
    OWNER/NAME on a model hub. If one that was named cannot be loaded, the server ends.

    Clients may ask for any model name and get what is served here, so that clients of other servers work
    unchanged. With --strict-model an unknown name is refused with `model_not_found`.

    Keys are made with `antiphon keys add`. Those of the data directory are used without being named; the file is
    read again when it changes. With --origin, pages of other origins are refused; programs send none.

    With --retain window, sound goes when no live conversation and no unread event needs it any more; with a time,
    not before that has passed too. What was said stays in the log, and replays without its sound.

    Prints `listening on http://HOST:PORT` (or https) when the port is open. Sessions outlive the server: they can
    be resumed when it is started again with the same --data.
    """
    from antiphon.engine.keeper import retention

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
            retain=retention(retain),
            keys=cli_serve.keys_given(api_key),
            key_file=keys,
            key_in_query=key_in_query,
            origins=tuple(origin or ()),
            tls=cli_serve.certificate(tls_cert, tls_key),
            insecure=insecure,
            max_sessions=max_sessions,
            strict_model=strict_model,
        )
    )


@app.command()
def talk(
    file: Annotated[
        Path | None,
        typer.Argument(
            parser=named, metavar="[FILE.wav]", help="What you say: any plain WAV file; none: your microphone."
        ),
    ] = None,
    url: Annotated[str, typer.Option(parser=given, metavar="ADDRESS", help="The server.")] = URL,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", parser=named, metavar="FILE.wav", help="Write what you heard to this WAV file."
        ),
    ] = None,
    api_key: UrlKeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Speak to a server and listen to its answers: with your microphone and loudspeaker, or by a WAV file that is
    spoken in real time.

        antiphon talk

        antiphon talk question.wav

        antiphon talk question.wav --url ws://gpu-box:8000 --out reply.wav --json

    Both sides are shown as they are understood, and how long you waited for the first sound. Ctrl-C ends the
    conversation; what was heard until then is kept.
    """
    from . import cli_live, cli_talk

    console = screen(stderr=as_json)
    if file is None:
        report = cli_live.run(url, api_key, out, console, ca)
    else:
        report = cli_talk.run(file, url, api_key, out, console, ca)
    if as_json:
        print_json(msgspec.json.encode(report))
    else:
        _sum_up(console, report, out)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)


def _sum_up(console: Console, report: "Report", out: Path | None) -> None:
    from .collector import in_words

    console.print(f"[dim]{escape(in_words(report.timings))}[/]", highlight=False)
    waits = ", ".join(f"{wait:,} ms" for wait in report.voice_to_voice_ms) or "no sound"
    console.print(f"[dim]end of your voice to the first sound: {waits}; session {escape(report.session)}[/]")
    if out is not None:
        console.print(f"[dim]{report.audio_ms / 1000:.1f} s of answer in {escape(str(out))}[/]")


@app.command()
def replay(
    target: Session,
    data: DataOption = DATA,
    until: Annotated[
        str | None,
        typer.Option(parser=given, metavar="PLACE", help="Up to a transaction (412), a time (12.5s), or an id."),
    ] = None,
    state: Annotated[bool, typer.Option("--state", help="Print the state there, as a tree.")] = False,
    step: Annotated[bool, typer.Option("--step", help="Walk through it by hand instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Decide a session again from its recorded commands, and compare every event.

        antiphon replay latest

        antiphon replay session.jsonl --until 12.5s --state

        antiphon replay session.antiphon --step

    Exit code 0: identical; 1: different; 2: the log cannot be read, or needs a plugin that is not here.
    """
    from . import cli_replay

    log = cli_logs.load(target, data, damaged=True)
    if step:
        cli_replay.walk_through(log, until, usable=not (state or as_json))
        return
    result = cli_replay.run(log, until, state=state)
    if as_json:
        print_json(msgspec.json.encode(result.verdict))
    else:
        cli_replay.tell(screen(), result)
    if result.verdict.damage:
        raise Stop(result.verdict.damage, UNUSABLE)
    if not result.verdict.identical:
        raise typer.Exit(FAILED)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """
    Say what is installed, and what each pipeline still lacks and how to get it. Prepares nothing.

        antiphon doctor

    Exit code 1: the pipeline that is served by default lacks something.
    """
    from . import cli_doctor, cli_doctor_text

    report = cli_doctor.examine()
    if as_json:
        print_json(msgspec.json.encode(report))
    else:
        cli_doctor_text.show(screen(), report)
    if not report.voice_ready:
        raise typer.Exit(FAILED)


app.command()(cli_models.models)


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
        print_json(msgspec.json.encode(rows))
    elif rows:
        cli_show.print_index(screen(), rows)
    else:
        screen().print(f"No session was recorded in {escape(str(data))} yet.")


logs.command("show")(cli_look.show)
logs.command("play")(cli_look.play)
logs.command("timeline")(cli_look.timeline)


@logs.command("export")
def log_export(
    target: Session,
    data: DataOption = DATA,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=named,
            metavar="FILE",
            help="The file, `-` for standard output; default: SESSION.jsonl or SESSION.antiphon.",
        ),
    ] = None,
    with_samples: Annotated[
        bool, typer.Option("--with-samples", help="With the sound and the pictures: a bundle.")
    ] = False,
    wav: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="FILE.wav", help="Write the sound instead: what was said and heard."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Write a session to one file that can be read, drawn and replayed elsewhere: the log alone, as lines of JSON, or
    a bundle with the sound.

        antiphon log export latest --out session.jsonl

        antiphon log export latest --with-samples --out session.antiphon

        antiphon log export latest --wav talk.wav

    With --wav, talk.wav has the user on the left and on the right the assistant as it was heard, cut where it was
    interrupted, on the session's clock; talk-generated.wav has all that was made, uncut.
    """
    if wav is not None:
        from . import cli_listen

        if out is not None or with_samples:
            raise typer.BadParameter(
                "it is a file by itself; leave --out and --with-samples out", param_hint="--wav"
            )
        files = cli_listen.export(target, data, wav)
        if as_json:
            print_json(msgspec.json.encode(files.report))
        else:
            cli_listen.say_written(screen(), files)
        cli_check.tell(files.damage)
        return
    done = cli_export.export(target, data, out, with_samples=with_samples)
    if out == cli_logs.STANDARD_OUTPUT:
        pass
    elif as_json:
        print_json(msgspec.json.encode(done))
    else:
        cli_export.tell(done)
    cli_check.tell(done.damage)


logs.command("import")(cli_export.bring)


@logs.command("draw")
def log_draw(
    target: Session,
    data: DataOption = DATA,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", parser=named, metavar="FILE", help="The picture: .png, .svg or .pdf."),
    ] = Path("timeline.png"),
) -> None:
    """
    Draw a session: who spoke when, what was asked of the stages, what was sent and what was heard.

        antiphon log draw latest --out timeline.png
    """
    from . import cli_draw

    cli_draw.draw(target, data, out)
    screen().print(escape(str(out)))


@logs.command("rm")
def log_rm(
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION", help="Ids, beginnings of ids, or `latest`.")],
    data: DataOption = DATA,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """
    Remove sessions that have ended, with their sound, for ever. No server may be using the directory.

        antiphon log rm duplex-4f02 sess_91 --data antiphon-data

        antiphon log rm latest --yes
    """
    from . import cli_show

    rows = cli_logs.choose(sessions, data)
    console = screen()
    if not yes:
        cli_show.print_index(console, rows)
        typer.confirm("Remove for ever, with the sound?", abort=True)
    cli_logs.remove_all([row.session for row in rows], data)
    for row in rows:
        console.print(f"removed {escape(row.session)}")


def version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        print(cli_logs.VERSION)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take what stands before the command; without a command, show what there is."""
    explain(context)


@logs.callback()
def log_options(context: typer.Context) -> None:
    """Without a command, show what there is."""
    explain(context)


def main() -> None:
    """Run the command line; whatever goes wrong is told in one sentence."""
    sys.exit(ended("antiphon", partial(command_of(app), standalone_mode=False)))


if __name__ == "__main__":
    main()
