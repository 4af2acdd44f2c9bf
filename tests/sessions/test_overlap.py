"""The table of overlap, against the contract's rows written down once more; all combinations (BEHAVIOURS F15)."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple, get_args

import pytest
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.commands import overlap_action
from antiphon.events.config import ConfigPatch, OverlapPolicy
from antiphon.sessions.overlap import ROWS, Judgement, Situation, Starts, judge, row_of

from tests.rules import rule
from tests.sessions.world import QUICK_VAD, World, only

SPELLINGS = [
    None,
    "barge_in",
    "INTERRUPT",
    "cancel",
    "listen",
    "Continue",
    "continue_output",
    "ack",
    "drop",
    "ignore",
    "silence",
    "whatever",
    "",
]
POLICIES: list[OverlapPolicy] = ["listen_only", "barge_in_on_speech"]
STARTS: list[Starts] = ["yes", "no", "unknown"]
SHORT_MS = 700
BOTH = (False, True)


class Case(NamedTuple):
    """The inputs of F15, by its letters."""

    a: bool
    b: bool
    x: str | None
    fb: bool
    fl: bool
    s: bool
    v: bool
    p: OverlapPolicy
    vs: Starts
    ack: bool
    d: int
    acc: int


def cases() -> Iterator[Case]:
    return map(
        Case._make,
        product(
            BOTH,
            BOTH,
            SPELLINGS,
            BOTH,
            BOTH,
            BOTH,
            BOTH,
            POLICIES,
            STARTS,
            BOTH,
            (80, 700, 701, 1500),
            (0, 650, 1200),
        ),
    )


class Told(NamedTuple):
    """The columns of F15."""

    row: int
    action: str
    reason: str
    buffer: bool
    defer: bool
    force_listen: bool
    keep: bool
    cancel: str | None
    acc: int


def written(case: Case) -> Told:
    """Return what the contract's table says, read from top to bottom."""
    a, b, spelled, fb, fl, s, v, p, vs, ack, d, acc = case
    x = (spelled or "").lower()
    cuts = x in ("barge_in", "interrupt", "cancel")
    more = acc + d
    if not b and (fb or cuts):
        return Told(1, "listen", "barge_in_unsupported", s, True, True, False, None, more if s else acc)
    if cuts:
        return Told(2, "barge_in", "client_overlap_action", True, False, False, False, "barge_in", acc)
    if x == "listen":
        return Told(3, "listen", "client_overlap_action", s and d > SHORT_MS, True, True, False, None, 0)
    if x in ("continue", "continue_output", "ack"):
        return Told(4, "listen", "client_overlap_action", False, True, True, False, None, 0)
    if x in ("drop", "ignore", "silence"):
        return Told(5, "drop", "client_overlap_action", False, False, False, False, None, 0)
    if fb:
        return Told(6, "barge_in", "client_force_barge_in", True, False, False, False, "barge_in", acc)
    barges = p == "barge_in_on_speech"
    if a and b and s and barges and vs == "yes":
        return Told(7, "barge_in", "server_vad_speech_started", True, False, False, False, "turn_detected", more)
    if a and b and s and barges and vs == "unknown":
        return Told(8, "barge_in", "barge_in_on_speech", True, False, False, False, "barge_in", more)
    if a:
        return Told(9, "listen", "auto_response_continuous", True, False, fl, True, None, more if s else acc)
    if fl:
        return Told(10, "listen", "client_force_listen", s, True, True, False, None, 0)
    if not s and v:
        return Told(11, "listen", "vision_follow", True, False, False, False, None, acc)
    if not s:
        return Told(12, "drop", "silence_or_noise", False, False, False, False, None, acc)
    if ack:
        return Told(13, "listen", "short_ack_transcript", False, True, True, False, None, 0)
    if not barges:
        return Told(14, "listen", "policy_listen_only", True, True, True, False, None, more)
    if not b:
        return Told(15, "listen", "barge_in_unsupported", True, True, True, False, None, more)
    if vs == "no":
        return Told(16, "listen", "server_vad_utterance_active", True, False, True, True, None, more)
    if vs == "yes":
        return Told(17, "barge_in", "server_vad_speech_started", True, False, False, False, "turn_detected", more)
    return Told(18, "barge_in", "policy_barge_in_on_speech", True, False, False, False, "barge_in", more)


def situation(case: Case) -> Situation:
    asked = overlap_action(case.x) or "nothing"
    return Situation(case.a, case.b, asked, case.fb, case.fl, case.s, case.v, case.p, case.vs, case.ack)


def judged(case: Case) -> Judgement:
    return judge(situation(case), duration_ms=case.d, overlap_ms=case.acc, short_ms=SHORT_MS)


@rule("F15", "P35")
def test_f15_every_combination_is_decided_as_the_contract_says() -> None:
    counted, hit = 0, set[int]()
    for case in cases():
        made = judged(case)
        row = made.row
        told = Told(
            row.number,
            row.action,
            row.reason,
            made.buffer,
            row.defer,
            made.force_listen,
            row.keep,
            row.cancel,
            made.overlap_ms,
        )
        assert told == written(case), case
        counted += 1
        hit.add(row.number)
    assert counted == 119_808
    assert hit == set(range(1, 19)), "every row is hit"


@rule("F15")
def test_f15_every_line_of_the_table_is_the_first_for_something() -> None:
    reached: set[int] = set()
    for case in cases():
        if case.d == 80 and case.acc == 0:
            known = situation(case)
            reached |= {id(row_of(known)), id(row_of(replace(known, doubts=True)))}
    assert reached == {id(row) for row in ROWS}


@rule("F15")
def test_5_13_speech_that_must_prove_itself_differs_where_row_17_interrupts_and_nowhere_else() -> None:
    for case in cases():
        known = situation(case)
        row, careful = row_of(known), row_of(replace(known, doubts=True))
        if row.number != 17:
            assert careful is row, case
            continue
        assert (careful.number, careful.action, careful.reason) == (17, "listen", "interruption_suspected")
        assert (careful.buffer, careful.overlap, careful.cancel) == (row.buffer, row.overlap, None)


def test_p35_only_the_inputs_of_the_table_decide() -> None:
    case = Case(False, True, None, False, False, True, False, "listen_only", "unknown", False, 80, 0)
    assert judged(case) == judged(Case(*case))


@rule("P36")
def test_p36_what_cannot_be_interrupted_never_is_and_an_auto_session_drops_nothing_by_itself() -> None:
    for case in cases():
        action = row_of(situation(case)).action
        assert action != "barge_in" or case.b
        assert action != "drop" or not case.a or overlap_action(case.x) == "drop"


@rule("F15")
def test_wire_6_4_a_client_sees_the_same_action_and_reason() -> None:
    """The table of the wire, whose rows are coarser: the first that fits names action and reason."""
    for case in cases():
        if case.d != 80 or case.acc:
            continue
        row = row_of(situation(case))
        assert (row.action, row.reason) == on_the_wire(case), case


def on_the_wire(case: Case) -> tuple[str, str]:
    asked = overlap_action(case.x)
    if asked == "barge_in" or (case.fb and not case.b):
        # Where both wishes cannot be met, what the model cannot do is told first (F15 row 1).
        return ("barge_in", "client_overlap_action") if case.b else ("listen", "barge_in_unsupported")
    if asked is not None:
        return ("drop" if asked == "drop" else "listen"), "client_overlap_action"
    if case.fb:
        return "barge_in", "client_force_barge_in"
    wants = case.p == "barge_in_on_speech"
    if case.a:
        if wants and case.s and case.b and case.vs != "no":
            return "barge_in", "server_vad_speech_started" if case.vs == "yes" else "barge_in_on_speech"
        return "listen", "auto_response_continuous"
    if case.fl:
        return "listen", "client_force_listen"
    if not case.s:
        return ("listen", "vision_follow") if case.v else ("drop", "silence_or_noise")
    if case.ack:
        return "listen", "short_ack_transcript"
    if not wants:
        return "listen", "policy_listen_only"
    if not case.b:
        return "listen", "barge_in_unsupported"
    if case.vs == "no":
        return "listen", "server_vad_utterance_active"
    return "barge_in", "server_vad_speech_started" if case.vs == "yes" else "policy_barge_in_on_speech"


@rule("F15")
@pytest.mark.parametrize(
    ("word", "action"), [(None, None), ("Barge_In", "barge_in"), ("ACK", "continue"), ("x", None)]
)
def test_f15_an_action_is_spelled_in_any_case_and_an_unknown_word_is_ignored(
    word: str | None, action: str | None
) -> None:
    assert overlap_action(word) == action


@rule("Q4.19")
def test_q4_19_every_policy_that_there_is_can_be_chosen() -> None:
    assert set(get_args(OverlapPolicy)) == set(POLICIES)
    chosen: set[str] = set()
    for detection in (None, QUICK_VAD):
        world = World(vad=detection)
        events = world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=detection)))
        chosen.add(only(events, ev.ConfigUpdated).config.overlap_policy)
    assert chosen == set(POLICIES)
