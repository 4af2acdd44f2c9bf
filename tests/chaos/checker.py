"""Holds what clients saw against what the log says: nothing lost, repeated, changed, or done twice."""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pybase64
from msgspec import Struct

from antiphon.engine.datadir import DataPaths
from antiphon.engine.replay import replay
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.sqlite_reader import SqliteReader
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import Item, Message, TextPart
from antiphon.events.log import LogError, SessionRow, Transaction, highest_number
from antiphon.sessions import core

from tests.chaos.clients import read
from tests.chaos.journal import Journal
from tests.chaos.talk import LINE
from tests.simulation.monitors import GRANTS, Talk, WireMonitor
from tests.simulation.peer import Ledger

BATCH = 1000
TOLD = b'"storage_unavailable"'


class Findings(Struct):
    """What was looked at, and what is wrong."""

    sessions: int = 0
    """In the log."""
    talks: int = 0
    """Sessions that a client had."""
    resumes: int = 0
    messages: int = 0
    commands: int = 0
    """Counted ones, that clients sent."""
    transactions: int = 0
    events: int = 0
    samples: int = 0
    """Bytes of sound that the log refers to."""
    unheard: int = 0
    """Sessions that ended, and their client found it out by asking."""
    told: int = 0
    """Messages that said that nothing can be recorded now."""
    terms: int = 0
    """Writers that the sessions have had."""
    wrong: list[str] = []

    def join(self, other: "Findings") -> None:
        """Add other findings."""
        self.wrong += other.wrong
        for name in self.__struct_fields__[:-1]:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Broken(AssertionError):
    """Something is not as it must be."""


def hold(true: object, what: str) -> None:
    """Raise `Broken` unless it is so."""
    if not true:
        raise Broken(what)


async def check(data: Path, journals: list[Journal]) -> Findings:
    """Hold journals against the log in a data directory that no server has open."""
    found = Findings()
    paths = DataPaths(data)
    reader = SqliteLog.open_reader(paths)
    rows: list[SessionRow] = []
    logs: dict[str, Log] = {}
    try:
        with _blamed(found, "the database"):
            _whole(paths.database)
            rows = await reader.sessions()
        for row in rows:
            found.sessions += 1
            with _blamed(found, row.session):
                log = logs[row.session] = await Log.read(reader, row)
                found.transactions += len(log.entries)
                found.events += sum(len(entry.events) for entry in log.entries)
                found.samples += sum(map(len, log.sounds.values()))
                found.terms += log.entries[-1].term
                await _check_log(log, reader)
        for journal in journals:
            if journal.session:
                found.talks += 1
                found.resumes += journal.resumes
                found.messages += journal.messages
                found.commands += len(journal.sent)
                found.unheard += journal.ending == "unheard"
                found.told += sum(TOLD in frame for one in journal.contacts for frame in one.frames)
                with _blamed(found, f"{journal.client}, {journal.dialect}, {journal.session}"):
                    hold(journal.session in logs, "it is not in the log")
                    _check_client(journal, logs[journal.session])
    finally:
        await reader.aclose()
    return found


@contextlib.contextmanager
def _blamed(found: Findings, whom: str) -> Iterator[None]:
    try:
        yield
    except (AssertionError, LogError, sqlite3.Error) as error:
        found.wrong.append(f"{whom}: {error or type(error).__name__}")


def _whole(database: Path) -> None:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        said = connection.execute("PRAGMA integrity_check").fetchall()
    hold(said == [("ok",)], f"it is damaged: {said[:3]}")


class Log(Struct):
    """The log of one session, with the bytes that it refers to."""

    row: SessionRow
    entries: list[Transaction]
    sounds: dict[SampleRef, bytes]

    @classmethod
    async def read(cls, reader: SqliteReader, row: SessionRow) -> "Log":
        """Read it; raises a `LogError` if something of it is missing."""
        entries: list[Transaction] = []
        while batch := await reader.read(row.session, len(entries), BATCH):
            entries += batch
        refs = dict.fromkeys(ref for entry in entries for event in entry.events for ref in references(event))
        return cls(row, entries, {ref: await reader.samples.read(row.session, ref) for ref in refs if ref.size})


def references(value: object) -> Iterator[SampleRef]:
    """Give every place of the sample store that an event speaks of, however deep within."""
    if isinstance(value, SampleRef):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from references(one)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from references(getattr(value, name))


async def _check_log(log: Log, reader: SqliteReader) -> None:
    """Hold a log against itself."""
    entries, row = log.entries, log.row
    hold(entries, "nothing is recorded")
    hold(row.head == entries[-1].seq == len(entries), f"the index ends at {row.head}, the log at {entries[-1].seq}")
    terms = [entry.term for entry in entries]
    hold(terms == sorted(terms), "a record of an older term stands behind a newer one")
    hold(row.term >= terms[-1], "the index has an older term than the log")
    result = replay(entries)
    hold(result.identical, f"replay differs: {result.first_difference}")
    told = [event for entry in entries for event in entry.events if isinstance(event, ev.PublicEvent)]
    ends = [index for index, event in enumerate(told, 1) if isinstance(event, ev.SessionClosed)]
    hold(ends in ([], [len(told)]), f"it ends with {ends} of its {len(told)} public events")
    hold((row.state == "closed") == bool(ends), f"the index says that it is {row.state}")
    snapshot = await reader.load_snapshot(row.session)
    if snapshot is not None and snapshot.version == core.STATE_VERSION:
        folded = core.dump(core.fold(entries[: snapshot.seq]))
        hold(folded == snapshot.state, f"the snapshot at {snapshot.seq} is not what the log folds to")


def _check_client(journal: Journal, log: Log) -> None:
    """Hold what a client was told and said against the log."""
    hold(not journal.lost, f"the client lost its session: {journal.lost}")
    hold(journal.ending, "the session never ended for its client")
    _told(journal, log)
    _applied(journal, log)
    _written(journal, log)
    _heard(journal, log)


def _told(journal: Journal, log: Log) -> None:
    """Every message is the log's, once, in its order, and none is missing (P3, P49, P50, P52, P54)."""
    wire = WireMonitor(journal.session, journal.dialect, None)
    book = Ledger()
    for contact in journal.contacts:
        talk, line = Talk(), _Line()
        for frame in contact.frames:
            shown = read(frame)
            number = shown.server_event_seq
            repeats = number and not talk.last and number != contact.behind + 1
            hold(not repeats, f"P49: {number} came first behind {contact.behind}, which the client had")
            if shown.type in GRANTS:
                wire.talks.append(talk)
            wire.heard(line, talk, shown, frame, book)
            line.replaced |= shown.type == "session.replaced"
            book.last = max(book.last, shown.server_event_seq)
    wire.at_the_end(log.entries, log.sounds.__getitem__)
    heard = journal.ending == "heard"
    if journal.dialect == "duplex":
        given = journal.given
        hold(given == list(range(1, len(given) + 1)), f"{_odd(given)} was given where another was due")
        last = max(map(highest_number, log.entries))
        hold(given[-1:] == [last] if heard else len(given) <= last, f"given to {given[-1:]} of {last}")
        return
    places = [place for talk in wire.talks for place, text in talk.told if text]
    hold(places == sorted(set(places)), "a message came twice or out of order")


def _applied(journal: Journal, log: Log) -> None:
    """Every counted command was carried out, or refused, once, and under its own number (DESIGN 5.9)."""
    sent = journal.sent
    hold(not journal.changed, f"command {journal.changed[:1]} was sent again as another one")
    hold(sorted(sent) == list(range(1, len(sent) + 1)), "the client left a number out")
    counted = [
        event.client_seq
        for entry in log.entries
        for event in entry.events
        if isinstance(event, ev.CommandSequenced)
    ]
    hold(counted == list(range(1, len(counted) + 1)), f"command {_odd(counted)} was lost or counted twice")
    promised = max((read(frame).last_client_seq for one in journal.contacts for frame in one.frames), default=0)
    hold(promised <= len(counted), f"command {promised} was acknowledged, and the log ends at {len(counted)}")
    # The end of the session is its own proof; what is said behind it is for nobody.
    before = next(number for number, frame in sorted(sent.items()) if _said(frame).type == "session.close") - 1
    hold(len(counted) == before, f"{len(counted)} commands were carried out, {before} were sent")
    taken = Counter(
        entry.command.client_seq
        for entry in log.entries
        if isinstance(entry.command, cmd.ClientCommand) and entry.command.client_seq is not None
    )
    twice = [number for number, times in taken.items() if times > 1]
    hold(not twice, f"command {twice[:1]} was taken twice")


def _odd(counted: list[int]) -> int:
    return next((number for index, number in enumerate(counted, 1) if number != index), 0)


class _Said(Struct):
    type: str
    audio: str = ""
    item: dict[str, object] = {}
    client_seq: int = 0


_said = msgspec.json.Decoder(_Said).decode


def _written(journal: Journal, log: Log) -> None:
    """What was written stands in the conversation once, in the order of the writing.

    What was still held when the session ended (E33) does not.
    """
    asked: list[str] = []
    for _, frame in sorted(journal.sent.items()):
        said = _said(frame)
        if said.type == "conversation.item.create" and said.item.get("type") == "message":
            content = said.item["content"]
            assert isinstance(content, list)
            asked.append(str(content[0]["text"]))
    made = [
        _text(event.item)
        for entry in log.entries
        for event in entry.events
        if isinstance(event, ev.ItemCreated) and _text(event.item).startswith(LINE)
    ]
    held = [_text(command.item) for command in _held(log) if isinstance(command, cmd.CreateItem)]
    twice = [text for text, times in Counter(made).items() if times > 1]
    hold(not twice, f"{twice[:1]} was written twice")
    known = made == asked[: len(made)] and set(asked[len(made) :]) <= set(held)
    hold(known, f"of {len(asked)} lines {len(made)} were written, the first other one at {_part(made, asked)}")


def _held(log: Log) -> list[cmd.AnyCommand]:
    return [event.command for entry in log.entries for event in entry.events if isinstance(event, ev.CommandHeld)]


def _part(made: list[str], asked: list[str]) -> int:
    return next(
        (index for index, (one, other) in enumerate(zip(made, asked, strict=False)) if one != other), len(made)
    )


def _text(item: Item) -> str:
    parts = item.content if isinstance(item, Message) else ()
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _heard(journal: Journal, log: Log) -> None:
    """What was spoken is stored as it was sent, once, in its order; not looked at behind a resampler."""
    if journal.dialect != "duplex":
        return
    received = b"".join(
        log.sounds[event.ref]
        for entry in log.entries
        for event in entry.events
        if isinstance(event, ev.AudioReceived) and event.ref.size
    )
    at, left = 0, 0
    for _, frame in sorted(journal.sent.items()):
        said = _said(frame)
        if said.type == "input_audio_buffer.append":
            sound = pybase64.b64decode(said.audio)
            here = received.startswith(sound, at)  # no two pieces are alike: what is not here was not taken
            at += len(sound) * here
            left += not here
    hold(at == len(received), f"at byte {at} of what was heard stands what was not said there")
    refused = sum(_refuses(entry) for entry in log.entries)
    waiting = sum(isinstance(command, cmd.AppendAudio) for command in _held(log))
    hold(left <= refused + waiting, f"{left} pieces of sound are not stored, {refused} were refused")


def _refuses(entry: Transaction) -> int:
    return sum(isinstance(event, ev.ErrorReported | ev.InputDiscarded) for event in entry.events)


class _Line:
    """As much of a connection as the monitor asks for."""

    def __init__(self) -> None:
        self.replaced = False
