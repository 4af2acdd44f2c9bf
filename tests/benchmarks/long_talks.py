"""Stores with long conversations in them, made by the engine with a clock that is moved.

One conversation of each kind is held; the others of a store are the same records under other ids, in the order in
which a server would have written them.
"""

import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import anyio.lowlevel
from talkers import SOUND

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.datadir import DataDirectory
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Opening
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog, Writer
from antiphon.engine.sqlite_schema import Durability, checksum, connect_writer
from antiphon.engine.sqlite_writer import Row, SqliteWriter
from antiphon.engine.tokens import digest, token
from antiphon.events.commands import AckPlayback, CommitInput
from antiphon.events.config import ConfigPatch
from antiphon.events.log import Snapshot
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage

FRAME_MS = 80
TURN_MS = 10_000
"""In a conversation of turns the user speaks for half of this and hears the answer for the other half."""

ACK_EVERY = 6
SPREAD = 2_000
TOGETHER = 4
PLACES = "(?, ?, ?, ?, ?, ?, ?)"
SPREAD = 2_000
TOGETHER = 4
KILLED = HubSettings(shutdown_ms=1)


class Kept(NamedTuple):
    """What a store held of one conversation: its records (at, number, data, sound), and every snapshot of it."""

    session: str
    secret: bytes
    records: list[tuple[int, int, bytes, bytes | None]]
    snapshots: list[Snapshot]
    samples: Path
    """Where its sound is, as long as its folder is there."""


SnapshotRow = tuple[int, int, int, int, bytes]
"""Key, seq, version, crc, state."""

Talk = Callable[[Hub, VirtualClock, Attachment, int], Awaitable[None]]


async def frames(hub: Hub, clock: VirtualClock, here: Attachment, seconds: int) -> None:
    """A model that plays back every frame of 80 ms when it comes, all the time."""
    for n in range(seconds * 1000 // FRAME_MS):
        here.append(AppendRequest(data=SOUND))
        await _pass(hub, clock)
        if n % ACK_EVERY == 0:
            _acknowledge(here, n * FRAME_MS)


async def turns(hub: Hub, clock: VirtualClock, here: Attachment, seconds: int) -> None:
    """Five seconds of speech, committed; five seconds of an answer, which is played."""
    half = TURN_MS // 2 // FRAME_MS
    for _ in range(seconds * 1000 // TURN_MS):
        for _ in range(half):
            here.append(AppendRequest(data=SOUND, speech=True))
            await _pass(hub, clock)
        here.send(CommitInput(attachment=here.generation, create_response=True))
        for n in range(half + 1):
            await _pass(hub, clock)
            if n % ACK_EVERY == 0 or n == half:
                _acknowledge(here, n * FRAME_MS)


TALKS: dict[str, tuple[Talk, ConfigPatch]] = {
    "frames": (frames, ConfigPatch(auto_response=True)),
    "turns": (turns, ConfigPatch()),
}


class Remembering(SqliteLog):
    """Remembers every snapshot, where the store keeps the last."""

    def __init__(self, data: DataDirectory, writer: SqliteWriter, where: Writer, durability: Durability) -> None:
        super().__init__(data, writer, where, durability)
        self.snapshots: list[Snapshot] = []

    async def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        """Keep it."""
        self.snapshots.append(snapshot)
        await super().save_snapshot(session, snapshot)


async def talk(folder: Path, kind: str, seconds: int) -> Kept:
    """Hold a conversation in a data directory whose process is then gone."""
    clock = VirtualClock()
    held, patch = TALKS[kind]
    with DataDirectory(folder) as data:
        log = await Remembering.open(data, writer="inline")
        assert isinstance(log, Remembering)
        async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, KILLED, clock, data.secret) as hub:
            here = await hub.open(Opening(dialect="duplex", control_id="open", patch=patch))
            here.heard()
            await held(hub, clock, here, seconds)
            await log.aclose()  # what the hub says at its end is not recorded
        with closing(sqlite3.connect(data.paths.database)) as connection:
            records = connection.execute("SELECT at, number, data, sound FROM records ORDER BY seq").fetchall()
    return Kept(here.session, data.secret, records, log.snapshots, data.paths.samples)


async def _pass(hub: Hub, clock: VirtualClock) -> None:
    """Let time pass, and wait until everything that was said is recorded."""
    clock.advance(FRAME_MS * 1000)
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    while (now := hub.statistics()).ahead or now.backlog:
        await anyio.lowlevel.checkpoint()


def _acknowledge(here: Attachment, played_ms: int) -> None:
    """Say what was played, and that the events have come."""
    here.acknowledge(here.feed.number)
    here.send(AckPlayback(attachment=here.generation, played_ms=played_ms))


class Copied:
    """One session of a store: a conversation under another id, cut where its process was killed."""

    def __init__(self, kept: Kept, secret: bytes, key: int, head: int) -> None:
        self.name = kept.session[:-32] + secrets.token_hex(16)
        self.head = head
        self._kept = kept
        self._key = key
        before = digest(token(kept.secret, kept.session, 1))
        self._other = (
            (kept.session.encode(), self.name.encode()),
            (before.encode(), digest(token(secret, self.name, 1)).encode()),
        )

    def link_sound(self, samples: Path) -> None:
        """Let it have the conversation's sound; that takes no room."""
        for file in self._kept.samples.glob(f"{self._kept.session}.*"):
            (samples / file.name.replace(self._kept.session, self.name)).hardlink_to(file)

    def records(self, begin: int, end: int) -> Iterator[Row]:
        """Give the rows behind `begin` up to `end`."""
        for seq, (at, number, data, sound) in enumerate(self._kept.records[begin : min(end, self.head)], begin + 1):
            renamed = self._renamed(data)
            yield self._key, seq, at, number, checksum(renamed, seq, sound), renamed, sound

    def snapshot(self) -> SnapshotRow | None:
        """Return the row of its last snapshot."""
        known = [snapshot for snapshot in self._kept.snapshots if snapshot.seq <= self.head]
        if not known:
            return None
        state = self._renamed(known[-1].state)
        return self._key, known[-1].seq, known[-1].version, checksum(state, known[-1].seq), state

    def _renamed(self, data: bytes) -> bytes:
        for old, new in self._other:
            data = data.replace(old, new)
        return data


def fill(folder: Path, talks: Sequence[Kept], sessions: int, *, snapshots: bool = True) -> list[str]:
    """Write a store of as many sessions, the conversations taking turns; return their names.

    Their process was killed: each session ends at another place of its last `SPREAD` records. Their records lie
    between each other as a server writes them, `TOGETHER` of each at a time.
    """
    with DataDirectory(folder) as data, closing(connect_writer(data.paths.database, "normal")) as connection:
        copies = [
            Copied(kept, data.secret, n + 1, len(kept.records) - n * SPREAD // sessions)
            for n, kept in enumerate(talks[n % len(talks)] for n in range(sessions))
        ]
        connection.execute("PRAGMA journal_mode = OFF")  # it need not survive anything before it is whole
        wall_us = VirtualClock().wall_us()
        for copy in copies:
            copy.link_sound(data.paths.samples)
            connection.execute(
                "INSERT INTO sessions (session, term, kind, state, dialect, model, plugin, plugin_version,"
                " opened_us) VALUES (?, 1, 'voice', 'open', 'duplex', 'antiphon', ?, ?, ?)",
                (copy.name, ECHO.name, ECHO.version, wall_us),
            )
        (index,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'records_by_session'").fetchone()
        connection.execute("DROP INDEX records_by_session")  # made at the end, in half the time
        for begin in range(0, max(copy.head for copy in copies), TOGETHER):
            rows = (row for copy in copies for row in copy.records(begin, begin + TOGETHER))
            connection.execute("BEGIN")
            connection.executemany(
                f"INSERT INTO records (key, seq, at, number, crc, data, sound) VALUES {PLACES}", rows
            )
            connection.execute("COMMIT")
        connection.execute(index)
        if snapshots:
            save(connection, [row for row in (copy.snapshot() for copy in copies) if row is not None])
        connection.execute("PRAGMA journal_mode = WAL")
    return [copy.name for copy in copies]


def save(connection: sqlite3.Connection, snapshots: Sequence[SnapshotRow]) -> None:
    """Write snapshots in place of all that are there."""
    connection.execute("DELETE FROM snapshots")
    connection.executemany(
        "INSERT INTO snapshots (key, seq, version, crc, state) VALUES (?, ?, ?, ?, ?)", snapshots
    )
