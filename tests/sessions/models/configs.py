"""Configurations and refusals of the models' own rules."""

import json
from collections.abc import Callable

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import Recording, SampleRef
from antiphon.events.config import SessionConfig
from antiphon.sessions.models.base import SessionPlugin
from antiphon.sessions.refusal import Refusal

from tests.sessions.world import World

VOICE = Recording(SampleRef("ref", 0, 2 * 16_000), 7)
"""A second of reference audio."""

Refused = tuple[str, str | None]
"""A code and a param."""


def config(**options: object) -> SessionConfig:
    """Return a configuration with options of `extra_body`."""
    return SessionConfig(model="m", extras={key: json.dumps(value) for key, value in options.items()})


def changed(base: SessionConfig, **fields: object) -> SessionConfig:
    """Return a configuration with other fields."""
    return msgspec.structs.replace(base, **fields)


def options(settled: SessionConfig) -> dict[str, object]:
    """Return the options that hold."""
    return {key: json.loads(text) for key, text in settled.extras.items()}


def refused(call: Callable[[], object]) -> Refused:
    """Return how a call was refused."""
    with pytest.raises(Refusal) as caught:
        call()
    assert caught.value.message
    return caught.value.code, caught.value.param


def opening(plugin: SessionPlugin, given: SessionConfig) -> SessionConfig:
    """Return what a session would be opened with.

    Raises:
        Refusal: it would not be opened.
    """
    settled = plugin.settled(given)
    assert plugin.settled(settled) == settled, "settling twice is settling once"
    plugin.check(settled)
    return settled


def hear(here: World, *, speech: bool = True) -> list[ev.AnyEvent]:
    """Send a whole unit of sound; for a model of turns, 96 ms."""
    plugin = here.plugins[here.session.plugin]
    samples = plugin.unit or 1_536
    here.wait(samples * 1000 // plugin.capabilities.input_format.rate)
    size = plugin.capabilities.input_format.width * samples
    frames = (40,) if "video" in plugin.capabilities.required_input_modalities else ()
    sound = cmd.AppendAudio(
        attachment=here.attachment, size=size, wire_bytes=size + sum(frames), frames=frames, speech=speech
    )
    return here.do(sound)
