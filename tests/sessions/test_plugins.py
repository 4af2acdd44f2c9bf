"""The session half of the models: what every one of them promises."""

import msgspec
import pytest

from antiphon.events.config import Sampling, SessionConfig
from antiphon.sessions.models.base import PRIVATE_KEYS
from antiphon.sessions.models.extras import public, read
from antiphon.sessions.plugins import OPENAI_VOICES, REGISTRY
from antiphon.sessions.refusal import Refusal


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    count: int = 0
    mode: str = "a"


def test_plugins_stand_under_their_names() -> None:
    assert {name: plugin.name for name, plugin in REGISTRY.items()} == {name: name for name in REGISTRY}
    assert all(plugin.version for plugin in REGISTRY.values())


@pytest.mark.parametrize("name", ["echo", "cascade"])
def test_n6_known_voices_are_taken_and_others_refused(name: str) -> None:
    plugin = REGISTRY[name]
    for voice in (*plugin.capabilities.voices, *OPENAI_VOICES):
        plugin.check(SessionConfig(model="m", voice=voice))
    with pytest.raises(Refusal) as refused:
        plugin.check(SessionConfig(model="m", voice="x" * 100))
    assert (refused.value.code, refused.value.param) == ("bad_event", "session.audio.output.voice")
    assert "x" * 65 not in refused.value.message


@pytest.mark.parametrize("key", sorted(PRIVATE_KEYS))
def test_l12_private_options_are_refused(key: str) -> None:
    with pytest.raises(Refusal) as refused:
        REGISTRY["cascade"].check(SessionConfig(model="m", extras={key: "1"}))
    assert refused.value.code == "invalid_duplex_runtime_config"
    assert refused.value.param == f"session.extra_body.{key}"
    assert public({key: "1", "top_p": "0.5"}, PRIVATE_KEYS) == {"top_p": "0.5"}


def test_n4_options_are_read_by_type_and_the_first_wrong_one_is_named() -> None:
    assert read({"count": "3", "other": "[]"}, _Options) == _Options(count=3)
    with pytest.raises(Refusal) as refused:
        read({"mode": "1", "count": '"x"'}, _Options, {"mode": "invalid_mode"})
    assert (refused.value.code, refused.value.param) == (
        "invalid_duplex_runtime_config",
        "session.extra_body.count",
    )
    with pytest.raises(Refusal) as refused:
        read({"mode": "1"}, _Options, {"mode": "invalid_mode"})
    assert refused.value.code == "invalid_mode"


def test_n2_the_clients_options_reach_the_language_stage() -> None:
    config = SessionConfig(
        model="m", temperature=0.5, max_output_tokens=9, extras={"top_p": "0.25", "top_k": "4", "seed": "7"}
    )
    (chosen,) = REGISTRY["cascade"].sampling(config)
    assert chosen == Sampling(temperature=0.5, max_tokens=9, top_p=0.25, top_k=4, seed=7)
