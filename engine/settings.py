"""Settings of a hub: what an operator may choose."""

from msgspec import Struct

from antiphon.events.config import Dialect, TurnDetection

from .keeper import Retention

LONGEST_REPLAY_MS = 60_000
"""Ages are accounted for a minute."""


class HubSettings(Struct, frozen=True, kw_only=True):
    """Times in milliseconds, sizes in bytes; 0 means no bound where that is said.

    `wildcard` True: any model name is served. `aliases` maps further names to the served one.
    `max_session_ms` bounds sessions of the GA and beta dialects (0: none); `grace_ms`, `idle_ttl_ms` and
    `activation_ms` are the lease's. `control_ms` is how long an opening or a resume may take. `replay_bytes`
    bounds what a client may leave unacknowledged, `replay_ms` (0: no bound; at most a minute, and longer than the
    grace) how old what is replayed to it may be, `slow_bytes` and `slow_ms` (at most a minute) how far it may read
    behind. `warm_up_units` (0: none) is how much the model hears before the first client is let in; None: what it
    asks for. `max_requests` bounds the HTTP requests that are answered at one time, `max_request_ms` each of them.
    `retention` is how long sound is kept.
    """

    max_sessions: int = 1000
    max_requests: int = 64
    served_model: str = "antiphon"
    aliases: tuple[str, ...] = ()
    wildcard: bool = True
    default_dialect: Dialect = "ga"
    instructions: str = ""
    turn_detection: TurnDetection = TurnDetection()
    grace_ms: int = 30_000
    recovery_grace_ms: int = 120_000
    idle_ttl_ms: int = 300_000
    activation_ms: int = 10_000
    control_ms: int = 10_000
    max_session_ms: int = 3_600_000
    max_request_ms: int = 600_000
    input_bytes: int = 16 * 1024 * 1024
    pending_commits: int = 4
    items: int = 4096
    item_bytes: int = 64 * 1024 * 1024
    replay_bytes: int = 256 * 1024 * 1024
    replay_ms: int = 0
    slow_bytes: int = 16 * 1024 * 1024
    slow_ms: int = 30_000
    shutdown_ms: int = 5_000
    warm_up_units: int | None = None
    retention: Retention = Retention()

    def __post_init__(self) -> None:
        """Hold the bounds to one another (D16).

        Raises:
            ValueError: what is missed could not be replayed for as long as it can be asked for.
        """
        if self.replay_ms and not self.grace_ms < self.replay_ms <= LONGEST_REPLAY_MS:
            raise ValueError("replay_ms must be longer than grace_ms, and at most a minute")
