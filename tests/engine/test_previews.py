"""The running transcript through the whole engine: the stage hears what was said so far, its words end the turn."""

import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.direct import DirectClient
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.replay import replay
from antiphon.events.commands import StageTranscribed
from antiphon.events.config import ConfigPatch, TurnDetection
from antiphon.events.events import (
    EngineRestarted,
    PreviewDropped,
    ResponseCreated,
    SpeechStopped,
    TurnPreviewed,
    UserTranscribed,
)
from antiphon.sessions.plugins import CASCADE
from antiphon.stages.base import Abort, Submit
from antiphon.stages.scripted import Crash, Cue, Fail, Finish, Hang, Script, ScriptedStage, Transcribe

from .worlds import MoodyLog, World, killed, opening, resumption, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

SEMANTIC = ConfigPatch(turn_detection=TurnDetection(type="semantic_vad", eagerness="medium"), auto_response=True)
LOUD = b"\x00\x20" * 512
QUIET = bytes(1024)


async def speak(here: World, client: DirectClient, frame: bytes, frames: int) -> None:
    """Send frames of 32 ms as a microphone does: in time."""
    for _ in range(frames):
        client.append_audio(frame)
        await here.advance(32)


async def reason(here: World, client: DirectClient) -> str | None:
    """Return why the turn has ended; None: it has not."""
    events = await here.events(client.session)
    return next((event.reason for event in events if isinstance(event, SpeechStopped)), None)


def asked(stage: ScriptedStage) -> list[Submit]:
    return [m for m in stage.messages if isinstance(m, Submit) and m.payload.purpose == "transcribe"]


def heard(text: str) -> Script:
    return (Transcribe(text, final=False), Finish())


async def test_the_stage_is_given_the_sound_so_far_and_its_words_decide() -> None:
    stage = ScriptedStage(previews={0: heard("I would like to"), 1: heard("I would like to go.")})
    async with world(stage, plugin=CASCADE) as here, DirectClient(here.hub, patch=SEMANTIC) as client:
        await speak(here, client, LOUD, 12)
        await speak(here, client, QUIET, 60)
        assert await reason(here, client) is None, "nearly two seconds, and the sentence is not finished"
        await speak(here, client, LOUD, 12)
        await speak(here, client, QUIET, 20)
        assert await reason(here, client) == "sentence_complete"
        first, second = asked(stage)
        ((ref, sound),) = first.sound
        assert (len(sound), sound[:1024], sound[-1024:]) == (ref.size, LOUD, QUIET)
        assert second.sound[0][0].start == ref.start
        events = await here.events(client.session)
        told = [(event.text, event.rule) for event in events if isinstance(event, TurnPreviewed)]
        assert told == [("I would like to", "leading_word"), ("I would like to go.", "end_mark")]
        (answer,) = [m for m in stage.messages if isinstance(m, Submit) and m.payload.purpose == "answer"]
        assert answer.sound == (), "its words are known"
        assert [event.text for event in events if isinstance(event, UserTranscribed)] == ["I would like to go."]
        assert stage.live == []


@rule("K20", "P13")
async def test_a_question_that_is_under_way_when_the_turn_ends_is_aborted() -> None:
    stage = ScriptedStage(previews={0: (Hang(),)})
    async with world(stage, plugin=CASCADE) as here, DirectClient(here.hub, patch=SEMANTIC) as client:
        await speak(here, client, LOUD, 12)
        await speak(here, client, QUIET, 40)
        assert await reason(here, client) == "no_transcript"
        (question,) = asked(stage)
        aborted = [request for m in stage.messages if isinstance(m, Abort) for request in m.requests]
        assert aborted == [question.request]
        assert stage.live == []


@pytest.mark.parametrize("script", [(Crash(),), (Fail(),), (Finish(),)], ids=["crash", "fail", "nothing"])
async def test_a_question_that_comes_to_nothing_costs_nothing(script: Script) -> None:
    stage = ScriptedStage(previews={0: script})
    async with world(stage, plugin=CASCADE) as here, DirectClient(here.hub, patch=SEMANTIC) as client:
        await speak(here, client, LOUD, 12)
        await speak(here, client, QUIET, 40)
        assert await reason(here, client) == "no_transcript"
        events = await here.events(client.session)
        assert [event for event in events if isinstance(event, ResponseCreated)]
        assert stage.live == []


async def test_a_late_answer_is_nobodys() -> None:
    stage = ScriptedStage(previews={0: (Cue("slow"), *heard("I would like to"))})
    async with world(stage, plugin=CASCADE) as here, DirectClient(here.hub, patch=SEMANTIC) as client:
        await speak(here, client, LOUD, 12)
        await speak(here, client, QUIET, 10)
        client.clear_input()
        await settle()
        stage.cue("slow")
        await settle()
        assert await here.commands(client.session, StageTranscribed) == []
        events = await here.events(client.session)
        assert not [event for event in events if isinstance(event, TurnPreviewed)]
        assert [event for event in events if isinstance(event, PreviewDropped)]


@rule("P2")
async def test_the_log_decides_the_same_again_without_samples() -> None:
    stage = ScriptedStage(previews={0: heard("What is the time?")})
    async with world(stage, plugin=CASCADE) as here, DirectClient(here.hub, patch=SEMANTIC) as client:
        await speak(here, client, LOUD, 12)
        await speak(here, client, QUIET, 20)
        assert await reason(here, client) == "sentence_complete"
        assert replay(await here.recorded(client.session), {"cascade": CASCADE}).identical


@rule("P6")
async def test_a_restart_forgets_the_question_and_the_next_one_hears_what_was_said_before() -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with killed(ScriptedStage(previews={0: (Hang(),)}), log, clock, plugin=CASCADE) as hub:
        old = await hub.open(opening(patch=SEMANTIC))
        old.append(AppendRequest(data=LOUD * 12))
        old.append(AppendRequest(data=QUIET * 10))
        await settle()
        before = hub.session(old.session)
        assert before is not None
        (question,) = before.requests
    clock.advance(1_000_000)
    stage = ScriptedStage(clock, previews={0: heard("What is the time?")})
    async with world(stage, log=log, clock=clock, plugin=CASCADE) as here:
        events = await here.events(old.session)
        (restarted,) = [event for event in events if isinstance(event, EngineRestarted)]
        assert restarted.lost == (question,)
        new = await here.hub.resume(resumption(old))
        new.append(AppendRequest(data=LOUD * 4))
        new.append(AppendRequest(data=QUIET * 10))
        await settle()
        new.append(AppendRequest(data=QUIET * 10))
        await settle()
        ((ref, sound),) = asked(stage)[0].sound
        assert ref.size == len(sound) == 36 * 1024, "what was said before lies in the store"
        events = await here.events(old.session)
        (stop,) = [event for event in events if isinstance(event, SpeechStopped)]
        assert stop.reason == "sentence_complete"
