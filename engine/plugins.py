"""The session halves of model plugins, by name, for whoever puts a server together."""

from antiphon.events.audio import MAX_RATE, MIN_RATE, AudioFormat
from antiphon.sessions.core import Refusal
from antiphon.sessions.plugins import REGISTRY, check_recording
from antiphon.sessions.plugins import SessionPlugin as SessionPlugin

from .errors import Refused, UnknownPlugin


class Misfit(Exception):
    """The two halves of a model do not fit each other, or one is not whole; the message says what is wrong."""


def check_plugin(plugin: SessionPlugin) -> None:
    """Look at a session half before anything is started (B26): its first session would fail otherwise.

    Raises:
        Misfit: it cannot serve any session.
    """
    able = plugin.capabilities
    faults = {
        "it has no name": not plugin.name.strip(),
        "it has no version": not plugin.version.strip(),
        "it does not hear 16-bit samples": able.input_format.encoding != "pcm16",
        f"it hears {able.input_format.rate} Hz": not MIN_RATE <= able.input_format.rate <= MAX_RATE,
        f"it speaks at {able.output_rate} Hz": not MIN_RATE <= able.output_rate <= MAX_RATE,
        "it has no voice": not able.voices,
        "its unit has no length": able.chunk_period_ms is not None and able.chunk_period_ms <= 0,
        "it has one request for all turns and asks for several at once": (
            able.core_resumable_request and able.supports_concurrent_turn_requests
        ),
        "it takes nothing that a client can send": not able.required_input_modalities,
    }
    for fault, found in faults.items():
        if found:
            raise Misfit(f"the plugin {plugin.name!r} cannot be served: {fault}")


def check_stage(plugin: SessionPlugin, input_format: AudioFormat) -> None:
    """Compare the halves of a model: what the session feeds must be what the stage takes (B26).

    Raises:
        Misfit: it is not.
    """
    feeds = plugin.capabilities.input_format
    if feeds != input_format:
        raise Misfit(
            f"the plugin {plugin.name!r} feeds {feeds.encoding} at {feeds.rate} Hz, and the stage takes "
            f"{input_format.encoding} at {input_format.rate} Hz"
        )


def no_recording(plugin: SessionPlugin) -> Refused | None:
    """Return why the model takes no reference audio, so that none need be read; None: it takes some."""
    try:
        check_recording(plugin)
    except Refusal as refusal:
        return Refused(refusal.code, refusal.message, param=refusal.param)
    return None


def plugin_named(name: str) -> SessionPlugin:
    """Return the plugin of this name.

    Raises:
        UnknownPlugin: there is none.
    """
    plugin = REGISTRY.get(name)
    if plugin is None:
        raise UnknownPlugin(name, "any")
    return plugin
