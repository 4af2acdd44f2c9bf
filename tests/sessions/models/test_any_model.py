"""Every model through any story: `World` checks the rules after each step, and who may do what is enforced."""

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import Recording, SampleRef
from antiphon.events.config import ConfigPatch
from antiphon.events.items import FunctionCall
from antiphon.sessions.core import Refusal
from antiphon.sessions.plugins import REGISTRY

from tests.rules import rule
from tests.sessions.models.configs import VOICE, hear
from tests.sessions.world import World, capable, error, kinds, only

Deed = Callable[[World], object]

NAMES = ("minicpm-o-4.5", "qwen3-omni", "nemotron-voicechat", "aura", "personaplex")
TOOLS = json.dumps([{"type": "function", "name": "look"}])


def opened(name: str, auto: bool = True) -> World:
    plugin = REGISTRY[name]
    voice = VOICE if plugin.ref_audio == "required" else None
    return World(plugin=name, auto=auto, ref_audio=voice, resumable=plugin.capabilities.supports_session_resume)


def update(**fields: object) -> Deed:
    patch = ConfigPatch(**fields)  # type: ignore[arg-type]
    return lambda here: here.do(cmd.UpdateSession(attachment=here.attachment, patch=patch))


def extra(key: str, value: object) -> Deed:
    return update(extras={key: json.dumps(value)})


def works(here: World) -> str:
    """Some request that a stage may still speak of."""
    return next(reversed(here.session.requests), "none")


def give_output(here: World) -> object:
    calls = [entry.item for entry in here.session.conversation.entries.values()]
    names = [item.call_id for item in calls if isinstance(item, FunctionCall)]
    return here.give_output(names[-1] if names else "none")


def come_back(here: World) -> None:
    try:
        here.detach()
        here.resume()
    except Refusal:
        assert here.session.phase != "open"


DEEDS: Mapping[str, Deed] = {
    "append": hear,
    "silence": lambda here: hear(here, speech=False),
    "commit": lambda here: here.commit(),
    "commit and answer": lambda here: here.commit(create_response=True),
    "clear": lambda here: here.clear(),
    "write": lambda here: here.say("Hello."),
    "respond": lambda here: here.respond(),
    "cancel": lambda here: here.cancel(),
    "barge in": lambda here: here.barge_in(),
    "come back": come_back,
    "restart": lambda here: here.restart(),
    "accept": lambda here: here.do(cmd.StageAccepted(request=works(here))),
    "say": lambda here: here.produce("word ", 80, works(here)),
    "finish": lambda here: here.finish(works(here)),
    "release": lambda here: here.release(),
    "call": lambda here: here.call(index=0, request=works(here), ends=True),
    "output": give_output,
    "own one": lambda here: here.do(cmd.StageOwned(request=works(here), generation=1)),
    "own all": lambda here: here.do(cmd.StageOwned(request=works(here), generation=99)),
    "acknowledge": lambda here: here.ack(40),
    "instruct": update(instructions="Be brief."),
    "instruct otherwise": update(instructions="Be kind."),
    "tools": update(tools=TOOLS),
    "no tools": update(tools="[]"),
    "voice": update(voice="NATM1"),
    "another recording": update(ref_audio=Recording(SampleRef("ref", 0, 3_200), 8)),
    "turns": update(auto_response=False),
    "continuous": extra("full_duplex", True),
    "window": extra("sliding_window_mode", "basic"),
    "wrong window": extra("basic_window_low_tokens", -1),
    "persona": extra("persona", "You sell tea."),
    "speech": extra("tts_task_type", "Base"),
    "private": extra("kv_handle", 1),
    "unknown": extra("mood", "good"),
    "nothing": extra("persona", None),
}


@pytest.mark.parametrize("name", NAMES)
@given(deeds=st.lists(st.sampled_from(sorted(DEEDS)), max_size=30), auto=st.booleans())
@settings(max_examples=40, deadline=None)
@rule("N6", "N7", "N8", "L8", "J12", "J14", "P32")
def test_any_story_keeps_the_rules(name: str, deeds: list[str], auto: bool) -> None:
    here = opened(name, auto or name in ("nemotron-voicechat", "personaplex"))
    for deed in deeds:
        DEEDS[deed](here)
    here.close()
    here.release()
    assert here.session.phase == "closed"


# -- what is advertised is enforced ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@rule("N30", "L15")
def test_a_commit_where_there_is_none(name: str) -> None:
    here = opened(name)
    hear(here)
    events = here.commit()
    told = [event.code for event in events if isinstance(event, ev.ErrorReported)]
    assert (told == ["unsupported"]) == (not REGISTRY[name].capabilities.supports_client_commit)


@pytest.mark.parametrize("name", NAMES)
@rule("N30", "F13")
def test_an_interruption_where_there_is_none(name: str) -> None:
    here = opened(name)
    hear(here)
    here.produce("word", 80, works(here))
    events = here.barge_in()
    told = [event.code for event in events if isinstance(event, ev.ErrorReported)]
    assert (told == ["barge_in_unsupported"]) == (not REGISTRY[name].capabilities.supports_barge_in)


@pytest.mark.parametrize("name", ["nemotron-voicechat", "personaplex", "minicpm-o-4.5"])
@rule("N30", "I15")
def test_truncation_cuts_the_history_and_nothing_else(name: str) -> None:
    here = opened(name)
    hear(here)
    here.produce("One two three four.", 1000, here.resident)
    response = here.session.response
    assert response is not None
    events = here.truncate(response.head.item_id, 500)
    assert kinds(events) == ["ItemTruncated"]
    assert here.effects(events) == [], "the model's own memory is left alone"
    assert here.session.response is response, "and it goes on speaking"
    assert only(events, ev.ItemTruncated).text == "One two"
    here.cancel()
    assert here.heard() == ["One two"]


@rule("N30")
def test_sound_where_there_is_no_input() -> None:
    can = capable(REGISTRY["cascade"].capabilities, supports_input_append=False)
    here = World(capabilities=can)
    assert error(hear(here)) == "invalid_input_modality"


@pytest.mark.parametrize("name", NAMES)
@rule("N34", "L13", "N5")
def test_a_stage_is_given_what_holds_and_a_client_is_shown_none_of_it(name: str) -> None:
    here = opened(name)
    events = hear(here)
    if not REGISTRY[name].capabilities.core_resumable_request:
        events = here.commit(create_response=True)
    (told,) = [effect for effect in here.effects(events) if isinstance(effect, fx.SubmitToStage)]
    config = here.session.config
    assert told.payload.extras == config.extras
    assert told.payload.sampling == REGISTRY[name].sampling(config)
    assert told.payload.instructions == config.instructions
    assert told.payload.ref_audio == (config.ref_audio.ref if config.ref_audio else None)
