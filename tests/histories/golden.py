"""A golden log as a file: what is written of a scene, and read again."""

import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct

from antiphon.events.log import BEHAVIOUR, Transaction, from_json, to_json
from antiphon.sessions import core
from antiphon.sessions.plugins import REGISTRY, Registry

from .scene import Scene, scenes
from .telling import told

FOLDER = Path(__file__).parent
WIRE = FOLDER / "wire"
BROKEN = FOLDER / "refused"
OLD = FOLDER / "old"
UNSHIPPED = FOLDER / "unshipped"

PLUGINS: Registry = {**REGISTRY, **{scene.plugin.name: scene.plugin for scene in scenes().values()}}
"""The shipped models, and those of tests."""


def home(scene: Scene) -> Path:
    """Return the file of a scene; those of models that are not shipped lie apart: only tests replay them."""
    return (FOLDER if scene.plugin.name in REGISTRY else UNSHIPPED) / f"{scene.name}.jsonl"


class Header(Struct, frozen=True, kw_only=True):
    """The first line: that of an exported log, what happens in it, and what the state is behind it.

    `state` is the digest of the folded state, as version `state_version` of it is encoded.
    """

    antiphon_log: int = 1
    behaviour: int
    scenario: str
    session: str
    plugin: str
    plugin_version: str
    transactions: int
    state_version: int
    state: str


class Golden(Struct, frozen=True):
    """A log, as it was read."""

    header: Header
    log: list[Transaction]
    lines: list[bytes]


class Recording(Struct, frozen=True):
    """What is written of a scene: the lines of its log, and the messages of it."""

    log: str
    wire: str


def digest(log: list[Transaction]) -> str:
    """Return the digest of the state that a log gives."""
    return hashlib.sha256(core.dump(core.fold(log))).hexdigest()[:16]


def read(path: Path) -> Golden:
    """Read a golden log."""
    first, *lines = path.read_bytes().splitlines()
    return Golden(msgspec.json.decode(first, type=Header), [from_json(line) for line in lines], lines)


def written(log: list[Transaction], says: str) -> str:
    """Return the lines of a log."""
    session = core.fold(log)
    header = Header(
        behaviour=BEHAVIOUR,
        scenario=says,
        session=session.id,
        plugin=session.plugin,
        plugin_version=session.plugin_version,
        transactions=len(log),
        state_version=core.STATE_VERSION,
        state=digest(log),
    )
    lines = [msgspec.json.encode(header), *(to_json(transaction) for transaction in log)]
    return "".join(f"{line.decode()}\n" for line in lines)


def recorded(scene: Scene) -> Recording:
    """Play a scene; return what is written of it."""
    logs = scene.place().record(scene.play)
    log = list(logs.values())[scene.session]
    return Recording(written(log, scene.says), told(log))
