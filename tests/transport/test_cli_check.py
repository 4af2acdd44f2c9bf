"""`antiphon log check`, and what the other commands make of a log that is damaged."""

import json
import sqlite3
from pathlib import Path

import anyio
import pytest

from antiphon.engine.datadir import DataPaths
from antiphon.events.log import Transaction

from .test_cli import ended, run
from tests.sessions.world import World
from tests.talks import Run, keep

__all__ = ["run"]


def change(root: Path, statement: str) -> None:
    connection = sqlite3.connect(DataPaths(root).database, isolation_level=None)
    connection.execute(statement)
    connection.close()


@pytest.fixture
def log(tmp_path: Path) -> list[Transaction]:
    """A data directory with one session that goes on."""
    world = World()
    world.append(4)
    world.commit(create_response=True)
    world.produce("One.", 200)
    anyio.run(keep, tmp_path, world.log)
    return world.log


def test_a_whole_directory_is_whole(run: Run, tmp_path: Path, log: list[Transaction]) -> None:
    code, out, err = run("log", "check", "--data", tmp_path)
    assert (code, err) == (0, "")
    assert out.startswith(f"whole: 1 sessions, {len(log)} records, ")
    code, out, err = run("log", "check", "latest", "--data", tmp_path, "--json")
    found = json.loads(out)
    assert (code, found["damage"], found["records"]) == (0, [], len(log))


def test_damage_is_named_and_the_beginning_can_still_be_had(
    run: Run, tmp_path: Path, log: list[Transaction]
) -> None:
    change(tmp_path, "UPDATE records SET data = X'00' WHERE seq = 3")
    code, out, _ = run("log", "check", "--data", tmp_path)
    assert code == 1
    assert "damaged duplex-1: record 3: its checksum does not match\n" in out
    assert "damaged: 1 of 1 sessions" in out
    code, out, _ = run("log", "check", "dup", "--data", tmp_path, "--json")
    (damage,) = json.loads(out)["damage"]
    assert (code, damage["session"], damage["seq"]) == (1, "duplex-1", 3)

    code, out, err = run("log", "show", "latest", "--data", tmp_path)
    assert code == 1
    assert "OpenSession" in out
    assert "record 3 is damaged: its checksum does not match; what stands before it is whole" in err
    file = tmp_path / "out.jsonl"
    code, out, err = run("log", "export", "latest", "--data", tmp_path, "--out", file)
    assert code == 1
    assert "record 3 is damaged" in err
    assert len(file.read_text().splitlines()) == 3
    code, out, _ = run("log", "export", "latest", "--data", tmp_path, "--out", "-")
    assert (code, len(out.splitlines())) == (1, 3)
    assert run("replay", file)[0] == 0, "what was written is a log of its own"
    assert run("replay", "latest", "--data", tmp_path)[0] == 2, "what is damaged proves nothing"


def test_a_damaged_session_that_never_ended_can_be_removed(
    run: Run, tmp_path: Path, log: list[Transaction]
) -> None:
    assert run("log", "rm", "latest", "--data", tmp_path, "--yes")[0] == 2
    change(tmp_path, "UPDATE records SET data = X'00' WHERE seq = 3")
    code, out, err = run("log", "rm", "latest", "--data", tmp_path, "--yes")
    assert (code, out, err) == (0, "removed duplex-1\n", "")
    assert list((tmp_path / "samples").iterdir()) == []
    assert run("log", "check", "--data", tmp_path)[0] == 0


def test_if_nothing_of_a_session_can_be_read_that_is_all_there_is_to_say(
    run: Run, tmp_path: Path, log: list[Transaction]
) -> None:
    change(tmp_path, "UPDATE records SET data = X'00' WHERE seq = 1")
    code, out, err = run("log", "show", "latest", "--data", tmp_path)
    assert (code, out) == (2, "")
    assert "record 1 is damaged" in err


def test_sound_of_nobody_is_shown_and_is_no_damage(run: Run, tmp_path: Path) -> None:
    ended(tmp_path)
    (tmp_path / "samples" / "gone.in.0").write_bytes(b"x")
    code, out, _ = run("log", "check", "--data", tmp_path)
    assert code == 0
    assert "stray gone.in.0" in out


@pytest.mark.parametrize("content", [b"", b"no database at all" * 500], ids=["empty", "strange"])
def test_what_is_no_log_is_told_in_one_sentence(run: Run, tmp_path: Path, content: bytes) -> None:
    DataPaths(tmp_path).database.write_bytes(content)
    for command in (("log", "check"), ("log", "ls"), ("log", "show", "latest"), ("replay", "latest")):
        code, out, err = run(*command, "--data", tmp_path)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        assert "log.sqlite3 is not a log of this program" in err or "`antiphon log check` says" in err
    assert run("log", "check", "--data", tmp_path / "nowhere")[0] == 2


def test_a_file_that_was_cut_off_says_what_to_do(run: Run, tmp_path: Path, log: list[Transaction]) -> None:
    file = DataPaths(tmp_path).database
    file.write_bytes(file.read_bytes()[:-4096])
    code, _, err = run("serve", "--pipeline", "echo", "--data", tmp_path, "--port", "0")
    assert code == 2
    assert "log.sqlite3 is cut off: it has " in err
    assert "restore the directory from a backup" in err
    code, out, _ = run("log", "check", "--data", tmp_path)
    assert code == 1
    assert "log.sqlite3 is cut off" in out


@pytest.mark.parametrize("text", ["forever", "0d", " "])
def test_how_long_sound_is_kept_is_checked(run: Run, tmp_path: Path, text: str) -> None:
    code, _, err = run("serve", "--retain", text, "--data", tmp_path)
    assert code == 2
    assert "it is" in err
    assert len(err.splitlines()) == 1
