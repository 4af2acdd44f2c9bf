"""Two logs side by side: which entries are the same, where they part, and what is different from there on.

What only one of them can have is no difference: its names, its wall clock, its secrets. Behind the place where they
part, numbers that count what came before are none either.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec
from msgspec import Struct, field

from antiphon.events.commands import AppendAudio, OpenSession
from antiphon.events.events import AnyEvent, AudioReceived, CommandSequenced
from antiphon.events.log import Transaction

from .align import align
from .likeness import NAME, OWN, SHIFTING, Fields, fields_of, members_of

Value = object

_NAMELESS = frozenset({AudioReceived, CommandSequenced})
"""Events that name nothing; most of a log is of them, and needs no closer look."""


class Field(Struct, frozen=True):
    """A difference: where (`command.size`, `events[1] SpeechStopped.reason`), and both values as JSON.

    None: there is nothing at that place.
    """

    path: str
    a: str | None
    b: str | None


class Pair(Struct, frozen=True):
    """An entry of one log beside that of the other (None: it has none); without fields they say the same."""

    a: Transaction | None
    b: Transaction | None
    fields: tuple[Field, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both have it, and it says the same."""
        return self.a is not None and self.b is not None and not self.fields


class Comparison(Struct):
    """What comparing two logs found. `common` is how many entries they begin with that are the same.

    `shift_us` is the largest difference in time of entries that are the same, and `shift_seq` where (in the first).
    """

    pairs: list[Pair] = field(default_factory=list[Pair])
    common: int = 0
    shift_us: int = 0
    shift_seq: int = 0
    names: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def parting(self) -> Pair | None:
        """The first entry that is not the same."""
        return self.pairs[self.common] if self.common < len(self.pairs) else None

    @property
    def equal(self) -> bool:
        """Whether both say the same, whenever."""
        return self.parting is None

    def counterpart(self, name: str) -> str | None:
        """Return what the second log calls something of the first, None if it has no such thing."""
        return self.names.get(name)


def compare(a: Sequence[Transaction], b: Sequence[Transaction]) -> Comparison:
    """Compare two logs."""
    found = Comparison()
    matcher = _Matcher(session_of(a), session_of(b), found.names)
    while found.common < min(len(a), len(b)):
        pair = matcher.pair(a[found.common], b[found.common], OWN)
        if pair.fields:
            break
        _keep(found, pair)
        found.common += 1
    for one, other in align(a[found.common :], b[found.common :], matcher.a, matcher.b):
        if one is None or other is None:
            found.pairs.append(Pair(one, other))
        elif len(found.pairs) == found.common:
            _keep(found, matcher.pair(one, other, OWN))
        else:
            _keep(found, matcher.pair(one, other, OWN | SHIFTING))
    return found


def session_of(log: Sequence[Transaction]) -> str:
    """Return whose log it is, empty if it does not say."""
    first = log[0].command if log else None
    return first.session if isinstance(first, OpenSession) else ""


def _keep(found: Comparison, pair: Pair) -> None:
    found.pairs.append(pair)
    if pair.same and pair.a is not None and pair.b is not None:
        shift = pair.b.at - pair.a.at
        if abs(shift) > abs(found.shift_us):
            found.shift_us, found.shift_seq = shift, pair.a.seq


class _Matcher:
    """Compares entries; learns which names of one log stand for which of the other."""

    def __init__(self, a: str, b: str, names: dict[str, str]) -> None:
        self.a = a
        self.b = b
        self._forth = names
        self._back: dict[str, str] = {}

    def pair(self, one: Transaction, other: Transaction, passed_over: frozenset[str]) -> Pair:
        if one.events == other.events and one.command == other.command and _is_nameless(one):
            return Pair(one, other)
        fields = [
            *self._values(_plain(one.command), _plain(other.command), "command", passed_over),
            *self._events(one, other, passed_over),
        ]
        return Pair(one, other, tuple(fields))

    def _events(self, one: Transaction, other: Transaction, passed_over: frozenset[str]) -> Iterator[Field]:
        """Compare events with those of the same kind, in their order; the path is that in the first entry."""
        kinds, their_kinds = ([type(event).__name__ for event in entry.events] for entry in (one, other))
        for _, i, to_i, j, to_j in SequenceMatcher(None, kinds, their_kinds, autojunk=False).get_opcodes():
            mine, theirs = one.events[i:to_i], other.events[j:to_j]
            if kinds[i:to_i] == their_kinds[j:to_j]:
                for index, (event, counterpart) in enumerate(zip(mine, theirs, strict=True), i):
                    yield from self._values(_plain(event), _plain(counterpart), _path(index, event), passed_over)
                continue
            for index, event in enumerate(mine, i):
                yield Field(_path(index, event), _text(_plain(event)), None)
            for index, event in enumerate(theirs, j):
                yield Field(_path(index, event), None, _text(_plain(event)))

    def _values(self, mine: Value, theirs: Value, path: str, passed_over: frozenset[str]) -> Iterator[Field]:
        fields, their_fields = fields_of(mine), fields_of(theirs)
        members, their_members = members_of(mine), members_of(theirs)
        if fields is not None and their_fields is not None and fields.get("type") == their_fields.get("type"):
            yield from self._records(fields, their_fields, path, passed_over)
        elif members is not None and their_members is not None and len(members) == len(their_members):
            for index, (one, other) in enumerate(zip(members, their_members, strict=True)):
                yield from self._values(one, other, f"{path}[{index}]", passed_over)
        elif isinstance(mine, str) and isinstance(theirs, str):
            if not self._texts(mine, theirs):
                yield Field(path, _text(mine), _text(theirs))
        elif mine != theirs:
            yield Field(path, _text(mine), _text(theirs))

    def _records(self, mine: Fields, theirs: Fields, path: str, passed_over: frozenset[str]) -> Iterator[Field]:
        for name in dict.fromkeys([*mine, *theirs]):
            if name in passed_over:
                continue
            where = f"{path}.{name}"
            if name not in mine or name not in theirs:
                yield Field(where, _text(mine.get(name)), _text(theirs.get(name)))
            else:
                yield from self._values(mine[name], theirs[name], where, passed_over)

    def _texts(self, mine: str, theirs: str) -> bool:
        """Whether two texts say the same; a name stands for one name only."""
        if NAME.fullmatch(mine) and NAME.fullmatch(theirs):
            known, back = self._forth.get(mine), self._back.get(theirs)
            if known is None and back is None:
                self._forth[mine], self._back[theirs] = theirs, mine
                return True
            return known == theirs
        if mine == theirs:
            return True
        return self._whole(mine, self.a) == self._whole(theirs, self.b)

    def _whole(self, text: str, session: str) -> str:
        """Return a text without the names in it; a request's says which turn it is, but for the session."""
        rest = text.removeprefix(session) if session else text
        return rest if rest != text and (not rest or rest.startswith(".e")) else NAME.sub("", text)


def _is_nameless(entry: Transaction) -> bool:
    return isinstance(entry.command, AppendAudio) and all(type(event) in _NAMELESS for event in entry.events)


def _path(index: int, event: AnyEvent) -> str:
    return f"events[{index}] {type(event).__name__}"


def _plain(record: Struct) -> Value:
    plain: Value = msgspec.to_builtins(record)
    return plain


def _text(value: Value) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
