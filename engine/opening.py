"""What callers ask of the hub, and the commands that these become."""

import hmac

import msgspec
from msgspec import Struct, UnsetType
from msgspec.structs import replace

from antiphon.events.commands import AnyCommand, OpenSession, ResumeSession
from antiphon.events.config import ConfigPatch, Dialect, merged
from antiphon.events.ids import new_session_id
from antiphon.sessions import core
from antiphon.sessions.plugins import SessionPlugin

from .clock import Clock
from .defaults import default_config, default_limits, resumable, session_prefix
from .errors import Refused, Resync
from .feed import Feed
from .runner import Prepare
from .settings import HubSettings
from .tokens import digest, token

_encode = msgspec.msgpack.Encoder().encode


class Opening(Struct, frozen=True, kw_only=True):
    """A new session, please. `by_update`: a client's `session.update` asks for it and is to be answered.

    The same `control_id` with the same content gives the same session (B19). `wants_resume` False: the session
    shall end with its connection, whatever its dialect.
    """

    dialect: Dialect
    control_id: str
    model: str | None = None
    patch: ConfigPatch = ConfigPatch()
    by_update: bool = False
    event_id: str | None = None
    wants_resume: bool = True

    @property
    def body(self) -> bytes:
        """All but the control id, for telling a repetition from another request."""
        return _encode(replace(self, control_id=""))


class Resumption(Struct, frozen=True, kw_only=True):
    """A new connection for a session; `last_number` is the last public number that its client saw."""

    session: str
    token: str
    control_id: str
    last_number: int = 0


def model_name(opening: Opening, settings: HubSettings) -> str:
    """Return the model that the session shows.

    Raises:
        Refused: `model_not_found`.
    """
    patched = opening.patch.model
    asked = opening.model or ("" if isinstance(patched, UnsetType) else patched)
    if not asked or settings.wildcard or asked in (settings.served_model, *settings.aliases):
        return asked or settings.served_model
    raise Refused("model_not_found", f"There is no model {asked[:64]!r}.", param="model")


def opening_command(
    opening: Opening, plugin: SessionPlugin, settings: HubSettings, clock: Clock, secret: bytes
) -> OpenSession:
    """Return the command that opens a session with a new id.

    Raises:
        Refused: `model_not_found`, or the plugin's or the core's refusal of the configuration.
    """
    model = model_name(opening, settings)
    capabilities = plugin.capabilities
    keeps = opening.wants_resume and resumable(opening.dialect, capabilities)
    # What is advertised is enforced (DESIGN 5.8), and only the duplex dialect can resume.
    capabilities = replace(capabilities, supports_session_resume=keeps)
    voice = capabilities.voices[0] if capabilities.voices else "default"
    config = default_config(opening.dialect, settings, capabilities, model=model, voice=voice)
    session = new_session_id(session_prefix(opening.dialect))
    command = OpenSession(
        session=session,
        control_id=opening.control_id,
        dialect=opening.dialect,
        plugin=plugin.name,
        plugin_version=plugin.version,
        capabilities=capabilities,
        config=replace(merged(config, opening.patch), model=model),
        limits=default_limits(opening.dialect, settings),
        wall_us=clock.wall_us(),
        token_digest=digest(token(secret, session, 1)) if keeps else None,
        by_update=opening.by_update,
        event_id=opening.event_id,
    )
    try:
        core.decide(core.new(), command, 0, {plugin.name: plugin})
    except core.Refusal as refusal:
        raise Refused(refusal.code, refusal.message, param=refusal.param) from None
    return command


def resume_command(resumption: Resumption) -> ResumeSession:
    """Return the command; its new token's digest is filled in when it is decided."""
    return ResumeSession(
        control_id=resumption.control_id,
        presented=digest(resumption.token),
        next_digest="",
        last_number=resumption.last_number,
    )


def resume_preparation(feed: Feed, secret: bytes, settings: HubSettings) -> Prepare:
    """Return what completes a resume just before it is decided.

    The token follows from the attachment that the session will then have. The check for a gap stands between
    the checks of the core (WIRE 8.3): a wrong token must hear that, and nothing about the journal.
    """

    def prepare(session: core.Session, command: AnyCommand) -> AnyCommand:
        if not isinstance(command, ResumeSession):
            return command
        lease = session.lease
        known = [held for held in (lease.token, lease.previous_token) if held is not None]
        fits = any(hmac.compare_digest(held, command.presented) for held in known)
        repeated = command.control_id in lease.controls
        if fits and not repeated and not feed.replayable(command.last_number, settings.replay_bytes):
            raise Resync(session.id, "journal_gap")
        return replace(command, next_digest=digest(token(secret, session.id, lease.attachment + 1)))

    return prepare
