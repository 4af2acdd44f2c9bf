"""What callers ask of the hub, and the commands that these become."""

from zlib import crc32

import msgspec
from msgspec import Struct, UnsetType
from msgspec.structs import replace

from antiphon.events.audio import Recording, SampleRef
from antiphon.events.commands import AnyCommand, OpenSession, ResumeSession
from antiphon.events.config import ConfigPatch, Dialect
from antiphon.events.events import SessionOpened, SessionResumed, SessionView
from antiphon.events.ids import EventPosition, session_id
from antiphon.sessions import core
from antiphon.sessions.plugins import SessionPlugin

from .attachment import Granted
from .clock import Clock
from .defaults import default_config, default_limits, resumable, session_prefix
from .errors import Refused
from .feed import Feed
from .inbox import Prepare
from .published import Published
from .settings import HubSettings
from .tokens import Veiled, digest, observer_token, token

_encode = msgspec.msgpack.Encoder().encode


class Opening(Struct, frozen=True, kw_only=True):
    """A new session, please. `by_update`: a client's `session.update` asks for it and is to be answered.

    The same `control_id` with the same content gives the same session (B19). `wants_resume`: whether the session
    shall outlive its connections; None: as its dialect has it. `request`: it is one HTTP request, and takes no
    place of a conversation (B28). `recording` is the sound of the patch's `ref_audio`. `owner` is the public id of
    the API key that the session counts for; at most `sessions` of it may be open.
    """

    dialect: Dialect
    control_id: str
    model: str | None = None
    patch: ConfigPatch = ConfigPatch()
    by_update: bool = False
    event_id: str | None = None
    wants_resume: bool | None = None
    request: bool = False
    recording: bytes = b""
    owner: str = ""
    sessions: int | None = None

    @property
    def body(self) -> bytes:
        """All but the control id, for telling a repetition from another request."""
        return _encode(replace(self, control_id="", recording=b"", sessions=None))


def with_recording(patch: ConfigPatch, sound: bytes) -> ConfigPatch:
    """Return the patch with reference audio in it: pcm16 at 16 kHz; no sound leaves it as it is."""
    if not sound:
        return patch
    return replace(patch, ref_audio=Recording(SampleRef("ref", 0, len(sound)), crc32(sound)))


class Resumption(Veiled, Struct, frozen=True, kw_only=True):
    """A new connection for a session; `last_number` is the last public number that its client saw, or `position`
    the last message, where they have no numbers. `owner` is the public id of the API key that it showed."""

    session: str
    token: str
    control_id: str
    last_number: int = 0
    position: EventPosition | None = None
    owner: str = ""


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


def session_name(opening: Opening, secret: bytes, attempt: int = 0) -> str:
    """Return the session that an opening under this control id makes; `attempt` of them were given up before."""
    return session_id(session_prefix(opening.dialect, request=opening.request), secret, opening.control_id, attempt)


def renamed(command: OpenSession, session: str, secret: bytes) -> OpenSession:
    """Return the command for a session of another name."""
    keeps = command.token_digest is not None
    return replace(command, session=session, token_digest=digest(token(secret, session, 1)) if keeps else None)


def opening_command(
    opening: Opening, plugin: SessionPlugin, settings: HubSettings, clock: Clock, secret: bytes
) -> OpenSession:
    """Return the command that opens the session which belongs to a control id.

    Raises:
        Refused: `model_not_found`, or the plugin's or the core's refusal of the configuration.
    """
    model = model_name(opening, settings)
    capabilities = plugin.deployed(settings.max_sessions)
    keeps = resumable(opening.dialect, capabilities, opening.wants_resume)
    # What is advertised is enforced (DESIGN 5.8).
    capabilities = replace(capabilities, supports_session_resume=keeps)
    voice = capabilities.voices[0] if capabilities.voices else "default"
    config = default_config(opening.dialect, settings, capabilities, model=model, voice=voice)
    session = session_name(opening, secret)
    try:
        command = OpenSession(
            session=session,
            control_id=opening.control_id,
            dialect=opening.dialect,
            plugin=plugin.name,
            plugin_version=plugin.version,
            capabilities=capabilities,
            config=replace(core.patched(config, opening.patch, opening.dialect, voice), model=model),
            limits=default_limits(opening.dialect, settings, request=opening.request),
            wall_us=clock.wall_us(),
            token_digest=digest(token(secret, session, 1)) if keeps else None,
            by_update=opening.by_update,
            event_id=opening.event_id,
            owner=opening.owner,
        )
        core.decide(core.new(), command, 0, {plugin.name: plugin})
    except core.Refusal as refusal:
        raise Refused(refusal.code, refusal.message, param=refusal.param) from None
    return command


def preview(
    opening: Opening, plugin: SessionPlugin, settings: HubSettings, clock: Clock, secret: bytes
) -> SessionView:
    """Return the session that an opening would make, as it would be shown; raises as `opening_command` does."""
    command = opening_command(opening, plugin, settings, clock, secret)
    events = core.decide(core.new(), command, 0, {plugin.name: plugin})
    return next(event.view for event in events if isinstance(event, SessionOpened))


def resume_command(resumption: Resumption) -> ResumeSession:
    """Return the command; what `resume_preparation` knows is filled in when it is decided."""
    return ResumeSession(
        control_id=resumption.control_id,
        presented=digest(resumption.token),
        next_digest="",
        last_number=resumption.last_number,
        position=resumption.position,
        owner=resumption.owner,
    )


def resume_preparation(feed: Feed, secret: bytes) -> Prepare:
    """Return what completes a resume just before it is decided.

    The token follows from the attachment that the session will then have. Whether messages are missing is for
    the core to say, at its place among the checks (D22): a wrong token must hear that, and nothing else.
    """

    def prepare(session: core.Session, command: AnyCommand) -> AnyCommand:
        if not isinstance(command, ResumeSession):
            return command
        next_digest = digest(token(secret, session.id, session.lease.attachment + 1))
        position = command.position
        if position is None:
            return replace(command, next_digest=next_digest, gap=not feed.window.replayable(command.last_number))
        gap = feed.trail is not None and not feed.trail.replayable(position.seq)
        return replace(command, next_digest=next_digest, gap=gap, ahead=position.seq > feed.durable)

    return prepare


def granted(entry: Published, session: core.Session, secret: bytes) -> Granted:
    """Return what a durable transaction that opened or resumed `session` has granted its connection."""
    attachment, lease, last, position = 1, 0, 0, None
    for event in entry.transaction.events:
        if isinstance(event, SessionResumed):
            attachment, lease, last, position = (
                event.attachment,
                event.generation,
                event.last_number,
                event.position,
            )
    return Granted(
        session=session.id,
        dialect=session.dialect,
        attachment=attachment,
        lease=lease,
        token=token(secret, session.id, attachment) if session.resumable else None,
        observer_token=observer_token(secret, session.id, attachment) if session.resumable else None,
        entry=entry,
        capabilities=session.capabilities,
        last_number=last,
        position=position,
        unheard=attachment > 1,
    )
