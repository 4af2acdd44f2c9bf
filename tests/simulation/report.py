"""What a run of many worlds has seen, added up and written as a page would have it."""

from collections import Counter

from msgspec import Struct, field

from .world import World

SOMETIMES: tuple[str, ...] = (
    "a connection is replaced",
    "a client without numbers came back",
    "an observer",
    "sound leaves for a client",
    "two resumes race",
    "a resume with a wrong token or number",
    "resync: journal_gap",
    "resync: journal_overflow",
    "commands sent again after a resume",
    "a command sent twice",
    "a fenced writer decides",
    "process lost in an append",
    "error: storage_unavailable",
    "error: input_backpressure",
    "error: client_seq_gap",
    "SessionDetached: slow_consumer",
    "SessionDetached: restart",
    "SessionClosed: disconnect_grace_expired",
    "SessionClosed: idle_ttl_expired",
    "SessionClosed: open_abandoned",
    "AttachmentWithdrawn",
    "EngineRestarted",
    "Interrupted: turn_detected",
    "Interrupted: barge_in",
    "InterruptionSuspected: interruption_suspected",
    "InterruptionDismissed: too_short",
    "InterruptionDismissed: backchannel",
    "InterruptionDoubted: no_words",
    "OverlapDecided: long_overlap_speech",
    "OverlapDecided: overlap_words",
    "OutputHeld",
    "TurnPreviewed: complete",
    "TurnPreviewed: unfinished",
    "PreviewDropped",
    "a function call is cut short",
    "AsideCancelled",
    "AnswerDeferred",
    "ResponseDrains",
    "CommandHeld",
    "UnitsGivenUp",
    "UnitsReturned",
    "CleanupFailed",
)
"""What every large run must have seen: rules about what never happened would hold nothing."""


class Report(Struct):
    """Counts over worlds."""

    worlds: int = 0
    steps: int = 0
    actions: int = 0
    sessions: int = 0
    commands: int = 0
    events: int = 0
    messages: int = 0
    simulated_s: float = 0
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def add(self, world: World) -> None:
        """Count a world that broke nothing."""
        self.worlds += 1
        self.steps += world.loop.steps
        self.actions += world.actions
        self.sessions += len(world.disk.names)
        self.commands += sum(log.commands for log in world.logs.values())
        self.events += sum(log.events for log in world.logs.values())
        self.messages += world.messages
        self.simulated_s += world.loop.now_us / 1e6
        self.faults += world.faults
        self.seen += world.seen

    def join(self, other: "Report") -> None:
        """Add another report."""
        for name in ("worlds", "steps", "actions", "sessions", "commands", "events", "messages", "simulated_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        self.seen += other.seen
        self.broken += other.broken

    @property
    def missing(self) -> list[str]:
        """Return what should have been seen, and was not."""
        return [name for name in SOMETIMES if not self.seen[name] and not self.faults[name]]

    def text(self, seconds: float) -> str:
        """Return the summary as Markdown."""
        rate = self.worlds / seconds if seconds else 0
        lines = [
            "| what | how many |",
            "| --- | ---: |",
            f"| worlds (seeds) | {self.worlds:,} ({rate:.1f} a second) |",
            f"| sessions | {self.sessions:,} |",
            f"| steps (callbacks of the event loop, the invariants checked behind each) | {self.steps:,} |",
            f"| actions of the script (commands, connections, faults) | {self.actions:,} |",
            f"| transactions decided | {self.commands:,} |",
            f"| events decided | {self.events:,} |",
            f"| messages that clients read | {self.messages:,} |",
            f"| simulated time | {self.simulated_s / 3600:,.0f} h |",
            f"| rules broken | {len(self.broken)} |",
            "",
            "| fault put in | how often |",
            "| --- | ---: |",
            *(f"| {name} | {count:,} |" for name, count in sorted(self.faults.items())),
            "",
            "| seen | how often |",
            "| --- | ---: |",
            *(f"| {name} | {self.seen[name] or self.faults[name]:,} |" for name in SOMETIMES),
        ]
        return "\n".join(lines)
