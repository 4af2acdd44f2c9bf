"""Replay: the same commands give the same events, and a difference is found where it was planted."""

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.engine.errors import UnknownPlugin
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.replay import replay
from antiphon.events.commands import CancelResponse, CommitInput
from antiphon.events.events import AudioDelta, ResponseEnded
from antiphon.events.log import Transaction, from_json, to_json
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage

from .worlds import ask, opening, settle, world
from tests.rules import rule

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
    longer = replace(recorded[1], events=(*recorded[1].events, *recorded[1].events))
    found = replay([recorded[0], longer]).first_difference
    assert found is not None
    assert found.actual is None


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
