"""Replay: the same commands give the same events, and a difference is found where it was planted."""

import linecache
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.engine.changes import Change
from antiphon.engine.deciding import Code, decide_aloud, handler, path_of, rules_of
from antiphon.engine.errors import UnknownPlugin
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.replay import replay
from antiphon.events.commands import AckPlayback, CancelResponse, CommitInput, OpenSession
from antiphon.events.events import AudioDelta, ErrorReported, Interrupted, ResponseEnded
from antiphon.events.log import Transaction, from_json, to_json
from antiphon.sessions import core
from antiphon.sessions.plugins import ECHO, REGISTRY
from antiphon.stages.echo import EchoStage

from .worlds import ask, opening, settle, world
from tests.rules import rule
from tests.sessions.world import QUICK_VAD, World

pytestmark = pytest.mark.anyio


async def conversation() -> list[Transaction]:
    async with world(EchoStage()) as here:
        attachment = await here.hub.open(opening())
        attachment.append(AppendRequest(data=b"\x00\x20" * 4_000, speech=True))
        attachment.send(CommitInput(attachment=1, create_response=True))
        await settle()
        await here.advance(2_000)
        attachment.send(CancelResponse(attachment=1))
        ask(attachment)
        await settle()
    return await here.recorded(attachment.session)


@rule("P2")
async def test_a_recorded_session_replays_identically_also_from_its_export() -> None:
    recorded = await conversation()
    result = replay(recorded)
    assert result.identical
    assert result.first_difference is None
    assert (result.commands, result.events) == (len(recorded), sum(len(entry.events) for entry in recorded))
    assert result.session_s == 2.0
    assert result.speed > 0
    exported = [to_json(entry) for entry in recorded]
    assert replay(from_json(line) for line in exported).identical


async def test_a_planted_difference_is_found_with_both_sides() -> None:
    recorded = await conversation()
    at = next(
        index
        for index, entry in enumerate(recorded)
        if any(isinstance(event, AudioDelta) for event in entry.events)
    )
    entry = recorded[at]
    index = next(index for index, event in enumerate(entry.events) if isinstance(event, AudioDelta))
    events = list(entry.events)
    events[index] = replace(events[index], audio_ms=999)
    recorded[at] = replace(entry, events=tuple(events))
    difference = replay(recorded).first_difference
    assert difference is not None
    assert (difference.seq, difference.index) == (entry.seq, index)
    assert msgspec.json.decode(difference.expected or "")["audio_ms"] == 999
    assert msgspec.json.decode(difference.actual or "")["audio_ms"] == 80
    assert difference.fields == [Change("audio_ms", 999, 80)]
    assert (difference.command, difference.handler.function) == ("StageProduced", "speaking.stage_produced")
    places = {around.path: around for around in difference.around}
    assert places["output.position"].recorded == places["output.position"].now


async def test_a_missing_and_a_surplus_event_are_differences() -> None:
    recorded = await conversation()
    at = next(
        index
        for index, entry in enumerate(recorded)
        if any(isinstance(event, ResponseEnded) for event in entry.events)
    )
    entry = recorded[at]
    shorter = [*recorded[:at], replace(entry, events=entry.events[:-1])]
    difference = replay(shorter).first_difference
    assert difference is not None
    assert (difference.seq, difference.index, difference.expected) == (entry.seq, len(entry.events) - 1, None)
    assert difference.actual is not None
    assert difference.fields == []
    assert any(around.recorded != around.now for around in difference.around)
    longer = replace(recorded[1], events=(*recorded[1].events, *recorded[1].events))
    found = replay([recorded[0], longer]).first_difference
    assert found is not None
    assert found.actual is None
    assert found.decided_by == ()


async def test_times_and_terms_are_no_difference() -> None:
    recorded = [replace(entry, term=9) for entry in await conversation()]
    assert replay(recorded).identical


async def test_a_missing_plugin_or_version_is_named() -> None:
    recorded = await conversation()
    with pytest.raises(UnknownPlugin, match="'echo' version '1'"):
        replay(recorded, {})
    with pytest.raises(UnknownPlugin):
        replay(recorded, {"echo": replace(ECHO, version="2")})


def test_an_empty_log_is_identical() -> None:
    result = replay([])
    assert (result.identical, result.commands, result.session_s) == (True, 0, 0.0)


# -- who decided ---------------------------------------------------------------------------------------------


def source(code: Code) -> str:
    """The line that a place in the core names."""
    return linecache.getline(str(Path(core.__file__).parent.parent / code.file), code.line)


async def test_what_decided_is_named_by_its_place_in_the_core() -> None:
    recorded = await conversation()
    at = next(index for index, entry in enumerate(recorded) if isinstance(entry.command, CommitInput))
    recorded[at] = replace(recorded[at], events=recorded[at].events[:-1])
    difference = replay(recorded).first_difference
    assert difference is not None
    assert "def commit_input" in source(difference.handler)
    outer, inner = difference.decided_by[0], difference.decided_by[-1]
    assert outer.function == difference.handler.function
    assert "emit(" in source(inner)
    for code in difference.decided_by:
        assert str(code).startswith(f"{code.file}:{code.line} {code.function}")


def test_everything_is_decided_aloud_as_it_is_decided() -> None:
    for log in (talks(), talks(suspecting=True)):
        session = core.new()
        for entry in log:
            decided = decide_aloud(session, entry.command, entry.at, REGISTRY)
            assert decided.events == list(entry.events)
            assert decided.refused is None
            for path in decided.paths:
                assert path
                assert source(path[-1]).strip()
            core.fold([entry], session)
    assert sys.getprofile() is None


def talks(*, suspecting: bool = False) -> list[Transaction]:
    """A conversation with an interruption, a refusal and a close."""
    world = World(vad=replace(QUICK_VAD, false_interruption=suspecting))
    for score in [20] * 3 + [900] * 10 + [20] * 12:
        world.append(1, score=score)
    world.produce("All is well.", 300)
    for score in [900] * 3 + [20] * 12:
        world.append(1, score=score)
    world.produce("And so on.", 300)
    world.do(CancelResponse(attachment=1, response_id="nobody"))
    world.close()
    return world.log


def test_what_a_client_is_refused_is_traced_to_who_refused_it() -> None:
    log = talks()
    at = next(index for index, entry in enumerate(log) if isinstance(entry.command, CancelResponse))
    (refusal,) = log[at].events
    assert isinstance(refusal, ErrorReported)
    log[at] = replace(log[at], events=(replace(refusal, code="other"),))
    difference = replay(log).first_difference
    assert difference is not None
    assert difference.fields == [Change("code", "other", refusal.code)]
    assert difference.decided_by[0].function == "creating.cancel_response"


def test_a_control_that_would_be_refused_now_says_so() -> None:
    log = talks()
    assert isinstance(log[0].command, OpenSession)
    log[0] = replace(log[0], command=replace(log[0].command, plugin="echo", plugin_version="7"))
    difference = replay(log, {**REGISTRY, "echo": replace(ECHO, version="7")}).first_difference
    assert difference is not None
    again = replay([*log[:1], replace(log[0], seq=2)]).first_difference
    assert again is not None


def test_rules_that_a_docstring_names_are_named() -> None:
    assert handler(AckPlayback(attachment=1, played_ms=1)).rules == ("I6", "I7", "I12")
    assert handler(CommitInput(attachment=1)).file == "sessions/committing.py"
    assert rules_of(Interrupted(epoch=1, cause="barge_in", requests=())) == ("G34", "F23", "A10")


def test_a_state_that_a_recorded_event_spoils_says_where() -> None:
    log = talks()
    at = next(index for index, entry in enumerate(log) if isinstance(entry.command, CancelResponse))
    session = core.fold(log[:at])
    session.requests.clear()
    with pytest.raises(KeyError) as spoiled:
        core.fold(log[at:], session)
    assert path_of(spoiled.value)[-1].file.startswith("sessions/")


def test_events_that_cannot_follow_have_no_state_around_them() -> None:
    log = talks()
    ended_one = next(event for entry in log for event in entry.events if isinstance(event, ResponseEnded))
    log[1] = replace(log[1], events=(ended_one,))
    difference = replay(log).first_difference
    assert difference is not None
    assert [
        (around.recorded, around.before) for around in difference.around if around.recorded != around.before
    ] == []


def test_a_fault_of_the_core_is_a_difference_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("gone")

    log = talks()
    at = next(entry for entry in log if isinstance(entry.command, CancelResponse))
    monkeypatch.setattr("antiphon.sessions.creating.refuse", broken)
    difference = replay(log).first_difference
    assert difference is not None
    assert (difference.seq, difference.index, difference.failed) == (at.seq, 0, "KeyError: 'gone'")
    assert difference.decided_by[-1].function == "creating.cancel_response"
    assert difference.expected is not None
    assert difference.actual is None


def test_a_log_that_nobody_can_have_recorded_is_a_difference() -> None:
    log = talks()
    for event in (entry.events[0] for entry in log):
        spoiled = [log[0], replace(log[1], seq=2, events=(event,)), *log[2:]]
        result = replay(spoiled)
        assert result.identical == (event == log[1].events[0] and len(log[1].events) == 1)
    absurd = [log[0], replace(log[1], at=1 << 80)]
    replay(absurd)


def test_who_waits_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.engine.replay.STEP", 10)
    told: list[int] = []
    log = talks()
    replay(log, told=told.append)
    assert told == [10] * (len(log) // 10)
