"""From an older layout of the embedded store to the present one, a step at a time."""

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

from antiphon.events.log import Unavailable

_log = structlog.get_logger()


class _Opening(Struct):
    """What the first event of a session said of its plugin, in every layout."""

    plugin: str = ""
    plugin_version: str = ""


class _First(Struct):
    """The first record of a session, as far as a step reads it."""

    events: tuple[_Opening, ...] = ()


_first = msgspec.msgpack.Decoder(_First)


def _name_plugins(connection: sqlite3.Connection) -> None:
    """1 → 2: the index says which plugin a session needs; it stands in the session's first event."""
    connection.execute("ALTER TABLE sessions ADD COLUMN plugin TEXT")
    connection.execute("ALTER TABLE sessions ADD COLUMN plugin_version TEXT")
    firsts = connection.execute("SELECT key, data FROM records WHERE seq = 1").fetchall()
    for key, data in firsts:
        try:
            events = _first.decode(data).events
        except msgspec.DecodeError:
            continue  # a damaged record: whoever reads the session is told
        if events:
            connection.execute(
                "UPDATE sessions SET plugin = ?, plugin_version = ? WHERE key = ?",
                (events[0].plugin, events[0].plugin_version, key),
            )
    connection.execute(
        "UPDATE sessions SET plugin = coalesce(plugin, ''), plugin_version = coalesce(plugin_version, '')"
        " WHERE state IS NOT NULL"
    )


def _guard_sound(connection: sqlite3.Connection) -> None:
    """2 → 3: a record says where the bytes lie that were written with it, and the index what was imported."""
    connection.execute("ALTER TABLE records ADD COLUMN sound BLOB")
    connection.execute("ALTER TABLE sessions ADD COLUMN imported INTEGER NOT NULL DEFAULT 0")


STEPS: Mapping[int, Callable[[sqlite3.Connection], None]] = {1: _name_plugins, 2: _guard_sound}
"""What brings a layout to the next one. A step looks at nothing but the database, and never changes again."""


def bring_up(connection: sqlite3.Connection, path: Path, layout: int, present: int) -> None:
    """Bring the database from `layout` to the `present` one: all steps or none. What it was stays beside it.

    Raises:
        Unavailable: there is no room for the copy, or the steps cannot be carried out; nothing has changed.
    """
    kept = path.with_name(f"{path.stem}.layout{layout}{path.suffix}")
    _log.warning("the log is brought to another layout", path=str(path), layout=layout, to=present, kept=str(kept))
    try:
        _copy(connection, kept)
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in range(layout, present):
                STEPS[step](connection)
            connection.execute(f"PRAGMA user_version = {present}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(
            f"{path} has layout {layout} and cannot be brought to layout {present}: {error}; nothing was changed; "
            f"it needs room for a copy of the log ({path.stat().st_size / 1e6:,.0f} MB)"
        ) from error


def _copy(connection: sqlite3.Connection, kept: Path) -> None:
    """Keep a copy of the database, with what stands in its write-ahead log; whole or not at all."""
    draft = kept.with_name(f".{kept.name}.new")
    draft.unlink(missing_ok=True)
    try:
        copy = sqlite3.connect(draft)
        try:
            connection.backup(copy)
        finally:
            copy.close()
        draft.replace(kept)
    finally:
        draft.unlink(missing_ok=True)
