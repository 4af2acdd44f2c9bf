"""What must hold in a world at every step: of each log as it is decided, of each client as it hears (P1 to P58)."""

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct, field

from antiphon.engine.published import published
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import SampleRef
from antiphon.events.config import Dialect
from antiphon.events.log import Transaction, canonical, highest_number
from antiphon.sessions import core
from antiphon.sessions.ending import newest_answer
from antiphon.sessions.plugins import Registry
from antiphon.transport.wire_out import Form, Reader, form_of, project

from tests.sessions.watch import Before, Watch, a_deadline_stands, look

if TYPE_CHECKING:
    from .peer import Ledger, Shown
    from .store import Disk

ANSWERS = (cmd.StageAccepted, cmd.StageFinished, cmd.StageReleased, cmd.StageLost)
"""What says nothing the second time (P5)."""

GRANTS = ("session.created", "session.resumed")
"""What gives a connection its session; it comes before what was missed."""

OWN = ("session.created", "session.resumed", "session.replaced", "session.closed", "session.expired")
"""What is written for one connection."""

NOTICES = ("error", "session.resync_required", "session.going_away")
"""What may stand in no log."""


class LogMonitor:
    """Follows the log of one session, through every process that writes it."""

    def __init__(self, name: str, plugins: Registry) -> None:
        self.name = name
        self.plugins = plugins
        self.term = 0
        self.writer: object = None
        self.watch = Watch(plugins)
        self.before: Before = _start()
        self.dumps: list[int] = []
        """A checksum of the state behind each transaction."""
        self.durable = 0
        self.durable_term = 0
        self.taken: dict[int, int] = {}
        """By which transaction each attachment was made."""
        self.voided: set[int] = set()
        """Transactions whose sound a durable interruption has voided."""
        self._spoken: list[tuple[int, int]] = []
        self._voids: dict[int, int] = {}
        self.commands = 0
        self.events = 0

    def decided(self, transaction: Transaction, live: core.Session, disk: "Disk") -> None:
        """Hold a transaction against the rules; `live` is the session behind it, as its runner has it."""
        if transaction.term != self.term:
            self._take_over(transaction, disk)
        before = self.before
        again = core.decide(before.state, transaction.command, transaction.at, self.plugins)
        assert canonical(again) == canonical(transaction.events), "P2, P57: decided otherwise alone"
        self._step(before, live, transaction)
        self._twice(live, transaction)
        a_deadline_stands(live)
        self._once(before.state, transaction)
        self._cleared(live, transaction)
        if live.input.stream.held and transaction.seq % 4 == 0:
            self._at_once(live, transaction.at)
        self._voids[transaction.seq] = live.turn.voided
        self.commands += 1
        self.events += len(transaction.events)

    def _step(self, before: Before, live: core.Session, transaction: Transaction) -> None:
        self.watch.step(before, live, transaction)
        self.before = look(live, self.watch.seen)
        self.dumps.append(zlib.crc32(self.watch.seen))

    def _take_over(self, transaction: Transaction, disk: "Disk") -> None:
        """A new writer: it stands on what is durable, whatever another had decided beyond that (P6)."""
        assert transaction.term > self.term, "A20: an older term writes"
        self.term = transaction.term
        recorded = disk.recorded(self.name)
        if len(recorded) == len(self.dumps):
            return
        self.watch, self.before, self.dumps = Watch(self.plugins), _start(), []
        session = core.new()
        for known in recorded:
            for event in known.events:
                core.evolve(session, event, known.at)
            self._step(self.before, session, known)

    def _twice(self, live: core.Session, transaction: Transaction) -> None:
        """What has been answered is not answered again (P5), and a repeated acknowledgement is none (P40)."""
        command = transaction.command
        if isinstance(command, ANSWERS):
            assert not core.decide(live, command, transaction.at, self.plugins), "P5: an answer counts twice"
        elif isinstance(command, cmd.AckPlayback) and command.client_seq is None:
            for event in core.decide(live, command, transaction.at, self.plugins):
                assert not isinstance(event, ev.HistoryCut), "P40: the same acknowledgement cuts again"

    def _cleared(self, live: core.Session, transaction: Transaction) -> None:
        """What was cleared might never have been sent (P33)."""
        if isinstance(transaction.events[-1], ev.InputCleared):
            taken = live.input
            assert taken.start == taken.position, "P33: sound is left of what was cleared"
            assert taken.phase == "silent", "P33: somebody still speaks"
            left = taken.text or taken.stream.queue or taken.item_id
            assert not left, "P33: a turn is left of what was cleared"

    def _at_once(self, live: core.Session, now: int) -> None:
        """What stops an answer does not wait behind what waits (P58)."""
        if live.phase != "open" or not live.lease.attached:
            return
        attachment = live.lease.attachment
        for command in (cmd.CancelInput(attachment=attachment), cmd.CloseSession(control_id="now")):
            after = core.load(core.dump(live))
            for event in core.decide(live, command, now, self.plugins):
                core.evolve(after, event, now)
            assert newest_answer(after) is None, f"P58: {type(command).__name__} waits"

    def _once(self, before: core.Session, transaction: Transaction) -> None:
        """A counted command is carried out under its own number (DESIGN 5.9); the clients here name it by that."""
        command = transaction.command
        if isinstance(command, cmd.ClientCommand) and command.client_seq is not None:
            assert command.client_seq > before.lease.client_seq, "5.9: a command counts twice"
            named = command.event_id or f"c{command.client_seq}"
            assert named == f"c{command.client_seq}", "5.9: carried out under another number"

    def recorded(self, transaction: Transaction) -> None:
        """It is durable: from here on it may be seen."""
        assert transaction.term >= self.durable_term, "A20: a record of an older term behind a newer one"
        self.durable_term = transaction.term
        self.durable = max(self.durable, highest_number(transaction))
        for event in transaction.events:
            if isinstance(event, ev.SessionResumed):
                self.taken[event.attachment] = transaction.seq

    def told(self, transaction: Transaction) -> None:
        """Its process knows that it is durable: sound that it voids leaves no more (DESIGN 5.11)."""
        for event in transaction.events:
            if isinstance(event, ev.AudioDelta) and not event.aside:
                self._spoken.append((transaction.seq, event.epoch))
        void = self._voids.pop(transaction.seq, 0)
        if self._spoken and self._spoken[0][1] < void:
            self.voided.update(seq for seq, epoch in self._spoken if epoch < void)
            self._spoken = [(seq, epoch) for seq, epoch in self._spoken if epoch >= void]

    def replaced_at(self, attachment: int) -> int | None:
        """Return the transaction that gave the session to another connection, None if none did."""
        return min((seq for number, seq in self.taken.items() if number > attachment), default=None)

    def from_the_beginning(self, log: list[Transaction]) -> None:
        """Fold every prefix of the log from the empty state (P1)."""
        for end in range(1, len(log) + 1):
            state = core.fold(log[:end])
            assert zlib.crc32(core.dump(state)) == self.dumps[end - 1], "P1: a prefix folds to another state"


def _start() -> Before:
    session = core.new()
    return look(session, core.dump(session))


class Talk(Struct):
    """What one connection was told, in order: the place of each message in the log, and a checksum of it."""

    last: int = 0
    ended: bool = False
    resync: bool = False
    attachment: int = 0
    start: tuple[int, int, int] = (0, 0, 0)
    """The place behind which its client came back."""
    place: tuple[int, int, int] = (0, 0, 0)
    told: list[tuple[tuple[int, int, int], int]] = field(default_factory=list[tuple[tuple[int, int, int], int]])
    open: set[str] = field(default_factory=set[str])
    done: set[str] = field(default_factory=set[str])


class Replaceable(Protocol):
    """A connection, or as much of one as is asked for."""

    @property
    def replaced(self) -> bool:
        """Whether it was told that another one has the session."""
        ...


class WireMonitor:
    """Follows what the clients of one session are told, over all their connections."""

    def __init__(self, session: str, dialect: Dialect, log: LogMonitor | None) -> None:
        self.session = session
        self.dialect: Dialect = dialect
        self.log = log
        self.texts: dict[int, int] = {}
        """A checksum of the message of each number."""
        self.talks: list[Talk] = []

    def heard(self, line: Replaceable, talk: Talk, shown: "Shown", data: bytes, book: "Ledger") -> None:
        """Hold a message against the rules."""
        assert not talk.ended, f"P54: {shown.type} behind the end"
        assert not line.replaced, f"P52: {shown.type} behind session.replaced"
        talk.ended = shown.type in ("session.closed", "session.expired")
        talk.resync |= shown.type == "session.resync_required"
        talk.attachment = shown.attachment_generation if shown.type in GRANTS else talk.attachment
        self._place(talk, shown, data)
        self._responses(talk, shown)
        if shown.server_event_seq:
            self._number(talk, shown, data, book)

    def _place(self, talk: Talk, shown: "Shown", data: bytes) -> None:
        """What stands in the log comes in its order, and only to whom it was meant for (P3, P43)."""
        known = ids.parse_event_id(shown.event_id)
        assert known is not None, f"WIRE 3.1: an id that nobody can read: {shown.event_id}"
        place = (known.seq, known.index, known.part)
        seen = ids.last_seen(shown.event_id)
        if shown.resumed and seen is not None:
            talk.start = talk.place = (seen.seq, seen.index, seen.part)
            return
        if seen != known:
            assert shown.type in NOTICES, f"P3: {shown.type} stands in no log"
            return
        if shown.type not in GRANTS:
            assert place > talk.place, f"P3: {shown.type} comes out of order"
            talk.place = place
        talk.told.append((place, 0 if shown.type in OWN or shown.delta == "" else zlib.crc32(data)))
        if self.log is not None and talk.attachment:
            until = self.log.replaced_at(talk.attachment)
            assert until is None or known.seq <= until, f"P43: {shown.type} for a connection that is not current"

    def _number(self, talk: Talk, shown: "Shown", data: bytes, book: "Ledger") -> None:
        number = shown.server_event_seq
        assert self.log is None or number <= self.log.durable, "P3: told before it was durable"
        if talk.last:
            assert number == talk.last + 1 or talk.resync, f"P49, P50: {number} behind {talk.last}"
        else:
            assert number <= book.last + 1 or talk.resync or book.forgiven, f"P49: {number}, {book.last} was seen"
        talk.last = number
        if shown.delta != "" and shown.type not in OWN:
            text = zlib.crc32(data)
            assert self.texts.setdefault(number, text) == text, f"P49: message {number} is another one than before"

    def _responses(self, talk: Talk, shown: "Shown") -> None:
        """Hold the life of responses to P16 and P17, per connection: what was missed is not known to it."""
        if shown.type == "response.created" and shown.response is not None:
            key = str(shown.response["id"])
            assert key not in talk.open, "P16: created twice"
            talk.open.add(key)
        elif shown.type == "response.done" and shown.response is not None:
            key = str(shown.response["id"])
            assert key not in talk.done, "P16: a second terminal"
            talk.done.add(key)
        elif shown.response_id is not None and shown.type.startswith("response."):
            assert shown.response_id not in talk.done, f"P17: {shown.type} behind the terminal"

    def at_the_end(self, log: list[Transaction], sound: Callable[[SampleRef], bytes]) -> None:
        """Hold all that was told against what the log says that it is (P49)."""
        reader = Reader(session=self.session, form=self._form(log), attachment=len(log))
        expected: dict[tuple[int, int, int], int] = {}
        for transaction in log:
            refs = [event.ref for event in transaction.events if isinstance(event, ev.AudioDelta)]
            entry = published(transaction, {ref: sound(ref) for ref in refs})
            for message in project(entry, reader, 0):
                known = ids.parse_event_id(_head(message.data).event_id)
                assert known is not None
                expected[known.seq, known.index, known.part] = zlib.crc32(message.data)
        numbered = self.dialect == "duplex"
        sounds = set[tuple[int, int]]() if numbered else _sounds(log)
        for talk in self.talks:
            for place, text in talk.told:
                if not text or place[:2] in sounds:
                    continue
                assert place in expected, f"P49: {place} is not in the log"
                same = talk.resync or text == expected[place]
                assert same, f"P49: what was told of {place} is not what the log says"
            if not numbered and talk.told:
                last = max(place for place, _ in talk.told)
                due = {place for place in expected if talk.start < place < last and place[:2] not in sounds}
                missing = due - {place for place, _ in talk.told}
                assert not missing, f"P49: {sorted(missing)} never came"

    def _form(self, log: list[Transaction]) -> Form:
        command = log[0].command
        assert isinstance(command, cmd.OpenSession)
        return form_of(self.dialect, resumable=command.token_digest is not None)


def _sounds(log: list[Transaction]) -> set[tuple[int, int]]:
    """Return the places of sound: without numbers it is left out when its epoch is dead (DESIGN 5.11)."""
    return {
        (entry.seq, index)
        for entry in log
        for index, event in enumerate(entry.events)
        if isinstance(event, ev.AudioDelta)
    }


class _Head(Struct):
    event_id: str


_head = msgspec.json.Decoder(_Head).decode
