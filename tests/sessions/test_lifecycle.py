"""Opening, resuming, detaching, closing, expiry and restart: BEHAVIOURS B, C, D, M; DESIGN 4 and 5."""

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.config import Dialect, Limits, SessionConfig, TurnDetection
from antiphon.events.ids import EventPosition
from antiphon.sessions import core
from antiphon.sessions.models.base import TurnModel
from antiphon.sessions.playback import heard
from antiphon.sessions.plugins import CASCADE
from antiphon.sessions.state import KEPT_CONTROLS
from antiphon.sessions.view import next_deadline, outstanding

from tests.rules import rule
from tests.sessions.world import MS, QUICK_VAD, WALL, World, capable, error, kinds, only, token

# -- open ----------------------------------------------------------------------------------------------------


@rule("A20")
def test_open_starts_at_attachment_one_and_generation_zero() -> None:
    world = World()
    opened = only(world.opened, ev.SessionOpened)
    assert (opened.number, opened.token_digest) == (0, token(1))
    assert (world.session.lease.attachment, world.session.lease.generation) == (1, 0)
    assert world.session.lease.phase == "serving"
    assert opened.view == core.view(world.session)


@rule("B7")
def test_b7_an_opening_by_update_also_tells_the_configuration() -> None:
    world = World(by_update=True)
    assert kinds(world.opened) == ["SessionOpened", "ConfigUpdated"]
    updated = only(world.opened, ev.ConfigUpdated)
    assert updated.number == 1
    assert updated.view == only(world.opened, ev.SessionOpened).view


@rule("B19")
def test_b19_the_same_opening_again_changes_nothing() -> None:
    world = World()
    later = msgspec.structs.replace(world.opening, wall_us=WALL + 9, token_digest=token(9))
    assert world.do(later) == []


@rule("B20")
def test_b20_the_control_id_of_another_opening_is_refused() -> None:
    world = World()
    config = msgspec.structs.replace(world.opening.config, instructions="Something else.")
    assert world.refused(msgspec.structs.replace(world.opening, config=config)).code == "control_id_reused"


@rule("B1")
def test_b1_a_second_opening_is_refused() -> None:
    world = World()
    assert world.refused(msgspec.structs.replace(world.opening, control_id="open-2")).code == "session_exists"


@pytest.mark.parametrize("change", [{"plugin": "none"}, {"plugin_version": "0"}])
def test_open_refuses_an_unknown_plugin_or_version(change: dict[str, str]) -> None:
    world = World()
    world.session = core.new()
    refusal = world.refused(msgspec.structs.replace(world.opening, **change))
    assert (refusal.code, refusal.param) == ("model_not_found", "model")


@rule("B5")
def test_open_refuses_a_configuration_that_the_model_does_not_take() -> None:
    world = World()
    world.session = core.new()
    config = msgspec.structs.replace(world.opening.config, voice="nobody")
    refusal = world.refused(msgspec.structs.replace(world.opening, config=config))
    assert (refusal.code, refusal.detail) == ("bad_event", "value")


@rule("F1")
class Fussy(TurnModel, frozen=True, kw_only=True):
    """A model whose check, or whose defaults, raise a plain error."""

    early: bool

    def settled(self, config: SessionConfig) -> SessionConfig:
        """Fail at once, or later."""
        if self.early:
            raise ValueError("not like that")
        return config

    def check(self, config: SessionConfig) -> None:
        """Fail."""
        raise ValueError("not like that")


@rule("B9")
@pytest.mark.parametrize("early", [True, False])
def test_a_plain_error_of_a_models_check_is_the_configurations_fault(early: bool) -> None:
    fussy = Fussy(name="cascade", version="1", capabilities=CASCADE.capabilities, early=early)
    world = World()
    world.session, world.plugins = core.new(), {"cascade": fussy}
    refusal = world.refused(world.opening)
    assert refusal.code == "invalid_duplex_runtime_config"
    assert "not like that" in refusal.message


@pytest.mark.parametrize("vad", [None, QUICK_VAD])
def test_open_derives_the_overlap_policy(vad: TurnDetection | None) -> None:
    world = World(vad=vad)
    assert world.session.config.overlap_policy == ("barge_in_on_speech" if vad else "listen_only")


def test_a_session_without_token_or_capability_is_not_resumable() -> None:
    assert not World(resumable=False).session.resumable
    able = capable(CASCADE.capabilities, supports_session_resume=False)
    world = World(capabilities=able)
    assert not world.session.resumable
    assert only(world.opened, ev.SessionOpened).token_digest is None


# -- detach and grace ----------------------------------------------------------------------------------------


@rule("C7")
def test_detach_starts_the_grace() -> None:
    world = World()
    detached = only(world.detach(), ev.SessionDetached)
    assert (detached.generation, detached.grace_ms) == (0, 30_000)
    assert next_deadline(world.session) == world.now + 30_000 * MS
    assert not world.session.lease.attached


@rule("C4", "D31", "P46")
def test_c4_a_detach_of_another_generation_changes_nothing() -> None:
    world = World()
    world.resume()
    assert world.refused(cmd.Detach(generation=0)).code == "session_resume_conflict"
    assert world.session.lease.attached


@rule("C6", "D28", "Q4.14")
def test_c6_repeated_detach_does_not_restart_the_grace() -> None:
    world = World()
    world.detach()
    deadline = next_deadline(world.session)
    world.wait(20_000)
    assert world.detach() == []
    assert next_deadline(world.session) == deadline


@rule("C7", "P47")
def test_c7_the_grace_ends_the_session_although_the_model_goes_on() -> None:
    world = World()
    world.begin()
    world.detach()
    world.wait(29_999)
    world.produce("Nobody hears this.", 100)
    assert world.tick() == []
    world.wait(1)
    closing = world.tick()
    assert kinds(closing) == ["SessionClosing"]
    assert only(closing, ev.SessionClosing).reason == "disconnect_grace_expired"
    closed = only(world.release(), ev.SessionClosed)
    assert closed.expired


@rule("C8")
def test_c8_grace_is_reported_before_idleness() -> None:
    world = World(limits=Limits(grace_ms=1_000, idle_ttl_ms=1_000))
    world.detach()
    world.wait(1_000)
    assert only(world.tick(), ev.SessionClosed).reason == "disconnect_grace_expired"


@rule("D8")
def test_d8_a_session_without_resume_closes_when_its_connection_drops() -> None:
    world = World(dialect="ga")
    events = world.detach()
    assert kinds(events) == ["SessionClosing", "SessionClosed"]
    closed = only(events, ev.SessionClosed)
    assert (closed.reason, closed.expired) == ("disconnect", False)


@rule("D24", "P52")
def test_d24_nothing_of_a_connection_that_is_gone_is_executed() -> None:
    world = World()
    world.detach()
    assert world.say("Anyone?") == []
    assert world.do(cmd.ReportRefusal(attachment=1, code="bad_audio", message="No.")) == []


# -- resume --------------------------------------------------------------------------------------------------


@rule("D23")
def test_d23_resume_changes_lease_attachment_and_token_in_one_event() -> None:
    world = World()
    world.say("Hello.")
    world.detach()
    events = world.do(world.resumption(last_number=2))
    resumed = only(events, ev.SessionResumed)
    assert len(events) == 1
    assert (resumed.attachment, resumed.generation, resumed.token_digest) == (2, 1, token(2))
    assert (resumed.number, resumed.last_number, resumed.head) == (0, 2, 3)
    assert world.session.lease.phase == "unheard"
    assert world.session.lease.expires_at is None


@rule("C9", "C10")
def test_c10_an_attached_session_can_be_taken_over() -> None:
    world = World()
    assert kinds(world.resume()) == ["SessionResumed"]
    stale = cmd.Heartbeat(attachment=1)
    assert world.do(stale) == []


@rule("C11")
def test_c11_a_replayed_resume_changes_nothing() -> None:
    world = World()
    command = world.resumption()
    world.do(command)
    world.detach()
    deadline = next_deadline(world.session)
    world.wait(1_000)
    assert world.do(command) == []
    assert next_deadline(world.session) == deadline
    outcome = world.session.lease.controls[command.control_id]
    assert (outcome.kind, outcome.attachment, outcome.generation) == ("resume", 2, 1)


@rule("C11")
def test_c11_replaying_a_resume_behind_a_newer_one_is_a_conflict() -> None:
    world = World()
    first = world.resumption()
    world.do(first)
    world.resume()
    assert world.refused(first).code == "session_resume_conflict"


@rule("B20")
def test_b20_a_resume_under_the_control_id_of_something_else_is_refused() -> None:
    world = World()
    command = world.resumption()
    world.do(command)
    assert world.refused(msgspec.structs.replace(command, last_number=1)).code == "control_id_reused"
    opening = msgspec.structs.replace(command, control_id="open-1")
    assert world.refused(opening).code == "control_id_reused"


@rule("D22")
def test_d22_the_checks_of_a_resume_come_in_their_order() -> None:
    world = World(resumable=False)
    assert world.refused(world.resumption(token(1))).code == "unsupported_session_resume"
    world.close()
    assert world.refused(world.resumption(token(1))).code == "session_resume_expired"
    world = World()
    bad = msgspec.structs.replace(world.resumption("wrong", last_number=9), expected_generation=9, gap=True)
    assert world.refused(bad).code == "invalid_resume_token"
    missing = msgspec.structs.replace(bad, presented=token(1))
    assert world.refused(missing).code == "journal_gap"
    ahead = msgspec.structs.replace(missing, gap=False)
    assert world.refused(ahead).code == "session_resume_conflict"
    assert world.refused(msgspec.structs.replace(ahead, last_number=0)).code == "runtime_resume_failed"
    assert world.do(msgspec.structs.replace(ahead, last_number=0, expected_generation=0))


@rule("D22", "D23", "B20")
@pytest.mark.parametrize("dialect", ["ga", "beta"])
def test_d22_where_messages_have_no_numbers_a_resume_names_the_last_one(dialect: Dialect) -> None:
    world = World(dialect=dialect, resumable=True)
    world.detach()
    numbered = world.resumption()
    assert world.refused(numbered).code == "session_resume_expired"
    command = msgspec.structs.replace(numbered, position=EventPosition(1, 0, 0))
    wrong = msgspec.structs.replace(command, presented="wrong", gap=True, ahead=True)
    assert world.refused(wrong).code == "invalid_resume_token"
    gap = world.refused(msgspec.structs.replace(command, gap=True, ahead=True))
    assert (gap.code, "not kept" in gap.message) == ("session_resume_conflict", True)
    assert world.refused(msgspec.structs.replace(command, ahead=True)).code == "session_resume_conflict"
    resumed = only(world.do(command), ev.SessionResumed)
    assert (resumed.attachment, resumed.position) == (2, EventPosition(1, 0, 0))
    assert world.do(command) == [], "the same control id and the same position"
    other = msgspec.structs.replace(command, position=EventPosition(2, 0, 0))
    assert world.refused(other).code == "control_id_reused"
    numbers = World()
    numbers.detach()
    assert (
        numbers.refused(msgspec.structs.replace(numbers.resumption(), position=EventPosition(1, 0, 0))).code
        == "session_resume_expired"
    )


@rule("D22")
@pytest.mark.parametrize(
    ("opened", "comes", "good"), [("a", "a", True), ("a", "b", False), ("a", "", True), ("", "b", True)]
)
def test_d22_a_token_is_good_with_the_key_that_opened_the_session(opened: str, comes: str, good: bool) -> None:
    """And with any, where one of the two needed none: keys may come and go while a session waits."""
    world = World()
    fresh = core.new()
    opening = msgspec.structs.replace(world.opening, owner=opened)
    for event in core.decide(fresh, opening, 0, world.plugins):
        core.evolve(fresh, event, 0)
    command = cmd.ResumeSession(control_id="r", presented=token(1), next_digest=token(2), owner=comes)
    if good:
        assert kinds(core.decide(fresh, command, 0, world.plugins)) == ["SessionResumed"]
    else:
        with pytest.raises(core.Refusal, match="not valid") as refused:
            core.decide(fresh, command, 0, world.plugins)
        assert refused.value.code == "invalid_resume_token"


@rule("D33.9")
def test_d33_row_9_the_second_of_two_resumes_with_one_token_loses_when_the_first_was_heard() -> None:
    world = World()
    world.detach()
    first, second = world.resumption(token(1)), world.resumption(token(1))
    world.do(first)
    world.do(cmd.ConfirmAttachment(attachment=2))
    assert world.refused(second).code == "invalid_resume_token"


@rule("D25", "D26")
def test_design_5_6_the_presented_token_is_good_until_the_client_was_heard() -> None:
    world = World()
    world.do(world.resumption(token(1)))
    events = world.do(world.resumption(token(1)))
    assert only(events, ev.SessionResumed).attachment == 3
    for known in (token(1), token(2), token(3)):
        assert core.decide(world.session, world.resumption(known), world.now), "any of them may be all that it has"
    world.do(cmd.ConfirmAttachment(attachment=3))
    for old in (token(1), token(2)):
        assert world.refused(world.resumption(old)).code == "invalid_resume_token"


@rule("D25", "D26")
def test_design_5_6_any_frame_confirms_the_attachment() -> None:
    world = World()
    world.resume()
    assert kinds(world.do(cmd.Heartbeat(attachment=2))) == ["AttachmentConfirmed", "SessionTouched"]
    assert world.session.lease.phase == "serving"
    assert world.session.lease.earlier_tokens == ()
    assert world.do(cmd.ConfirmAttachment(attachment=2)) == []


def test_a_confirmation_of_another_attachment_says_nothing() -> None:
    world = World()
    world.resume()
    assert world.do(cmd.ConfirmAttachment(attachment=1)) == []
    assert kinds(world.do(cmd.ConfirmAttachment(attachment=2))) == ["AttachmentConfirmed"]


@rule("D25", "P51")
def test_p51_an_activation_that_is_not_heard_is_withdrawn() -> None:
    world = World()
    world.detach()
    world.resume()
    assert next_deadline(world.session) == world.now + 10_000 * MS
    world.wait(10_000)
    assert kinds(world.tick()) == ["AttachmentWithdrawn"]
    assert next_deadline(world.session) == world.now + 30_000 * MS
    for known in (token(1), token(2)):
        (resumed,) = core.decide(world.session, world.resumption(known), world.now)
        assert isinstance(resumed, ev.SessionResumed), "its client may have got the new one"
    assert world.refused(world.resumption(token(3))).code == "invalid_resume_token"


@rule("D25", "D26", "P51")
def test_d25_an_unheard_attachment_that_drops_leaves_both_tokens_good() -> None:
    world = World()
    world.resume()
    world.detach()
    assert only(world.do(world.resumption(token(1))), ev.SessionResumed).attachment == 3


@rule("P45")
def test_p45_the_generation_rises_once_for_each_resume_and_at_the_end() -> None:
    world = World()
    world.resume()
    world.resume()
    assert world.session.lease.generation == 2
    world.close()
    assert world.session.lease.generation == 3


@rule("C12", "P55")
def test_c12_nothing_can_be_resumed_from_the_close_on() -> None:
    world = World()
    world.begin()
    command = world.resumption(token(1))
    world.close()
    assert world.session.phase == "closing"
    assert world.refused(command).code == "session_resume_expired"


@rule("B21")
def test_b21_old_control_outcomes_are_forgotten() -> None:
    world = World()
    controls = world.session.lease.controls
    while len(controls) < KEPT_CONTROLS:
        controls[f"old-{len(controls)}"] = controls["open-1"]
    world.watch.twin = core.load(core.dump(world.session))
    world.resume()
    assert len(controls) == KEPT_CONTROLS
    assert "open-1" not in controls


# -- heartbeat and idle time ---------------------------------------------------------------------------------


@rule("C15")
def test_c15_a_heartbeat_renews_the_lease() -> None:
    world = World()
    world.wait(299_999)
    touched = only(world.do(cmd.Heartbeat(attachment=1)), ev.SessionTouched)
    assert touched.session == world.session.id
    world.wait(299_999)
    assert world.tick() == []


@rule("C2")
def test_c2_idleness_expires_at_its_boundary() -> None:
    world = World()
    world.wait(299_999)
    assert world.tick() == []
    world.wait(1)
    closed = only(world.tick(), ev.SessionClosed)
    assert (closed.reason, closed.expired) == ("idle_ttl_expired", True)


@rule("C1")
def test_c1_whatever_is_asked_or_said_counts_as_activity() -> None:
    world = World()
    world.answer()
    item_id = world.session.conversation.order[0]
    for step in (
        lambda: world.say("More.", "mine"),
        lambda: world.do(cmd.RetrieveItem(attachment=1, item_id=item_id)),
        lambda: world.do(cmd.DeleteItem(attachment=1, item_id=item_id)),
        world.respond,
        lambda: world.produce("A word"),
        world.cancel,
        lambda: world.do(cmd.ClearOutput(attachment=1)),
        lambda: world.ack(100),
        world.clear,
    ):
        world.wait(1_000)
        assert step()
        assert world.session.lease.last_activity == world.now


@rule("C1")
def test_c1_a_refusal_or_a_stale_output_is_no_activity() -> None:
    world = World()
    world.wait(1_000)
    assert error(world.cancel()) == "response_not_active"
    world.do(cmd.StageProduced(request="nobody.e0", text="late"))
    assert world.session.lease.last_activity == 0


def test_the_longest_session_ends() -> None:
    world = World(limits=Limits(max_session_ms=5_000, idle_ttl_ms=0))
    assert only(world.opened, ev.SessionOpened).view.expires_at == WALL // 1_000_000 + 5
    world.wait(5_000)
    closed = only(world.tick(), ev.SessionClosed)
    assert (closed.reason, closed.expired) == ("max_duration", True)


def test_a_session_without_limits_has_no_deadline() -> None:
    world = World(limits=Limits(idle_ttl_ms=0))
    assert next_deadline(world.session) is None
    assert world.tick() == []


# -- close ---------------------------------------------------------------------------------------------------


@rule("M2")
def test_close_without_work_is_the_end_at_once() -> None:
    world = World()
    events = world.close()
    assert kinds(events) == ["SessionClosing", "SessionClosed"]
    assert world.session.lease.controls["close-1"].kind == "close"
    assert next_deadline(world.session) is None
    assert next_deadline(core.new()) is None


@rule("M3", "G37")
def test_wire_2_13_close_sends_the_terminal_of_the_response_first() -> None:
    world = World()
    world.begin()
    world.produce("Hello", 100)
    events = world.close()
    assert kinds(events) == ["ResponseEnded", "SessionClosing"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.reason, ended.cause) == ("cancelled", "client_cancelled", "session_close")
    assert kinds(world.release()) == ["RequestReleased", "SessionClosed"]
    assert outstanding(world.session) == []


@rule("M4")
def test_m4_the_terminal_comes_after_two_seconds_although_a_stage_holds_on() -> None:
    world = World()
    world.begin()
    request = world.request
    world.close()
    assert next_deadline(world.session) == world.now + 2_000 * MS
    world.wait(1_999)
    assert world.tick() == []
    world.wait(1)
    assert kinds(world.tick()) == ["SessionClosed"]
    assert outstanding(world.session) == [request]
    assert kinds(world.do(cmd.StageReleased(request=request))) == ["RequestReleased"]
    assert world.tick() == []


@rule("M8")
def test_m8_closing_again_is_accepted_and_changes_nothing() -> None:
    world = World()
    world.begin()
    world.close()
    assert world.do(cmd.CloseSession(control_id="close-2", attachment=1)) == []


@rule("P52")
def test_a_replaced_connection_cannot_close() -> None:
    world = World()
    world.resume()
    assert world.do(cmd.CloseSession(control_id="c", attachment=1)) == []
    assert world.do(cmd.CloseSession(control_id="c", reason="operator"))
    assert world.session.phase == "closed"


@rule("C13")
def test_c13_commands_of_a_closing_session_are_refused() -> None:
    world = World()
    world.begin()
    world.close()
    assert error(world.say("Wait!")) == "session_closed"
    assert world.refused(cmd.Detach(generation=1)).code == "session_closed"
    assert world.do(cmd.ReportRefusal(attachment=1, code="bad_audio", message="No.")) == []


@rule("M14")
def test_m14_an_expiry_is_silent_about_the_response() -> None:
    world = World(limits=Limits(idle_ttl_ms=1_000))
    world.begin()
    world.do(cmd.StageAccepted(request=world.request))
    world.wait(1_000)
    assert kinds(world.tick()) == ["SessionClosing"]
    assert kinds(world.release()) == ["RequestReleased", "SessionClosed"]


@rule("P54")
def test_p54_nothing_follows_the_terminal() -> None:
    world = World()
    world.close()
    assert world.say("Anyone?") == []
    assert world.close() == []
    assert world.restart() == []
    assert world.tick() == []


# -- restart -------------------------------------------------------------------------------------------------


@rule("P6")
def test_restart_fails_the_response_detaches_and_starts_the_grace() -> None:
    world = World()
    world.begin()
    world.produce("Half an ans", 400)
    world.wait(200)
    events = world.restart()
    assert kinds(events) == [
        "ErrorReported",
        "ResponseEnded",
        "EngineRestarted",
        "SessionDetached",
    ]
    assert only(events, ev.ErrorReported).code == "engine_restarted"
    ended = only(events, ev.ResponseEnded)
    assert ended.status == "failed"
    assert ended.failure is not None
    assert ended.failure.code == "engine_restarted"
    assert world.session.epoch == 1
    assert world.effects(events) == [fx.AbortRequests(requests=tuple(outstanding(world.session)))]
    world.release()
    assert outstanding(world.session) == []
    assert next_deadline(world.session) == world.now + 120_000 * MS


@rule("P6", "P49")
def test_what_was_said_before_a_restart_is_still_heard_behind_it() -> None:
    """The memory of a model dies with its process; sound that is durable does not."""
    world = World(plugin="echo", auto=True)
    world.append()
    world.produce("said", 1_000, world.resident)
    world.wait(100)
    world.restart()
    assert world.session.epoch == 1
    assert world.session.turn.voided == 0
    world.resume()
    world.wait(1_500)
    (playout,) = world.session.playouts.values()
    assert heard(playout, world.now) == (1_000, "playout")
    world.append()
    world.produce("again", 100, world.resident)
    world.barge_in()
    assert world.session.turn.voided == world.session.epoch == 2


@rule("A5")
def test_a_memory_that_begins_anew_silences_nothing() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.produce("said", 1_000, world.resident)
    world.finish(world.resident)
    assert world.session.epoch == 1
    assert world.session.turn.voided == 0


def test_restart_of_an_idle_session_keeps_the_epoch() -> None:
    world = World()
    assert kinds(world.restart()) == ["EngineRestarted", "SessionDetached"]
    assert world.session.epoch == 0
    assert kinds(world.resume()) == ["SessionResumed"]


def test_restart_in_the_grace_starts_it_anew() -> None:
    world = World()
    world.detach()
    world.wait(29_000)
    world.restart()
    assert next_deadline(world.session) == world.now + 120_000 * MS


def test_restart_gives_the_longer_grace() -> None:
    world = World(limits=Limits(grace_ms=200_000))
    assert only(world.restart(), ev.SessionDetached).grace_ms == 200_000


def test_restart_closes_a_session_that_cannot_be_resumed() -> None:
    world = World(dialect="ga")
    world.begin()
    events = world.restart()
    assert kinds(events)[-2:] == ["EngineRestarted", "SessionClosing"]
    assert only(world.release(), ev.SessionClosed).reason == "disconnect"


def test_restart_finishes_a_close() -> None:
    world = World()
    world.begin()
    world.close()
    assert kinds(world.restart()) == ["EngineRestarted", "SessionClosed"]
    assert world.session.epoch == 0


@rule("K15")
def test_k15_restart_ends_a_session_whose_model_has_lost_its_memory() -> None:
    able = capable(core.REGISTRY["echo"].capabilities, supports_reencode_context=False)
    world = World(plugin="echo", auto=True, capabilities=able)
    world.append()
    closed = only(world.restart(), ev.SessionClosed)
    assert (closed.reason, closed.expired) == ("request_cleanup", True)


@rule("N66")
def test_restart_lets_a_model_that_can_render_its_history_begin_again() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.restart()
    world.resume()
    submitted = only(world.append(), ev.RequestSubmitted)
    assert submitted.request == "duplex-1.e1"


# -- what the edge refuses -----------------------------------------------------------------------------------


def test_a_refusal_at_the_edge_is_told_to_the_client_that_serves() -> None:
    world = World()
    report = cmd.ReportRefusal(attachment=1, code="bad_audio", message="x" * 300, param="audio", event_id="e1")
    told = only(world.do(report), ev.ErrorReported)
    assert (told.number, told.code, told.param, told.event_id, len(told.message)) == (
        1,
        "bad_audio",
        "audio",
        "e1",
        256,
    )
    unnumbered = msgspec.structs.replace(report, numbered=False)
    assert only(world.do(unnumbered), ev.ErrorReported).number == 0
    assert world.do(msgspec.structs.replace(report, attachment=2)) == []


# -- exactly once --------------------------------------------------------------------------------------------


@rule("A22")
def test_design_5_9_a_counted_command_is_applied_once() -> None:
    world = World()
    assert kinds(world.append(client_seq=1)) == ["AudioReceived", "SpeechStarted", "CommandSequenced"]
    assert world.append(client_seq=1) == []
    world.detach()
    assert only(world.resume(), ev.SessionResumed).last_client_seq == 1


@rule("A22")
def test_design_5_9_a_gap_is_refused_and_a_refusal_is_counted() -> None:
    world = World()
    assert error(world.append(client_seq=2)) == "client_seq_gap"
    counted = world.do(cmd.CancelResponse(attachment=1, client_seq=1))
    assert kinds(counted) == ["ErrorReported", "CommandSequenced"]
    assert world.session.lease.client_seq == 1


def test_design_5_9_a_gap_confirms_the_attachment_all_the_same() -> None:
    world = World()
    world.resume()
    assert kinds(world.append(client_seq=2)) == ["AttachmentConfirmed", "ErrorReported"]


def test_a_counted_command_refused_at_the_edge_counts_as_carried_out() -> None:
    world = World()
    refusal = cmd.ReportRefusal(attachment=1, code="bad_audio", message="Odd.", event_id="e", client_seq=1)
    assert kinds(world.do(refusal)) == ["ErrorReported", "CommandSequenced"]
    assert world.do(refusal) == [], "told once"
    assert kinds(world.append(client_seq=2))[-1] == "CommandSequenced"


def test_an_uncounted_refusal_moves_no_mark() -> None:
    world = World()
    assert kinds(world.do(cmd.ReportRefusal(attachment=1, code="bad_event", message="No."))) == ["ErrorReported"]
    assert world.session.lease.client_seq == 0
