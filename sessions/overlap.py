"""What is done about sound that comes during an answer: one table, first match wins (BEHAVIOURS F15, WIRE 6.4).

The rows have the numbers of F15; row 17 has two lines, the first where speech must prove itself. Rows 19 to 22, a
policy that decides by duration, are not built (DESIGN 5.5): it matters only to what becomes of the sound.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from antiphon.events.commands import OverlapAction
from antiphon.events.config import OverlapPolicy
from antiphon.events.events import OverlapReason

from .conditions import fits

Action = Literal["barge_in", "listen", "drop"]
Starts = Literal["yes", "no", "unknown"]
"""Whether the utterance begins in this append; unknown without a detector."""

BARGES: OverlapPolicy = "barge_in_on_speech"


class Situation(Struct, frozen=True, gc=False):
    """All that the table looks at.

    `auto`: the model answers on its own; `able`: it can be interrupted. `asked`, `forced` (to interrupt) and
    `held` (to listen) are the client's hints. `speech` is the one verdict (E3), `vision` says that frames came
    which are input by themselves, `acknowledges` that the client's words are a short acknowledgement, `doubts`
    that speech must prove to be a turn before it interrupts (DESIGN 5.13).
    """

    auto: bool
    able: bool
    asked: OverlapAction | Literal["nothing"]
    forced: bool
    held: bool
    speech: bool
    vision: bool
    policy: OverlapPolicy
    starts: Starts
    acknowledges: bool
    doubts: bool = False


class When(NamedTuple):
    """The condition of a row: `Situation`, in its order; None stands for anything."""

    auto: bool | None = None
    able: bool | None = None
    asked: OverlapAction | None = None
    forced: bool | None = None
    held: bool | None = None
    speech: bool | None = None
    vision: bool | None = None
    policy: OverlapPolicy | None = None
    starts: Starts | None = None
    acknowledges: bool | None = None
    doubts: bool | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One row of the table.

    `buffer`: is the sound kept (always; never; if it is speech; if it is speech longer than a short
    acknowledgement). `defer`: no model hears it before the commit. `force_listen`: a model that hears it must not
    answer it (`asked`: if the client says so). `keep`: what was announced stays although the sound is not
    buffered. `cancel`: what an interruption is called. `suspects`: it may be one. `overlap`: what becomes of the
    counter (F18).
    """

    number: int
    when: When
    action: Action
    reason: OverlapReason
    buffer: Literal["yes", "no", "speech", "long speech"] = "yes"
    defer: bool = False
    force_listen: Literal["yes", "no", "asked"] = "no"
    keep: bool = False
    cancel: Literal["barge_in", "turn_detected"] | None = None
    suspects: bool = False
    overlap: Literal["stays", "reset", "grows", "grows by speech"] = "stays"


def _listen(
    number: int,
    when: When,
    reason: OverlapReason,
    buffer: Literal["yes", "no", "speech", "long speech"],
    overlap: Literal["stays", "reset", "grows", "grows by speech"],
) -> Row:
    """Return a row that keeps the sound from the model and the model from answering."""
    return Row(
        number=number,
        when=when,
        action="listen",
        reason=reason,
        buffer=buffer,
        defer=True,
        force_listen="yes",
        overlap=overlap,
    )


def _barge_in(
    number: int,
    when: When,
    reason: OverlapReason,
    cancel: Literal["barge_in", "turn_detected"],
    *,
    grows: bool = True,
) -> Row:
    return Row(
        number=number,
        when=when,
        action="barge_in",
        reason=reason,
        cancel=cancel,
        overlap="grows" if grows else "stays",
    )


ROWS: tuple[Row, ...] = (
    _listen(1, When(able=False, asked="barge_in"), "barge_in_unsupported", "speech", "grows by speech"),
    _listen(1, When(able=False, forced=True), "barge_in_unsupported", "speech", "grows by speech"),
    _barge_in(2, When(asked="barge_in"), "client_overlap_action", "barge_in", grows=False),
    _listen(3, When(asked="listen"), "client_overlap_action", "long speech", "reset"),
    _listen(4, When(asked="continue"), "client_overlap_action", "no", "reset"),
    Row(
        number=5,
        when=When(asked="drop"),
        action="drop",
        reason="client_overlap_action",
        buffer="no",
        overlap="reset",
    ),
    _barge_in(6, When(forced=True), "client_force_barge_in", "barge_in", grows=False),
    _barge_in(
        7,
        When(auto=True, able=True, speech=True, policy=BARGES, starts="yes"),
        "server_vad_speech_started",
        "turn_detected",
    ),
    _barge_in(
        8,
        When(auto=True, able=True, speech=True, policy=BARGES, starts="unknown"),
        "barge_in_on_speech",
        "barge_in",
    ),
    Row(
        number=9,
        when=When(auto=True),
        action="listen",
        reason="auto_response_continuous",
        force_listen="asked",
        keep=True,
        overlap="grows by speech",
    ),
    _listen(10, When(held=True), "client_force_listen", "speech", "reset"),
    Row(number=11, when=When(speech=False, vision=True), action="listen", reason="vision_follow"),
    Row(number=12, when=When(speech=False), action="drop", reason="silence_or_noise", buffer="no"),
    _listen(13, When(acknowledges=True), "short_ack_transcript", "no", "reset"),
    _listen(14, When(policy="listen_only"), "policy_listen_only", "yes", "grows"),
    _listen(15, When(policy=BARGES, able=False), "barge_in_unsupported", "yes", "grows"),
    Row(
        number=16,
        when=When(policy=BARGES, starts="no"),
        action="listen",
        reason="server_vad_utterance_active",
        force_listen="yes",
        keep=True,
        overlap="grows",
    ),
    Row(
        number=17,
        when=When(policy=BARGES, starts="yes", doubts=True),
        action="listen",
        reason="interruption_suspected",
        force_listen="yes",
        keep=True,
        suspects=True,
        overlap="grows",
    ),
    _barge_in(17, When(policy=BARGES, starts="yes"), "server_vad_speech_started", "turn_detected"),
    _barge_in(18, When(policy=BARGES, starts="unknown"), "policy_barge_in_on_speech", "barge_in"),
)


class Judgement(Struct, frozen=True):
    """What is done about one append. `overlap_ms` is the counter behind it; `forgets`: it is no turn (F16)."""

    row: Row
    buffer: bool
    force_listen: bool
    overlap_ms: int

    @property
    def forgets(self) -> bool:
        """Whether what was announced and buffered goes with the sound.

        Not with mere silence (rows 1 and 12): a pause inside overlapping speech does not end it.
        """
        return not self.buffer and not self.row.keep and self.row.overlap == "reset"


def judge(situation: Situation, *, duration_ms: int, overlap_ms: int, short_ms: int) -> Judgement:
    """Decide about `duration_ms` of sound behind `overlap_ms` of speech over the answer; `short_ms`: see F15, K."""
    row = row_of(situation)
    kept = row.buffer == "yes" or (
        situation.speech and (row.buffer == "speech" or (row.buffer == "long speech" and duration_ms > short_ms))
    )
    after = overlap_ms
    if row.overlap == "reset":
        after = 0
    elif row.overlap == "grows" or (row.overlap == "grows by speech" and situation.speech):
        after += duration_ms
    forced = row.force_listen == "yes" or (row.force_listen == "asked" and situation.held)
    return Judgement(row, kept, forced, after)


@lru_cache(maxsize=4096)
def row_of(situation: Situation) -> Row:
    """Return the first row that fits; the table is total."""
    return next(row for row in ROWS if fits(row.when, astuple(situation)))
