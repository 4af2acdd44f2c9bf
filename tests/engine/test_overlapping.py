"""Turns beside each other: the stage says which of its stages has ended, the plugin what that means."""

import pytest

from antiphon.engine.direct import DirectClient
from antiphon.events.events import AudioDelta, ResponseCreated, ResponseEnded
from antiphon.sessions.plugins import AURA
from antiphon.stages.scripted import Cue, Finish, Inner, Say, ScriptedStage

from .worlds import World, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

PICTURE = b"\x89PNG\r\n\x1a\n" + b"p" * 100
SPEECH = b"\x00\x20" * 4_800
ANSWERS = {
    0: (Say("One, ", 100), Inner(0), Cue("written"), Inner(1), Cue("spoken"), Say("two.", 100), Finish()),
    1: (Say("Three.", 100), Finish()),
}


def ask(client: DirectClient) -> None:
    client.append_audio(SPEECH, speech=True, frames=(PICTURE,))
    client.commit(create_response=True)


async def said(here: World, client: DirectClient) -> list[tuple[str, str]]:
    """What was spoken, and of which answer."""
    events = await here.events(client.session)
    return [(event.response_id, event.text) for event in events if isinstance(event, AudioDelta)]


@rule("H2", "H3", "N16", "N17", "N55")
async def test_the_next_turn_begins_behind_the_stage_that_the_plugin_names() -> None:
    stage = ScriptedStage(scripts=ANSWERS)
    async with world(stage, plugin=AURA) as here, DirectClient(here.hub) as client:
        ask(client)
        ask(client)
        await settle()
        assert len(stage.requests) == 1, "the end of the first stage means nothing"
        stage.cue("written")
        await settle()
        assert len(stage.requests) == 2
        stage.cue("spoken")
        await settle()
        events = await here.events(client.session)
        one, two = [event.head.id for event in events if isinstance(event, ResponseCreated)]
        assert await said(here, client) == [(one, "One, "), (two, "Three."), (one, "two.")]
        ended = [(event.head.id, event.status) for event in events if isinstance(event, ResponseEnded)]
        assert ended == [(two, "completed"), (one, "completed")]
