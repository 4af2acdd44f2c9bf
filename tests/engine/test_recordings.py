"""Reference audio: it travels beside the command, lies beside the log, and reaches every request of a model."""

import pytest

from antiphon.engine.direct import DirectClient
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Resumption, with_recording
from antiphon.events.audio import SampleRef
from antiphon.events.commands import OpenSession, StageProduced
from antiphon.events.config import ConfigPatch
from antiphon.events.events import AnyEvent, ConfigUpdated, ErrorReported, SessionOpened
from antiphon.sessions.plugins import ECHO, MINICPM
from antiphon.stages.base import Submit
from antiphon.stages.scripted import Hang, ScriptedStage, Take

from .worlds import MoodyLog, World, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

VOICE = b"\x01\x10" * 16_000
OTHER = b"\x02\x20" * 8_000
TALK = ConfigPatch(auto_response=True)
SECOND = b"\0\x20" * 16_000


def recordings(events: list[AnyEvent]) -> list[SampleRef | None]:
    """Where the recordings of the published configurations lie."""
    updated = [event.config.ref_audio for event in events if isinstance(event, ConfigUpdated)]
    return [None if recording is None else recording.ref for recording in updated]


def submitted(here: World) -> Submit:
    return [message for message in here.scripted.messages if isinstance(message, Submit)][-1]


def codes(events: list[AnyEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, ErrorReported)]


@rule("N34", "N5", "L13")
async def test_a_voice_given_at_opening_lies_beside_the_log_and_reaches_the_stage() -> None:
    async with world(plugin=MINICPM) as here, DirectClient(here.hub, patch=TALK, recording=VOICE) as client:
        ref = SampleRef("ref", 0, len(VOICE))
        assert await here.log.samples.read(client.session, ref) == VOICE
        client.append_audio(SECOND, speech=True)
        await settle()
        submit = submitted(here)
        assert submit.payload.ref_audio == ref
        assert dict(submit.sound)[ref] == VOICE
        (opened,) = [event for event in await here.events(client.session) if isinstance(event, SessionOpened)]
        (asked,) = await here.commands(client.session, OpenSession)
        assert isinstance(asked, OpenSession)
        assert opened.view.config.ref_audio == asked.config.ref_audio, "a place and a sum, no sound"


@rule("N34", "L6", "N6")
async def test_it_may_be_replaced_before_the_first_input_and_repeated_after_it() -> None:
    listening = ScriptedStage(default=(Take(), Hang()))
    async with (
        world(listening, plugin=MINICPM) as here,
        DirectClient(here.hub, patch=TALK, recording=VOICE) as client,
    ):
        client.update_session(ConfigPatch(), recording=OTHER)
        client.update_session(ConfigPatch(), recording=OTHER)
        client.append_audio(SECOND, speech=True)
        client.update_session(ConfigPatch(), recording=OTHER)
        client.update_session(ConfigPatch(), recording=VOICE)
        await settle()
        events = await here.events(client.session)
        place = SampleRef("ref", len(VOICE), len(OTHER))
        assert recordings(events) == [place] * 3
        assert await here.log.samples.read(client.session, place) == OTHER
        assert codes(events) == ["ref_audio_update_unsupported"]
        assert dict(submitted(here).sound)[place] == OTHER


@rule("N34")
async def test_a_model_that_takes_none_refuses_it() -> None:
    async with world(plugin=ECHO) as here, DirectClient(here.hub) as client:
        client.update_session(ConfigPatch(instructions="x"), recording=VOICE)
        await settle()
        events = await here.events(client.session)
        assert codes(events) == ["unsupported"]
        assert recordings(events) == []


@rule("N34", "K15")
async def test_after_a_restart_it_comes_from_the_store() -> None:
    log = MoodyLog()
    async with world(plugin=MINICPM, log=log) as here:
        before = await here.hub.open(opening(patch=with_recording(TALK, VOICE), recording=VOICE))
    async with world(plugin=MINICPM, log=log) as here:
        assert before.token is not None
        resumption = Resumption(session=before.session, token=before.token, control_id="again")
        after = await here.hub.resume(resumption)
        after.append(AppendRequest(data=SECOND, speech=True))
        await settle()
        ref = SampleRef("ref", 0, len(VOICE))
        assert dict(submitted(here).sound)[ref] == VOICE


@rule("N34", "E38")
async def test_what_a_stage_says_as_an_update_that_waited_takes_effect_is_no_recording() -> None:
    async with (
        world(ScriptedStage(default=(Hang(), Take())), plugin=MINICPM) as here,
        DirectClient(here.hub, patch=TALK, recording=VOICE) as client,
    ):
        client.append_audio(SECOND, speech=True)
        client.update_session(ConfigPatch(speed=1.1))
        await settle()
        runner = here.hub._live[client.session].runner  # pyright: ignore[reportPrivateUsage]
        (unit,) = runner.session.input.stream.in_flight
        assert runner.session.input.stream.held
        said = b"\x03\x30" * (len(VOICE) // 2)
        report = StageProduced(request=unit.taken.request, size=len(said), operation=unit.taken.operation)
        runner.post(report, said)
        await settle()
        ref = SampleRef("ref", 0, len(VOICE))
        assert recordings(await here.events(client.session)) == [ref]
        assert await here.log.samples.read(client.session, ref) == VOICE


def test_no_recording_leaves_a_patch_alone() -> None:
    assert with_recording(TALK, b"") is TALK
