"""A change of the configuration in a fork: of a record only some fields, and later updates do not undo it."""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import OpenSession, UpdateSession
from antiphon.events.config import ConfigPatch, SessionConfig, Transcription, TurnDetection
from antiphon.sessions import core

Wanted = Mapping[str, object]
"""What shall be otherwise: fields of the configuration by their name, as JSON; of a record only some."""

_RECORDS: Mapping[str, type[Struct]] = {
    "turn_detection": TurnDetection,
    "transcription": Transcription,
    "input_format": AudioFormat,
    "output_format": AudioFormat,
}
_TEXTS = frozenset({"tools", "tool_choice"})
"""Fields that hold a JSON document as text."""
_BY_KEY = frozenset({"echo", "extras"})
"""Fields that hold one for each key."""
_FIXED = frozenset({"model", "ref_audio", "unknown", "playback_policy", "overlap_policy"})


class PatchError(Exception):
    """A configuration cannot be changed so: why, and what would do."""


def parse(text: str | bytes) -> Wanted:
    """Return what a JSON object asks for.

    Raises:
        PatchError: it is none, or names a field that no configuration or no such record has.
    """
    try:
        wanted = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        raise PatchError(f"the configuration to change is a JSON object of fields: {error}") from None
    known = [name for name in ConfigPatch.__struct_fields__ if name not in _FIXED]
    for name, value in wanted.items():
        if name not in known:
            raise PatchError(f"there is no field {name!r} to change; there are {', '.join(known)}")
        if name in _RECORDS and isinstance(value, dict):
            fields = _RECORDS[name].__struct_fields__
            unknown = [key for key in msgspec.convert(value, dict[str, object]) if key not in fields]
            if unknown:
                raise PatchError(f"{name} has no field {unknown[0]!r}; it has {', '.join(fields)}")
    if not wanted:
        raise PatchError("there is no field in the configuration to change")
    return wanted


def over(config: SessionConfig, wanted: Wanted) -> ConfigPatch:
    """Return what changes a configuration as wanted.

    Some fields of a record that is not there change nothing, unless they say of which `type` it shall be.

    Raises:
        PatchError: a value of the wrong type.
    """
    return _patch(wanted, {name: msgspec.to_builtins(value) for name, value in _fields(config, wanted)})


def kept(patch: ConfigPatch, wanted: Wanted) -> ConfigPatch:
    """Return a client's update that does not undo what is wanted: only fields that it sets are touched.

    Raises:
        PatchError: a value of the wrong type.
    """
    set_here = {name: value for name, value in _fields(patch, wanted) if value is not UNSET}
    switched_off = {name for name, value in set_here.items() if value is None and isinstance(wanted[name], dict)}
    here = {name: wanted[name] for name in set_here.keys() - switched_off}
    changed = _patch(here, {name: msgspec.to_builtins(set_here[name]) for name in here})
    changes = {name: value for name, value in _fields(changed, here) if value is not UNSET}
    return replace(patch, **changes)


def opened(command: OpenSession, wanted: Wanted) -> OpenSession:
    """Return an opening whose configuration is as wanted from the start.

    Raises:
        PatchError: no session can have it.
    """
    voices = command.capabilities.voices
    first = voices[0] if voices else "default"
    try:
        config = core.patched(command.config, over(command.config, wanted), command.dialect, first)
        if config == core.patched(command.config, ConfigPatch(), command.dialect, first):
            return command
    except core.Refusal as refusal:
        raise PatchError(f"no session can have this configuration: {refusal.message}") from None
    return replace(command, config=config)


def updated(session: core.Session, wanted: Wanted) -> UpdateSession:
    """Return the update that changes the configuration of a session as wanted.

    Raises:
        PatchError: nobody is connected, so nobody could ask for it.
    """
    if not session.lease.attached:
        raise PatchError(
            "nobody is connected where the fork begins, so nothing can be changed there: choose another"
        )
    return UpdateSession(attachment=session.lease.attachment, patch=over(session.config, wanted))


def _fields(record: Struct, wanted: Wanted) -> list[tuple[str, object]]:
    known = msgspec.structs.asdict(record)
    return [(name, known[name]) for name in wanted]


def _patch(wanted: Wanted, current: Mapping[str, object]) -> ConfigPatch:
    changes: dict[str, object] = {}
    for name, value in wanted.items():
        now = current[name]
        if name in _RECORDS and isinstance(value, dict):
            if now is None and name == "turn_detection" and "type" not in value:
                continue
            base = msgspec.convert(now, dict[str, object]) if isinstance(now, dict) else {}
            changes[name] = {**base, **msgspec.convert(value, dict[str, object])}
        elif name in _TEXTS and not isinstance(value, str):
            changes[name] = msgspec.json.encode(value).decode()
        elif name in _BY_KEY:
            by_key = msgspec.convert(value, dict[str, object])
            changes[name] = {key: msgspec.json.encode(inner).decode() for key, inner in by_key.items()}
        else:
            changes[name] = value
    try:
        return msgspec.convert(changes, ConfigPatch)
    except msgspec.ValidationError as error:
        raise PatchError(f"the configuration cannot be changed so: {error}") from None
