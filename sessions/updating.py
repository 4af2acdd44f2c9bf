"""Decisions about the configuration: one update, all of it or nothing (BEHAVIOURS L)."""

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import Recording, SampleRef
from antiphon.events.config import ConfigPatch, Dialect, SessionConfig, merged, overlap_policy

from .checking import check_config
from .draft import Draft
from .feeding import go_on
from .plugins import Registry
from .refusal import Refusal, refuse
from .state import Session
from .view import view


def update_session(draft: Draft, command: cmd.UpdateSession) -> None:
    """Merge the patch into a copy, check the copy, and publish it in one event (L1, L2).

    Formats and turn detection come first, then what is fixed, what a resident model has in its memory, and last the
    model's own check. Everything can refuse; what is running then goes on as it was.
    """
    session = draft.session
    plugin = draft.plugins[session.plugin]
    config = patched(session.config, command.patch, session.dialect, _first_voice(session))
    try:
        config = plugin.settled(placed(session, config))
        _check_fixed(session, command.patch, config)
        plugin.check_update(session.config, config, locked=session.locked, started=session.started)
    except _FAULTS as fault:
        refuse("runtime_signal_failed", f"The model could not take the update: {type(fault).__name__}.")
    publish(draft, config)


_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError)
"""What a model's own check may raise by a fault of its own (L6, last row)."""


def placed(session: Session, config: SessionConfig) -> SessionConfig:
    """Return the configuration with a place for the recording that came with it, if it is another one."""
    new, known = config.ref_audio, session.config.ref_audio
    if new is None or new is known:
        return config
    kept = known if new.same(known) else Recording(SampleRef("ref", session.recorded, new.ref.size), new.crc)
    return replace(config, ref_audio=kept)


def publish(draft: Draft, config: SessionConfig) -> None:
    """Draft that a checked configuration is in force."""
    session = draft.session
    draft.emit(
        ev.ConfigUpdated(
            number=draft.number,
            count=1,
            generation=session.config_generation + 1,
            config=config,
            view=view(session, config=config),
        )
    )
    if config.auto_response != session.config.auto_response:
        go_on(draft)  # what was said before a model began to listen is as much of a unit as what comes (P30)


def patched(config: SessionConfig, patch: ConfigPatch, dialect: Dialect, first_voice: str) -> SessionConfig:
    """Return the configuration with the patch in place, and the overlap policy that its turn detection implies.

    `first_voice` is what a cleared voice becomes.

    Raises:
        Refusal: a value that no session can have, or an overlap policy that contradicts the detection (WIRE 4.5).
    """
    config = merged(config, patch)
    if patch.voice is None:
        config = replace(config, voice=first_voice)
    check_config(config, dialect)
    implied = overlap_policy(config.turn_detection)
    if patch.overlap_policy not in (UNSET, implied):
        refuse(
            "unsupported_turn_detection",
            "The overlap policy contradicts the turn detection.",
            "session.overlap_policy",
        )
    return merged(config, ConfigPatch(overlap_policy=implied))


def upcoming(session: Session, plugins: Registry) -> SessionConfig:
    """Return the configuration for what comes behind the updates that wait (E38): the one that they ask for.

    Whoever sends behind an update means it; one that no session can have is passed over.
    """
    config = session.config
    for held in session.input.stream.held:
        if isinstance(held.command, cmd.UpdateSession):
            try:
                patch = held.command.patch
                config = plugins[session.plugin].settled(
                    patched(config, patch, session.dialect, _first_voice(session))
                )
            except (Refusal, *_FAULTS):
                continue
    return config


def _first_voice(session: Session) -> str:
    voices = session.capabilities.voices
    return voices[0] if voices else "default"


# -- what cannot change (L6, L8, L11; WIRE 4.7) ----------------------------------------------------------------


def _check_fixed(session: Session, patch: ConfigPatch, config: SessionConfig) -> None:
    """Refuse to change what is fixed; to repeat it is fine."""
    current = session.config
    if current.model and patch.model not in (UNSET, current.model):
        refuse("model_update_unsupported", "The model of a session cannot be changed.", "session.model")
    if config.playback_policy != current.playback_policy:
        refuse(
            "playback_policy_update_unsupported",
            "The playback policy is fixed at opening.",
            "session.playback_commit_policy",
        )
    if config.voice != current.voice and session.output.position > 0:
        refuse(
            "voice_update_after_audio_unsupported",
            "Cannot update a conversation's voice if assistant audio is present.",
            "session.audio.output.voice",
        )
    before = current.echo.get("tracing", "null")
    if before not in ("null", config.echo.get("tracing")):
        refuse("bad_event", "Tracing cannot be changed once it is set.", "session.tracing", "value")
    seeded = "initial_user_text"
    if config.echo.get(seeded, "null") != current.echo.get(seeded, "null") and session.started:
        refuse("bad_event", "The opening words are fixed once there is input.", f"session.{seeded}", "value")
