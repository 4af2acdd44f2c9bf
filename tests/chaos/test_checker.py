"""The checker of the chaos test finds whatever is lost, repeated, changed, cut, or done twice."""

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import msgspec
import pytest

from antiphon.engine.datadir import DataPaths
from antiphon.engine.sqlite_schema import checksum
from antiphon.events import events as ev
from antiphon.events.log import Transaction, decode, encode

from tests.chaos.checker import check
from tests.chaos.clients import read
from tests.chaos.journal import Journal, load, save
from tests.chaos.round import JOURNALS, Plan, Round
from tests.simulation.monitors import GRANTS, NOTICES

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A round in which nothing is wrong."""
    place = tmp_path_factory.mktemp("round")
    outcome = anyio.run(Round(Plan(5, 4, "cascade", ("duplex", "duplex", "ga", "ga")), place).run)
    assert outcome.findings.wrong == []
    return place


@pytest.fixture
def place(lived: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(lived, tmp_path / "round"))


def found(place: Path, journals: list[Journal] | None = None) -> list[str]:
    return anyio.run(check, place / "data", journals or load(place / JOURNALS)).wrong


def longest(place: Path, dialect: str) -> tuple[list[Journal], Journal]:
    journals = load(place / JOURNALS)
    return journals, max((one for one in journals if one.dialect == dialect), key=lambda one: one.messages)


def middle(journal: Journal) -> tuple[list[bytes], int]:
    """Return the frames of the longest connection, and where a message of the log stands among them."""
    frames = max((contact.frames for contact in journal.contacts), key=len)
    at = next(at for at in range(len(frames) // 2, len(frames)) if read(frames[at]).type.endswith(".done"))
    return frames, at


def rewrite(place: Path, session: str, change: Callable[[sqlite3.Connection, int], object]) -> None:
    """Change the database behind everybody's back; `change` is given the session's key."""
    with closing(sqlite3.connect(DataPaths(place / "data").database)) as connection, connection:
        key = connection.execute("SELECT key FROM sessions WHERE session = ?", (session,)).fetchone()[0]
        change(connection, key)


def put(connection: sqlite3.Connection, key: int, transaction: Transaction) -> None:
    """Put a whole record into the log, as a writer would."""
    data = encode(transaction)
    crc = checksum(data, transaction.seq)
    connection.execute("DELETE FROM records WHERE key = ? AND seq = ?", (key, transaction.seq))
    connection.execute(
        "INSERT INTO records (key, seq, at, number, crc, data) VALUES (?, ?, ?, 0, ?, ?)",
        (key, transaction.seq, transaction.at, crc, data),
    )


def test_a_round_that_was_kept_is_checked_again(place: Path) -> None:
    journals = load(place / JOURNALS)
    save(journals, place / "again")
    assert load(place / "again") == journals
    assert found(place) == []


@pytest.mark.parametrize("dialect", ["duplex", "ga"])
def test_a_message_that_was_dropped(place: Path, dialect: str) -> None:
    journals, journal = longest(place, dialect)
    frames, at = middle(journal)
    del frames[at]
    assert any("P49" in wrong for wrong in found(place, journals))


def test_a_message_that_the_application_was_not_given(place: Path) -> None:
    journals, journal = longest(place, "duplex")
    del journal.given[len(journal.given) // 2]
    assert any("where another was due" in wrong for wrong in found(place, journals))


@pytest.mark.parametrize("dialect", ["duplex", "ga"])
def test_a_message_that_came_twice(place: Path, dialect: str) -> None:
    journals, journal = longest(place, dialect)
    frames, at = middle(journal)
    frames.insert(at, frames[at])
    assert found(place, journals)


@pytest.mark.parametrize("dialect", ["duplex", "ga"])
def test_a_message_that_came_again_on_the_next_connection(place: Path, dialect: str) -> None:
    journals = load(place / JOURNALS)
    for journal in journals:
        talks = [one.frames for one in journal.contacts if one.frames and read(one.frames[0]).type in GRANTS]
        for first, second in itertools.pairwise(talks if journal.dialect == dialect else ()):
            old = [frame for frame in first if read(frame).type not in (*GRANTS, *NOTICES)]
            if old:
                second.insert(1, old[-1])
                assert found(place, journals)
                return
    pytest.fail("nobody came back")


@pytest.mark.parametrize("dialect", ["duplex", "ga"])
def test_a_message_that_says_something_else(place: Path, dialect: str) -> None:
    journals, journal = longest(place, dialect)
    frames, at = middle(journal)
    frames[at] = frames[at].replace(b'"type":"', b'"type": "', 1)
    assert any("is not what the log says" in wrong for wrong in found(place, journals))


def test_the_last_message_that_never_came(place: Path) -> None:
    journals = load(place / JOURNALS)
    journal = next(one for one in journals if one.dialect == "duplex" and one.ending == "heard")
    journal.given.pop()
    assert any("given to" in wrong for wrong in found(place, journals))


def test_a_command_that_was_carried_out_twice(place: Path) -> None:
    journals, journal = longest(place, "duplex")

    def again(connection: sqlite3.Connection, key: int) -> None:
        rows = connection.execute("SELECT data FROM records WHERE key = ? ORDER BY seq", (key,)).fetchall()
        entries = [decode(row[0]) for row in rows]
        made = next(
            one for one in reversed(entries) if any(isinstance(event, ev.ItemCreated) for event in one.events)
        )
        put(connection, key, msgspec.structs.replace(made, seq=len(entries) + 1, term=entries[-1].term))

    rewrite(place, journal.session, again)
    assert any(journal.session in wrong and "twice" in wrong for wrong in found(place, journals))


def test_a_command_that_was_lost(place: Path) -> None:
    journals, journal = longest(place, "duplex")
    last = max(journal.sent)
    journal.sent[last + 1] = journal.sent[last]
    journal.sent[last] = b'{"type":"session.heartbeat","client_seq":%d}' % last
    assert any("carried out" in wrong for wrong in found(place, journals))


def test_an_acknowledgement_of_what_is_in_no_log(place: Path) -> None:
    journals, journal = longest(place, "ga")
    frames = journal.contacts[-1].frames
    at = next(at for at, frame in enumerate(frames) if read(frame).type == "session.created")
    frames[at] = msgspec.json.encode(msgspec.json.decode(frames[at]) | {"last_client_seq": 10_000})
    assert any("was acknowledged" in wrong for wrong in found(place, journals))


def test_a_log_that_was_cut(place: Path) -> None:
    journals, journal = longest(place, "duplex")
    rewrite(
        place,
        journal.session,
        lambda connection, key: connection.execute(
            "DELETE FROM records WHERE key = ? AND seq > (SELECT max(seq) - 5 FROM records WHERE key = ?)",
            (key, key),
        ),
    )
    assert len([wrong for wrong in found(place, journals) if journal.session in wrong]) == 2, (
        "index and client say so"
    )


def test_a_record_that_is_missing_or_damaged(place: Path) -> None:
    journals, journal = longest(place, "ga")
    rewrite(
        place,
        journal.session,
        lambda connection, key: connection.execute(
            "UPDATE records SET crc = crc + 1 WHERE key = ? AND seq = 9", (key,)
        ),
    )
    assert any("record 9 is damaged" in wrong for wrong in found(place, journals))


def test_an_event_that_nobody_decided(place: Path) -> None:
    journals, journal = longest(place, "ga")

    def invent(connection: sqlite3.Connection, key: int) -> None:
        rows = connection.execute("SELECT data FROM records WHERE key = ? ORDER BY seq", (key,)).fetchall()
        for row in rows:
            entry = decode(row[0])
            if any(isinstance(event, ev.CommandSequenced) for event in entry.events):
                kept = tuple(event for event in entry.events if not isinstance(event, ev.CommandSequenced))
                put(connection, key, msgspec.structs.replace(entry, events=kept))
                return

    rewrite(place, journal.session, invent)
    assert any("replay differs" in wrong for wrong in found(place, journals))


def test_sound_that_is_not_there(place: Path) -> None:
    journals, journal = longest(place, "duplex")
    sound = DataPaths(place / "data").samples / f"{journal.session}.in.0"
    sound.write_bytes(sound.read_bytes()[:-1])
    assert any("was never written" in wrong for wrong in found(place, journals))


def test_sound_that_is_another_one(place: Path) -> None:
    journals, journal = longest(place, "duplex")
    sound = DataPaths(place / "data").samples / f"{journal.session}.in.0"
    data = bytearray(sound.read_bytes())
    data[len(data) // 2] ^= 1
    sound.write_bytes(data)
    assert any("what was not said there" in wrong for wrong in found(place, journals))


def test_a_session_that_is_gone_and_one_that_its_client_lost(place: Path) -> None:
    journals, journal = longest(place, "duplex")
    journal.lost = "session_resume_expired"
    rewrite(
        place,
        longest(place, "ga")[1].session,
        lambda c, key: c.execute("DELETE FROM sessions WHERE key = ?", (key,)),
    )
    wrong = found(place, journals)
    assert any("is not in the log" in line for line in wrong)
    assert any("the client lost its session" in line for line in wrong)


def test_a_snapshot_that_is_of_another_state(place: Path) -> None:
    journals, journal = longest(place, "duplex")

    def swap(connection: sqlite3.Connection, key: int) -> None:
        seq, state = connection.execute("SELECT seq, state FROM snapshots WHERE key = ?", (key,)).fetchone()
        crc = checksum(state, seq - 1)
        connection.execute("UPDATE snapshots SET seq = ?, crc = ? WHERE key = ?", (seq - 1, crc, key))

    rewrite(place, journal.session, swap)
    assert any("the snapshot at" in wrong for wrong in found(place, journals))
