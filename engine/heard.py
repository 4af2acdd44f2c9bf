"""When answers were heard: the log is folded, and the core's own playout model is read off (DESIGN 5.10)."""

from msgspec import Struct, field

from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.state import Playout

from .faults import FAULTS

_SILENT = (
    ev.AudioReceived,
    ev.CommandSequenced,
    ev.ActivityNoted,
    ev.SessionTouched,
    ev.OverlapDecided,
    ev.UnitTaken,
    ev.UnitsAccepted,
)
"""What moves no playback, and is most of a log."""

_OWN = (ev.AudioDelta, ev.PlaybackAcknowledged)
"""What moves that of its own answer only."""

ROUNDING_US = 1_000
"""The model counts in milliseconds: a pause that is shorter is none."""


class Run(Struct):
    """A stretch of an answer that plays without a pause: from `from_us` to `to_us` of its sound, begun at `at_us`.

    Times are session time. Nothing of it is heard behind `until_us`: delivery was held there, or it was cut.
    """

    at_us: int
    from_us: int
    to_us: int
    until_us: int | None = None


class _Answer(Struct):
    """What is followed of one answer: its runs, and how the core saw it last."""

    runs: list[Run] = field(default_factory=list[Run])
    started: int | None = None
    there_us: int = 0
    """How much of it can have been heard: what was sent while somebody was there."""
    open: bool = False


class Heard:
    """Follows a log from its beginning, and knows when each answer was heard that nobody acknowledged.

    That is what the playout model says: sound plays from when it can be heard, behind what plays already, stands
    still while delivery is held or nobody is there, and ends where an interruption cut it. What is acknowledged has
    better times: those of the acknowledgements. `lost`: the log is not one that was decided, and from
    some entry on there is no state to read it off.
    """

    def __init__(self) -> None:
        self._session = core.new()
        self._answers: dict[str, _Answer] = {}
        self._going: set[str] = set()
        self._over = False
        self.lost = False

    def take(self, transaction: Transaction) -> None:
        """Fold the next transaction."""
        if self._over or self.lost:
            return
        try:
            for event in transaction.events:
                core.evolve(self._session, event, transaction.at)
        except FAULTS:  # nobody decided this log
            self.lost = True
            return
        if all(isinstance(event, (*_SILENT, *_OWN)) for event in transaction.events):
            for event in transaction.events:
                if isinstance(event, _OWN):
                    self._look_at(event.response_id, transaction.at)
            return
        self._look(transaction.at)
        if any(isinstance(event, ev.SessionClosing | ev.SessionClosed) for event in transaction.events):
            self._over = True
            for answer in self._answers.values():
                _stop(answer, transaction.at)

    def runs(self, response_id: str) -> list[Run]:
        """Return when an answer was heard so far; of a session that goes on, what was sent is taken to play on."""
        answer = self._answers.get(response_id)
        if answer is None:
            return []
        if answer.open:
            answer.runs[-1].to_us = max(answer.there_us, answer.runs[-1].from_us)
        return [run for run in answer.runs if run.to_us > run.from_us]

    def _look(self, now: int) -> None:
        for response_id in dict.fromkeys((*self._going, *self._session.playouts)):
            self._look_at(response_id, now)

    def _look_at(self, response_id: str, now: int) -> None:
        playout, answer = self._session.playouts.get(response_id), self._answers.get(response_id)
        if playout is not None and (answer is not None or playout.sent):
            answer = self._answers.setdefault(response_id, _Answer())
            _follow(answer, playout, now)
        elif answer is not None:
            _stop(answer, now)
        if answer is not None:
            (self._going.add if answer.open else self._going.discard)(response_id)


def _follow(answer: _Answer, playout: Playout, now: int) -> None:
    plays = playout.started is not None and playout.paused is None and playout.cap_ms is None
    if answer.open and (not plays or playout.started != answer.started):
        _stop(answer, now)
    there = playout.sent_ms if playout.reached is None else playout.reached
    answer.there_us = there * 1000
    if plays and not answer.open and playout.started is not None:
        _start(answer, playout.started)
    answer.started = playout.started
    if playout.cap_ms is not None:
        _cut(answer, playout.cap_ms * 1000, told=playout.cap_basis != "playout")


def _start(answer: _Answer, started: int) -> None:
    """Let it play on where it stopped, which the model knows in whole milliseconds only after a resume."""
    last = answer.runs[-1] if answer.runs else Run(started, 0, 0)
    begin = started + last.to_us
    if answer.runs and begin - (last.at_us + last.to_us - last.from_us) < ROUNDING_US:
        last.until_us = None
    else:
        answer.runs.append(Run(begin, last.to_us, last.to_us))
    answer.open = True


def _stop(answer: _Answer, now: int) -> None:
    """What plays stands still at `now`, or has come to its end before."""
    if not answer.open:
        return
    run = answer.runs[-1]
    run.to_us = max(run.from_us, min(now - run.at_us + run.from_us, answer.there_us))
    run.until_us = max(now, run.at_us)
    answer.open = False


def _cut(answer: _Answer, cap_us: int, *, told: bool) -> None:
    """Let what was heard end there. `told`: by somebody who knows; it may be more than the model thought."""
    for run in answer.runs:
        run.to_us = min(run.to_us, cap_us)
    last = next((run for run in reversed(answer.runs) if run.to_us > run.from_us), None)
    if told and last is not None and cap_us > last.to_us:
        last.to_us, last.until_us = cap_us, None
