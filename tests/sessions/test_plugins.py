"""The session half of the models."""

import pytest

from antiphon.events.config import SessionConfig
from antiphon.sessions.plugins import OPENAI_VOICES, REGISTRY
from antiphon.sessions.refusal import Refusal


def test_plugins_stand_under_their_names() -> None:
    assert {name: plugin.name for name, plugin in REGISTRY.items()} == {"echo": "echo", "cascade": "cascade"}
    assert all(plugin.version for plugin in REGISTRY.values())


@pytest.mark.parametrize("name", REGISTRY)
def test_n6_known_voices_are_taken_and_others_refused(name: str) -> None:
    plugin = REGISTRY[name]
    for voice in (*plugin.capabilities.voices, *OPENAI_VOICES):
        plugin.check(SessionConfig(model="m", voice=voice))
    with pytest.raises(Refusal) as refused:
        plugin.check(SessionConfig(model="m", voice="x" * 100))
    assert (refused.value.code, refused.value.param) == ("bad_event", "session.audio.output.voice")
    assert "x" * 65 not in refused.value.message
