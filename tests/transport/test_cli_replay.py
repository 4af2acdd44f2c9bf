"""What `antiphon replay` says: identical, or the first difference with who decided it; and the state anywhere."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from antiphon.engine.datadir import DataDirectory, DataPaths
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.events import AudioDelta, ResponseEnded
from antiphon.events.log import Transaction, to_json
from antiphon.transport import cli_logs

from tests.sessions.world import World
from tests.talks import Run, in_process, talk


@pytest.fixture(scope="module")
def world() -> World:
    return talk("All is well [here].")


@pytest.fixture
def file(world: World, tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    header = cli_logs.header_of("duplex-1", world.log)
    cli_logs.write_export(path, cli_logs.LoadedLog(header, world.log))
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    return in_process(monkeypatch, capsys.readouterr)


def changed(file: Path, old: str, new: str) -> Path:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return file


def test_identical_is_said_with_counts_and_speed(run: Run, file: Path, world: World) -> None:
    code, out, _ = run("replay", file)
    events = sum(len(entry.events) for entry in world.log)
    assert code == 0
    assert out.startswith(
        f"identical: {len(world.log)} commands of duplex-1 decided the same {events} events again"
    )
    assert "times faster than they happened" in out
    assert "events/s" in out


def test_a_difference_is_told_field_by_field_with_who_decided_it(run: Run, file: Path, world: World) -> None:
    changed(file, '"audio_ms":300', '"audio_ms":301')
    code, out, _ = run("replay", file)
    at = next(entry for entry in world.log if any(isinstance(event, AudioDelta) for event in entry.events))
    assert code == 1
    lines = out.splitlines()
    assert lines[0].startswith(f"different: duplex-1, first in transaction {at.seq}, event ")
    assert "StageProduced, which sessions/speaking.py:" in lines[1]
    assert "drafted by  sessions/speaking.py:" in lines[2]
    assert "  event       AudioDelta, but not the same" in lines
    assert any(line.split() == ["audio_ms", "301", "→", "300"] for line in lines)
    assert any(line.split()[0] == "output.position" for line in lines)
    assert '{"type"' not in out, "no event is printed as a whole"
    found = json.loads(run("replay", file, "--json")[1])["first_difference"]
    assert found["fields"] == [{"path": "audio_ms", "before": 301, "after": 300}]
    assert found["handler"]["function"] == "speaking.stage_produced"


def test_an_event_too_many_or_too_few_is_told(run: Run, file: Path, world: World) -> None:
    at = next(entry for entry in world.log if any(isinstance(event, ResponseEnded) for event in entry.events))
    lines = file.read_text().splitlines()
    entry = json.loads(lines[at.seq])
    ended = entry["events"].pop()
    file.write_text("\n".join([*lines[: at.seq], json.dumps(entry), *lines[at.seq + 1 :]]))
    code, out, _ = run("replay", file)
    assert code == 1
    assert "recorded    nothing: there is no such event" in out
    assert f"now         {ended['type']}" in out
    entry["events"] += [ended, ended]
    file.write_text("\n".join([*lines[: at.seq], json.dumps(entry), *lines[at.seq + 1 :]]))
    code, out, _ = run("replay", file)
    assert code == 1
    assert "now         nothing: there is no such event" in out
    assert f"recorded    {ended['type']}" in out


def test_the_state_at_a_place_is_a_tree(run: Run, file: Path, world: World) -> None:
    code, out, _ = run("replay", file, "--until", "5", "--state")
    assert code == 0
    assert "identical: 5 commands of duplex-1 up to transaction 5" in out
    assert "state behind transaction 5" in out
    assert '├── phase "open"' in out
    assert "conversation" not in out, "what is empty is not shown"
    code, out, _ = run("replay", file, "--state")
    assert f"state behind transaction {len(world.log)}" in out
    assert "All is well [here]." in out
    code, out, _ = run("replay", file, "--until", "0.1s", "--state", "--json")
    found = json.loads(out)
    assert found["until"] == sum(entry.at <= 100_000 for entry in world.log)
    assert found["state"]["phase"] == "open"
    assert found["state"]["conversation"]["order"] == []
    assert "state" not in json.loads(run("replay", file, "--until", "5", "--json")[1])


def test_a_difference_behind_the_place_is_none(run: Run, file: Path, world: World) -> None:
    changed(file, '"audio_ms":300', '"audio_ms":301')
    at = next(entry.seq for entry in world.log if any(isinstance(event, AudioDelta) for event in entry.events))
    assert run("replay", file, "--until", str(at - 1))[0] == 0
    assert run("replay", file, "--until", str(at))[0] == 1
    code, out, _ = run("replay", file, "--state")
    assert code == 1, "the state of what was recorded can be looked at all the same"
    assert "state behind transaction" in out


@pytest.mark.parametrize("place", ["9999", "later", "-3s"])
def test_a_place_that_is_not_there_is_told_in_one_sentence(run: Run, file: Path, place: str) -> None:
    code, out, err = run("replay", file, f"--until={place}")
    assert (code, out) == (2, "")
    assert "there is no" in err
    assert len(err.splitlines()) == 1


def test_a_damaged_line_says_which_transaction_and_that_those_before_are_whole(
    run: Run, file: Path, world: World
) -> None:
    lines = file.read_text().splitlines()
    lines[7] = lines[7][:50]
    file.write_text("\n".join(lines))
    code, out, err = run("replay", file)
    assert code == 2
    assert out.startswith("identical: 6 commands of duplex-1 up to transaction 6 decided the same")
    assert "is damaged in line 8" in err
    assert "what stands before transaction 7 is whole" in err
    code, out, _ = run("replay", file, "--json")
    assert code == 2
    assert (json.loads(out)["identical"], json.loads(out)["until"]) == (True, 6)
    assert "transaction 7" in json.loads(out)["damage"]
    assert run("replay", file, "--until", "6")[0] == 0, "all that was asked for is there"
    code, _, err = run("replay", file, "--until", "7")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "the log has 1 to 6" in err


async def spoil(root: Path, log: list[Transaction], seq: int) -> None:
    with DataDirectory(root) as data:
        store = await SqliteLog.open(data)
        await store.acquire("duplex-1")
        for entry in log:
            store.append("duplex-1", entry, [], lambda error: None)
        await store.aclose()
    with closing(sqlite3.connect(DataPaths(root).database)) as connection, connection:
        connection.execute("UPDATE records SET crc = crc + 1 WHERE seq = ?", (seq,))


def test_a_damaged_record_says_which_and_what_stands_before_it_is_replayed(
    run: Run, world: World, tmp_path: Path
) -> None:
    anyio.run(spoil, tmp_path / "data", world.log, 9)
    code, out, err = run("replay", "latest", "--data", tmp_path / "data")
    assert code == 2
    assert "8 commands" in out
    assert "record 9 is damaged" in err
    assert "what stands before it is whole" in err
    assert run("replay", "latest", "--data", tmp_path / "data", "--until", "8", "--state")[0] == 0


def test_a_state_that_cannot_be_folded_is_told(run: Run, file: Path, world: World) -> None:
    at = next(entry for entry in world.log if any(isinstance(event, AudioDelta) for event in entry.events))
    created = next(entry for entry in world.log if b'"ResponseCreated"' in to_json(entry))
    lines = file.read_text().splitlines()
    entry = json.loads(lines[created.seq])
    entry["events"] = []
    lines[created.seq] = json.dumps(entry)
    file.write_text("\n".join(lines))
    code, out, err = run("replay", file, "--state")
    assert (code, out) == (2, "")
    assert f"transaction {at.seq} cannot follow what stands before it" in err
    assert run("replay", file)[0] == 1
