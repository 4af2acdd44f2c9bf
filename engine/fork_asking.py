"""What the stages are asked in a fork, and what was said to the same question in its origin."""

from msgspec import Struct, field
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events.ids import parse_request
from antiphon.stages.base import AnyReport

from .fork_edits import Edits
from .fork_names import Names
from .fork_origin import Asked, Given, Origin, Said
from .fork_same import Sounds, question

UNANSWERED = "no_recorded_answer"
NOT_ASKED = "Nothing was recorded that answers this; name a pipeline to have it answered."
CUT = "What was recorded ends here: it was interrupted then."

_ENDS = (cmd.StageFinished, cmd.StageFailed, cmd.StageLost, cmd.StageReleased, cmd.StageSegmentFinished)


class Held(Struct):
    """A request of the fork: what it was given, and the one of the origin that was asked the same so far.

    `parted`: it was given something else, or there is none. `assumed`: it was asked otherwise, and what was said
    then shall do. `live`: a stage works on it, from unit `since` on.
    """

    name: str
    origin: Asked | None = None
    inputs: list[Given] = field(default_factory=list[Given])
    parted: bool = False
    assumed: bool = False
    live: bool = False
    since: int = 0

    @property
    def resident(self) -> bool:
        """Whether it listens on, unit by unit."""
        return _resident(self.inputs[0].effect)

    def questions(self, given: Given) -> list[fx.AnyEffect]:
        """Return what a live stage must be told now: the first time all that the request was given so far."""
        if given.effect is None:
            return [fx.AbortRequests(requests=(self.name,))]
        if self.live:
            return [given.effect]
        self.live = True
        self.since = given.effect.operation if isinstance(given.effect, fx.FeedStage) else 0
        return [known.effect for known in self.inputs if known.effect is not None]

    def answered(self, question: fx.AnyEffect) -> bool:
        """Whether a question was answered before a live stage took over: it is only told what was there."""
        match question:
            case fx.SubmitToStage():
                return self.since > 0
            case fx.FeedStage(operation=operation):
                return operation < self.since
            case _:
                return False


class Asking:
    """Every request of the fork beside that of the origin.

    `assumes`: what was said in the same turn shall do, although it was asked otherwise.
    """

    def __init__(self, origin: Origin, names: Names, sounds: Sounds, *, assumes: bool) -> None:
        self._assumes = assumes
        self.requests: dict[str, Held] = {}
        self._origin = origin
        self._names = names
        self._sounds = sounds
        self._outputs: dict[str, dict[int, list[Said]]] = {}
        self._questions: dict[bytes, list[Asked]] = {}

    def settle(self, edits: Edits) -> None:
        """Take the edits of what stages said; from here on it is known what answers what."""
        for asked in self._origin.requests.values():
            said = [known for known in asked.outputs if known.seq is None or not edits.gone(known.seq)]
            said += [known for known in edits.said if known.command.request == asked.name]
            by_cause = self._outputs.setdefault(asked.name, {})
            for known in said:
                by_cause.setdefault(known.cause, []).append(known)
            first = asked.inputs[0].effect if asked.inputs else None
            if isinstance(first, fx.SubmitToStage) and not self._names.paired(asked.name):
                self._questions.setdefault(question(first), []).append(asked)

    def pending(self, held: Held, since: int) -> list[Said]:
        """Return what was said from transaction `since` on, to what a request has been given."""
        if held.origin is None:
            return []
        outputs = self._outputs[held.origin.name]
        return [
            said
            for cause, known in outputs.items()
            if cause < len(held.inputs)
            for said in known
            if said.order >= (since, 0) or said.edited
        ]

    def again(self, name: str, given: Given) -> None:
        """Give a request what was given to that of the origin, which has the same name but for the session."""
        held = self.requests.setdefault(name, Held(name))
        held.inputs.append(given)
        if held.origin is None:
            theirs = self._origin.session + name.removeprefix(self._names.fork)
            held.origin = self._origin.requests.get(theirs)
            self._names.pair(theirs, name)

    def give(self, name: str, given: Given) -> Held:
        """Give a request something new. It has `parted` if the origin's was given something else."""
        held = self.requests.setdefault(name, Held(name))
        held.inputs.append(given)
        index = len(held.inputs) - 1
        if index == 0 and isinstance(given.effect, fx.SubmitToStage):
            held.origin = self._same_question(name, given.effect)
            if held.origin is None and self._assumes:
                held.origin = self._same_turn(name, given.effect)
                held.assumed = held.origin is not None
        theirs = held.origin.inputs if held.origin is not None else []
        same = index < len(theirs) and ((held.assumed and index == 0) or self._same(theirs[index], given))
        held.parted = held.parted or not same
        return held

    def answers(self, held: Held, index: int) -> list[Said]:
        """Return what was said to input `index`."""
        return [] if held.origin is None else self._outputs[held.origin.name].get(index, [])

    def later_by(self, held: Held, index: int) -> int:
        """Return by how much input `index` is later than in the origin (µs)."""
        assert held.origin is not None
        return held.inputs[index].at - held.origin.inputs[index].at

    def cut_at(self, held: Held) -> int | None:
        """Return when the recorded answer breaks off, because it was called off then; None: it does not.

        Not before the time at which it was called off: what did that may come again.
        """
        asked = held.origin
        if asked is None or len(held.inputs) != 1 or len(asked.inputs) < 2 or held.resident:
            return None
        if any(isinstance(said.command, _ENDS) for said in self.answers(held, 0)):
            return None
        return asked.inputs[1].at + max(self.later_by(held, 0), 0)

    def _same_question(self, name: str, effect: fx.SubmitToStage) -> Asked | None:
        """Return the request of the origin that asked the same, if any; best the one of the same number."""
        known = [
            asked
            for asked in self._questions.get(question(effect, self._sounds), [])
            if not self._names.paired(asked.name)
        ]
        if not known:
            return None
        rest = name.removeprefix(self._names.fork)
        found = next((asked for asked in known if asked.name == self._origin.session + rest), known[0])
        self._pair(found, name, effect)
        return found

    def _same_turn(self, name: str, effect: fx.SubmitToStage) -> Asked | None:
        """Return the request that the same answer came of, or the same turn's words, however it was asked."""
        for asked in self._origin.requests.values():
            first = asked.inputs[0].effect if asked.inputs else None
            if not isinstance(first, fx.SubmitToStage) or self._names.paired(asked.name):
                continue
            if first.payload.purpose == effect.payload.purpose == "answer" and self._same_response(first, effect):
                self._pair(asked, name, effect)
                return asked
        return None

    def _same_response(self, theirs: fx.SubmitToStage, ours: fx.SubmitToStage) -> bool:
        response = ours.payload.response_id
        return response is not None and self._names.back(response) == theirs.payload.response_id

    def _pair(self, found: Asked, name: str, effect: fx.SubmitToStage) -> None:
        """Let a request stand for another, and what the one is about for what the other is about."""
        self._names.pair(found.name, name)
        first = found.inputs[0].effect
        if isinstance(first, fx.SubmitToStage):
            for theirs, ours in zip(reversed(first.payload.items), reversed(effect.payload.items), strict=False):
                self._names.pair(theirs.id, ours.id)
            if first.payload.response_id is not None and effect.payload.response_id is not None:
                self._names.pair(first.payload.response_id, effect.payload.response_id)

    def _same(self, theirs: Given, ours: Given) -> bool:
        if theirs.effect is None or ours.effect is None:
            return theirs.effect is ours.effect
        return question(theirs.effect) == question(ours.effect, self._sounds)


def _resident(effect: fx.SubmitToStage | fx.FeedStage | None) -> bool:
    if not isinstance(effect, fx.SubmitToStage):
        return effect is not None
    name = parse_request(effect.request)
    return name is not None and name.turn is None and name.aside is None and name.preview is None


def stand_ins(held: Held, given: Given) -> list[AnyReport]:
    """Return what stands for an answer that nobody has: a failure; to a unit, that the model listens on."""
    match given.effect:
        case None:
            return [cmd.StageReleased(request=held.name)]
        case fx.FeedStage(operation=operation):
            listens = cmd.StageSegmentFinished(
                request=held.name, decision="listen", operation=operation, reason=UNANSWERED
            )
            return [listens]
        case fx.SubmitToStage():
            if held.resident:
                return []
            # Accepted first: what no stage has accepted would fail by the name of a request that was not taken.
            failed = cmd.StageFailed(request=held.name, code=UNANSWERED, message=NOT_ASKED)
            return [cmd.StageAccepted(request=held.name), failed]


def numbered(report: AnyReport, then: Given, now: Given) -> AnyReport:
    """Return what was said to a unit, with the numbers of the same unit in the fork."""
    before, after = then.effect, now.effect
    if not isinstance(before, fx.FeedStage) or not isinstance(after, fx.FeedStage):
        return report
    moved = after.model_turn - before.model_turn
    match report:
        case cmd.StageProduced() | cmd.StageSegmentFinished():
            turn = None if report.model_turn is None else report.model_turn + moved
            operation = None if report.operation is None else after.operation
            return replace(report, operation=operation, model_turn=turn)
        case cmd.StageAccepted(operation=int()) | cmd.StageRefused():
            return replace(report, operation=after.operation)
        case cmd.StageOwned():
            return replace(report, generation=report.generation + after.generation - before.generation)
        case _:
            return report
