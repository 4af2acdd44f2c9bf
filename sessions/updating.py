"""Decisions about the configuration: one update, all of it or nothing (BEHAVIOURS L)."""

from msgspec import UNSET

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch, SessionConfig, merged, overlap_policy

from .draft import Draft
from .refusal import refuse
from .state import Session
from .view import view


def update_session(draft: Draft, command: cmd.UpdateSession) -> None:
    """Merge the patch into a copy, check the copy, and publish it in one event."""
    session = draft.session
    patch = command.patch
    _check_fixed(session, patch)
    plugin = draft.plugins[session.plugin]
    config = plugin.settled(patched(session.config, patch))
    plugin.check_update(session.config, config, locked=session.locked, started=session.started)
    draft.emit(ev.ConfigUpdated(number=draft.number, count=1, config=config, view=view(session, config=config)))


def _check_fixed(session: Session, patch: ConfigPatch) -> None:
    config = session.config
    if patch.model not in (UNSET, config.model):
        refuse("model_update_unsupported", "The model of a session cannot be changed.", "session.model")
    if patch.playback_policy not in (UNSET, config.playback_policy):
        refuse(
            "playback_policy_update_unsupported",
            "The playback policy is fixed at opening.",
            "session.playback_commit_policy",
        )
    if patch.voice not in (UNSET, config.voice) and session.output.position > 0:
        refuse(
            "voice_update_after_audio_unsupported",
            "Cannot update a conversation's voice if assistant audio is present.",
            "session.audio.output.voice",
        )


def patched(config: SessionConfig, patch: ConfigPatch) -> SessionConfig:
    """Return the configuration with the patch in place, and the overlap policy that its turn detection implies.

    Raises:
        Refusal: the patch names another one (WIRE 4.5).
    """
    config = merged(config, patch)
    implied = overlap_policy(config.turn_detection)
    if patch.overlap_policy not in (UNSET, implied):
        refuse(
            "unsupported_turn_detection",
            "The overlap policy contradicts the turn detection.",
            "session.overlap_policy",
        )
    return merged(config, ConfigPatch(overlap_policy=implied))
