"""Whether a data directory is whole: what is damaged is named by session and record, and nothing else is."""

import sqlite3
from pathlib import Path

import anyio
import pytest

from antiphon.engine import checking, sample_store
from antiphon.engine.checking import Damage, Findings, check
from antiphon.engine.datadir import DataDirectory, DataPaths
from antiphon.engine.sample_store import FileSamples
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.sqlite_schema import checksum
from antiphon.events.events import AudioDelta, AudioReceived
from antiphon.events.log import LogError, SampleWrite, Snapshot, Transaction, Unavailable, encode
from antiphon.sessions import core

from tests.sessions.world import World

ONE, TWO = "duplex-1", "duplex-2"


def talk() -> list[Transaction]:
    """A conversation with sound in both directions."""
    world = World()
    for _ in range(2):
        world.append(4)
        world.commit(create_response=True)
        world.produce("One two.", 200)
        world.finish()
        world.ack(200)
        world.release()
    world.close()
    return world.log


def sound_of(transaction: Transaction) -> list[SampleWrite]:
    refs = [event.ref for event in transaction.events if isinstance(event, AudioReceived | AudioDelta)]
    return [SampleWrite(ref, bytes((ref.start + n) % 251 for n in range(ref.size))) for ref in refs]


async def write(root: Path, transactions: list[Transaction]) -> None:
    failed: list[LogError | None] = []
    with DataDirectory(root) as data:
        log = await SqliteLog.open(data)
        for name in (ONE, TWO):
            await log.acquire(name)
            for transaction in transactions:
                log.append(name, transaction, sound_of(transaction), failed.append)
        await log.save_snapshot(ONE, snapshot(transactions, 7))
        await log.aclose()
    assert failed == [None] * 2 * len(transactions)


def snapshot(transactions: list[Transaction], seq: int) -> Snapshot:
    state = core.dump(core.fold(transactions[:seq]))
    return Snapshot(seq=seq, version=core.STATE_VERSION, state=state)


@pytest.fixture(scope="module")
def log() -> list[Transaction]:
    return talk()


@pytest.fixture
def paths(tmp_path: Path, log: list[Transaction]) -> DataPaths:
    anyio.run(write, tmp_path, log)
    return DataPaths(tmp_path)


def change(paths: DataPaths, statement: str, *values: object) -> None:
    connection = sqlite3.connect(paths.database, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


def look(paths: DataPaths, *wanted: str) -> Findings:
    return check(paths, wanted or None, lambda done, total: None)


def damage(paths: DataPaths) -> list[tuple[str, int, str]]:
    return [(found.session, found.seq, found.what) for found in look(paths).damage]


def with_sound(log: list[Transaction]) -> Transaction:
    return [transaction for transaction in log if sound_of(transaction)][-1]


def test_what_was_written_is_whole(paths: DataPaths, log: list[Transaction]) -> None:
    told: list[tuple[int, int]] = []
    found = check(paths, None, lambda done, total: told.append((done, total)))
    assert (found.damage, found.stray, found.retired) == ([], [], 0)
    assert (found.sessions, found.records) == (2, 2 * len(log))
    assert found.sound_bytes == 2 * sum(len(w.data) for entry in log for w in sound_of(entry)) > 0
    assert told == [(len(log), 2 * len(log)), (2 * len(log), 2 * len(log))]
    assert look(paths, TWO).sessions == 1
    assert look(paths, "nobody").sessions == 0


@pytest.mark.parametrize(
    ("statement", "seq", "what"),
    [
        (
            "UPDATE records SET data = zeroblob(length(data)) WHERE seq = 4 AND key = 1",
            4,
            "its checksum does not match",
        ),
        ("DELETE FROM records WHERE seq = 3 AND key = 1", 3, "it is missing; the next one is 4"),
        ("DELETE FROM records WHERE seq IN (3, 4, 5) AND key = 1", 3, "missing up to 5"),
        ("UPDATE records SET sound = X'0102' WHERE seq = 1 AND key = 1", 1, "its checksum does not match"),
        ("UPDATE records SET at = at + 1 WHERE seq = 5 AND key = 1", 5, "its time"),
        ("UPDATE records SET number = 999 WHERE seq = 5 AND key = 1", 5, "message number 999"),
        ("UPDATE sessions SET term = 0 WHERE key = 1", 1, "its term 1 is not between 0 and 0"),
        ("UPDATE snapshots SET state = X'00'", 7, "the snapshot behind it is damaged; a start does without it"),
    ],
)
def test_each_damage_is_named_by_session_and_record(paths: DataPaths, statement: str, seq: int, what: str) -> None:
    change(paths, statement)
    (first, *_) = damage(paths)
    assert first[:2] == (ONE, seq)
    assert what in first[2]
    assert {session for session, _, _ in damage(paths)} == {ONE}, "the others are whole"


def test_a_log_whose_end_is_gone_has_not_ended(paths: DataPaths, log: list[Transaction]) -> None:
    """That of a session that has ended, as the index knows."""
    last = next(entry.seq for entry in log if any(type(e).__name__ == "SessionClosed" for e in entry.events))
    change(paths, "DELETE FROM records WHERE key = 1 AND seq >= ?", last)
    assert damage(paths) == [(ONE, 0, "the index says that it has ended, and its log does not")]


def test_records_that_were_exchanged_are_found(paths: DataPaths, log: list[Transaction]) -> None:
    """Each is whole by itself, so only the order and the fold can tell."""
    twice = Transaction(seq=2, term=1, at=log[0].at, command=log[0].command, events=log[0].events)
    blob = encode(twice)
    change(
        paths,
        "UPDATE records SET data = ?, crc = ?, at = ?, sound = NULL WHERE seq = 2 AND key = 1",
        blob,
        checksum(blob, 2),
        twice.at,
    )
    assert (ONE, 2, "only the first record opens the session") in damage(paths)


def test_sound_that_is_short_lost_or_changed_is_named_by_the_record_that_needs_it(
    paths: DataPaths, log: list[Transaction]
) -> None:
    samples = FileSamples(paths.samples)
    entry = with_sound(log)
    (piece,) = sound_of(entry)
    file = samples.path(ONE, piece.ref.stream)
    whole = file.read_bytes()
    file.write_bytes(whole[: piece.ref.end - 1])
    ((session, seq, what),) = damage(paths)
    assert (session, seq) == (ONE, entry.seq)
    assert what.endswith("was never written, or is lost")
    changed = bytearray(whole)
    changed[piece.ref.start + 3] ^= 1
    file.write_bytes(changed)
    ((session, seq, what),) = damage(paths)
    assert (session, seq) == (ONE, entry.seq)
    assert what.startswith("its sound was changed: ")
    file.unlink()
    assert {session for session, _, _ in damage(paths)} == {ONE}
    file.write_bytes(whole)
    assert damage(paths) == []


def test_what_is_past_its_retention_is_no_damage(paths: DataPaths, log: list[Transaction]) -> None:
    samples = FileSamples(paths.samples)
    samples.retire(ONE)
    found = look(paths)
    assert found.damage == []
    assert found.retired == sum(len(sound_of(entry)) for entry in log)


def test_records_of_an_older_layout_are_held_to_what_their_events_say(
    paths: DataPaths, log: list[Transaction]
) -> None:
    for entry in log:
        crc = checksum(encode(entry), entry.seq)
        change(paths, "UPDATE records SET sound = NULL, crc = ? WHERE seq = ?", crc, entry.seq)
    assert damage(paths) == []
    (piece,) = sound_of(with_sound(log))
    FileSamples(paths.samples).path(TWO, piece.ref.stream).unlink()
    assert {session for session, _, _ in damage(paths)} == {TWO}


def test_a_snapshot_that_is_not_the_fold_is_found(paths: DataPaths, log: list[Transaction]) -> None:
    other = snapshot(log, 6).state
    change(paths, "UPDATE snapshots SET state = ?, crc = ?", other, checksum(other, 7))
    assert damage(paths) == [(ONE, 7, "the snapshot behind it is not what the log folds to")]
    change(paths, "UPDATE snapshots SET state = X'00', crc = ?", checksum(b"\0", 7))
    assert damage(paths) == [(ONE, 7, "the snapshot behind it is not what the log folds to")]
    change(paths, "UPDATE snapshots SET version = version + 1")
    assert damage(paths) == [], "one of another version is not used"


def test_sound_that_belongs_to_nobody_is_named(paths: DataPaths) -> None:
    FileSamples(paths.samples).path("gone", "in").write_bytes(b"x")
    (paths.samples / "notes.txt").write_bytes(b"x")
    found = look(paths)
    assert (found.stray, found.damage) == (["gone.in.0"], [])


def test_a_trimmed_session_is_whole_without_its_beginning(paths: DataPaths, log: list[Transaction]) -> None:
    async def trim() -> None:
        with DataDirectory(paths.root) as data:
            store = await SqliteLog.open(data)
            await store.trim(ONE, 8)
            await store.aclose()

    anyio.run(trim)
    found = look(paths)
    assert (found.damage, found.records) == ([], 2 * len(log) - 8)


def test_no_more_is_told_of_one_session_than_somebody_reads(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "MOST", 3)
    change(paths, "UPDATE records SET data = X'00' WHERE key = 2")
    told = damage(paths)
    assert len(told) == 3
    assert told[-1][2].endswith("more of this session is not told")


def test_what_cannot_be_folded_is_named(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch, log: list[Transaction]
) -> None:
    real = core.fold

    def fold(transactions: list[Transaction], state: core.Session | None = None) -> core.Session:
        if transactions[0].seq == 5:
            raise KeyError("item_7")
        return real(transactions, state)

    monkeypatch.setattr(core, "fold", fold)
    assert damage(paths)[0] == (ONE, 5, "it cannot be folded: KeyError('item_7')")


def test_a_database_that_is_damaged_itself_is_read_as_far_as_it_goes(
    tmp_path: Path, log: list[Transaction], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_store, "SEGMENT", 1 << 30)
    anyio.run(write, tmp_path, log * 1)
    paths = DataPaths(tmp_path)
    whole = paths.database.read_bytes()
    for cut in (4096, 3 * 4096):
        paths.database.write_bytes(whole[:-cut])
        found = look(paths)
        assert "is cut off" in found.damage[0].what
        assert found.damage[0].session == ""
    middle = bytearray(whole)
    middle[5 * 4096 : 7 * 4096] = bytes(2 * 4096)
    paths.database.write_bytes(middle)
    found = look(paths)
    assert any(line.what.startswith("the database: ") for line in found.damage)
    for broken in (b"no database" * 1000, b""):
        paths.database.write_bytes(broken)
        with pytest.raises(Unavailable):
            look(paths)
    paths.database.unlink()
    with pytest.raises(Unavailable, match="there is no log"):
        look(paths)
    assert Damage("", 0, "x").what == "x"
