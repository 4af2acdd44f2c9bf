"""What a client sends reaches no terminal, no line of a log and no path as it is."""

import json
import logging
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
import structlog
from rich.text import Text

from antiphon.transport import cli_logs
from antiphon.transport.cli_serve import log_to_stderr
from antiphon.transport.cli_terminal import screen
from antiphon.transport.plain import plain, plain_json
from antiphon.transport.talk_show import Screen

from .serving import Wire
from .test_cli_serve import served
from .test_cli_talk import CLI, Run, run
from tests.sessions.world import World

__all__ = ["run"]

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n2026-01-01 [error] forged ../../etc/passwd\0\x7f\u202eevil\u2028"


def calm(text: str) -> bool:
    """Whether a text moves nothing on a terminal."""
    kinds = {unicodedata.category(char) for char in text if char != "\n"}
    return not kinds & {"Cc", "Zl", "Zp", "Cs"} and "\u202e" not in text


def test_controls_are_written_out() -> None:
    assert plain("a\x1b[2J\n\x9b\x7f\u202e\0é😀\ud800") == "a\\x1b[2J\\n\\x9b\\x7f\\u202e\\x00é😀\\ud800"
    assert plain("a\nb\r", lines=True) == "a\nb\\r"
    assert calm(plain(HOSTILE))


def test_json_stays_the_same_json() -> None:
    text = msgspec.json.encode({"a": HOSTILE}).decode()
    assert not calm(text)
    assert calm(plain_json(text))
    assert json.loads(plain_json(text)) == {"a": HOSTILE}


@pytest.fixture
def logging_on() -> Iterator[None]:
    """The server's log is on."""
    log_to_stderr()
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("logging_on")
def test_a_line_of_the_log_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.get_logger().warning(HOSTILE, session=HOSTILE, many=[HOSTILE], error=ValueError(HOSTILE))
    logging.getLogger("a.library").warning("refused %s", HOSTILE)
    told = capsys.readouterr().err
    assert calm(told)
    assert len(told.splitlines()) == 2
    assert told.count("forged") == 5


@pytest.mark.usefixtures("logging_on")
def test_no_line_of_a_traceback_looks_like_one_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        structlog.get_logger().exception("a session crashed", session="s")
    told = capsys.readouterr().err
    head, *rest = told.splitlines()
    assert "a session crashed" in head
    assert rest
    assert all(line.startswith("    ") for line in rest if line)
    assert calm(told)


def test_a_console_shows_no_control_of_a_stranger(capsys: pytest.CaptureFixture[str]) -> None:
    screen().print(f"[bold]{HOSTILE}[/]")
    talk = Screen(screen())
    for kind in ("user", "assistant", "error", "done"):
        talk.tell(kind, HOSTILE)
    talk.close()
    assert calm(capsys.readouterr().out)
    assert isinstance(screen().render_str("x"), Text)


async def converse(address: str, query: str) -> None:
    """Write hostile names wherever a client may write names."""
    async with Wire.to(address.replace("http", "ws") + "/v1/realtime" + query) as wire:
        await wire.send(
            "session.update", session={"instructions": HOSTILE, "metadata": {"k": HOSTILE}}, event_id=HOSTILE
        )
        await wire.until("session.created")
        for number, name in enumerate((HOSTILE, "../../../etc/passwd", "a\0b")):
            item = {"id": name, "type": "message", "role": "user"}
            await wire.send(
                "conversation.item.create",
                event_id=name,
                item={**item, "content": [{"type": "input_text", "text": name}]},
            )
            call = {"type": "function_call", "name": f"f{number}", "call_id": name, "arguments": name}
            await wire.send("conversation.item.create", item=call)
            await wire.send("conversation.item.delete", item_id=name + "x")
            await wire.send(name, event_id=name)
            await wire.send("response.create", response={"metadata": {"k": name}, "instructions": name})
        await wire.send("input_audio_buffer.append", audio=HOSTILE)
        await wire.raw(HOSTILE)
        await wire.send("session.close", reason=HOSTILE)
        await wire.closed()


async def test_hostile_names_are_shown_escaped_everywhere(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with served(data, "--pipeline", "echo") as operator:
        await operator.listens()
        await converse(operator.address, "?duplex=1&autostart=0&model=%1b%5b2J%0aforged")
        port = int(operator.address.rpartition(":")[2])
        for request in (
            b"GET /\x1b[2J HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /v1/models/%1b%5b2J%0a..%2f HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            async with await anyio.connect_tcp("127.0.0.1", port) as line:
                await line.send(request)
                answer = await line.receive()
                assert answer.startswith(b"HTTP/1.1 40")
                assert b"\x1b" not in answer
        assert await operator.ends() == 0
    assert calm(operator.said)
    for command in (("log", "ls"), ("log", "show", "latest", "--all"), ("log", "show", "latest", "--json"),
                    ("log", "ls", "--json"), ("log", "export", "latest", "--out", "-"), ("replay", "latest"),
                    ("log", "rm", "latest", "--yes")):  # fmt: skip
        done = await anyio.run_process([*CLI, *command, "--data", str(data)], check=False)
        said = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0, said
        assert calm(said), command
        assert command[1] != "show" or said.count("forged") > 5
        assert not [row for row in said.splitlines() if row.startswith(("2026-01-01", "forged"))]
    assert [path.name async for path in anyio.Path(tmp_path).iterdir()] == ["data"]


def test_the_name_in_an_exported_file_leads_nowhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    world = World()
    world.close()
    header = cli_logs.header_of("x", world.log)
    evil = cli_logs.LoadedLog(msgspec.structs.replace(header, session="../../\x1b[2Jevil"), world.log)
    cli_logs.write_export(inside / "evil.jsonl", evil)
    code, said, told = run("log", "export", "evil.jsonl")
    assert code == 0, told
    assert calm(said)
    assert sorted(path.name for path in inside.iterdir()) == ["..%2F..%2F%1B%5B2Jevil.jsonl", "evil.jsonl"]
    code, said, told = run("log", "show", HOSTILE.replace("\0", ""))
    assert code == 2
    assert calm(told)
    assert told.count("\n") == 1
