"""Defaults of a new session, by dialect (WIRE 0.3): pure functions of settings and capabilities."""

from antiphon.events.audio import AudioFormat
from antiphon.events.config import Capabilities, Dialect, Limits, SessionConfig, overlap_policy
from antiphon.events.ids import REQUEST_PREFIX

from .settings import HubSettings

GA_RATE = 24_000
DUPLEX_RATE = 16_000
GA_MIN_COMMIT_MS = 100
IDLE_TIMEOUT_S = 300.0


def session_prefix(dialect: Dialect, *, request: bool = False) -> str:
    """Return what the id of a session of this dialect starts with; `request`: it is one HTTP request."""
    if request:
        return REQUEST_PREFIX
    return "duplex-" if dialect == "duplex" else "sess_"


def resumable(dialect: Dialect, capabilities: Capabilities, wanted: bool | None = None) -> bool:
    """Return whether a session outlives its connection, if its opener has (not) asked for it, or said nothing."""
    wants = dialect == "duplex" if wanted is None else wanted
    return wants and capabilities.supports_session_resume


def default_config(
    dialect: Dialect, settings: HubSettings, capabilities: Capabilities, *, model: str, voice: str
) -> SessionConfig:
    """Return the configuration of a session whose client said nothing."""
    if dialect == "duplex":
        return SessionConfig(
            model=model,
            instructions=settings.instructions,
            input_format=AudioFormat("pcm16", DUPLEX_RATE),
            output_format=AudioFormat("pcm16", capabilities.output_rate),
            voice=voice,
            idle_timeout_s=IDLE_TIMEOUT_S,
            playback_policy="ack_only",
        )
    return SessionConfig(
        model=model,
        instructions=settings.instructions,
        input_format=AudioFormat("pcm16", GA_RATE),
        output_format=AudioFormat("pcm16", GA_RATE),
        voice=voice,
        turn_detection=settings.turn_detection,
        overlap_policy=overlap_policy(settings.turn_detection),
        playback_policy="commit_all_on_done",
    )


def default_limits(dialect: Dialect, settings: HubSettings, *, request: bool = False) -> Limits:
    """Return the bounds that are frozen into the session's log."""
    duplex = dialect == "duplex"
    longest = settings.max_request_ms if request else settings.max_session_ms
    return Limits(
        grace_ms=settings.grace_ms,
        idle_ttl_ms=settings.idle_ttl_ms if duplex else 0,
        activation_ms=settings.activation_ms,
        max_session_ms=0 if duplex else longest,
        input_bytes=settings.input_bytes,
        pending_commits=settings.pending_commits,
        min_commit_ms=0 if duplex else GA_MIN_COMMIT_MS,
        items=settings.items,
        item_bytes=settings.item_bytes,
    )
