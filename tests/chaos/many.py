"""Many rounds, in several processes, and what they have seen as a table."""

import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct, field

from tests.chaos.checker import Findings
from tests.chaos.lives import OTHERS
from tests.chaos.moments import MOMENTS
from tests.chaos.round import Outcome, Plan, Round
from tests.pieces import in_pieces

KILLS = 10
"""Kills of one round: enough for a session to outlive some, few enough for a data directory to be looked at."""

COUNTED = {
    "sessions": "sessions in the logs",
    "talks": "sessions of clients that were held against them",
    "terms": "terms of writers",
    "resumes": "resumes",
    "messages": "messages that clients read",
    "commands": "counted commands",
    "transactions": "transactions, decided again",
    "events": "events in them",
    "samples": "bytes of sound in them",
    "told": "messages that said that the disk is full",
    "unheard": "sessions that ended while their client was away",
}


class Report(Struct):
    """Outcomes, added up."""

    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    broken: list[tuple[Plan, list[str], str]] = field(default_factory=list[tuple[Plan, list[str], str]])
    """Rounds in which something was wrong, what it was, and where everything lies."""

    def add(self, plan: Plan, outcome: Outcome) -> None:
        """Count a round."""
        self.rounds += 1
        self.kills += outcome.kills
        self.findings.join(outcome.findings)
        if outcome.findings.wrong:
            self.broken.append((plan, outcome.findings.wrong, str(outcome.kept)))

    def join(self, other: "Report") -> None:
        """Add another report."""
        self.rounds += other.rounds
        self.kills += other.kills
        self.findings.join(other.findings)
        self.broken += other.broken

    def text(self, seconds: float) -> str:
        """Return the summary as Markdown."""
        found = self.findings
        minutes = f"{seconds / 60:,.1f} minutes"
        return "\n".join(
            [
                "| killed | how often |",
                "| --- | ---: |",
                *(f"| {moment} | {times:,} |" for moment, times in self._by_moment()),
                f"| altogether, in {self.rounds:,} rounds and {minutes} | {self.kills.total():,} |",
                "",
                "| what was held | how many |",
                "| --- | ---: |",
                *(f"| {words} | {getattr(found, name):,} |" for name, words in COUNTED.items()),
                f"| violations | {len(found.wrong):,} |",
            ]
        )

    def _by_moment(self) -> list[tuple[str, int]]:
        order = [*OTHERS, *MOMENTS]
        return sorted(self.kills.items(), key=lambda row: order.index(row[0]))


def plans(seed: int, kills: int) -> list[Plan]:
    """Return the rounds of so many kills, from this seed on."""
    return [
        Plan.drawn(seed + number, min(KILLS, kills - number * KILLS))
        for number in range((kills + KILLS - 1) // KILLS)
    ]


def live(plan: Plan, keep: Path) -> Outcome:
    """Live through a round in a folder of its own; if something is wrong, it is left in `keep`."""
    place = Path(tempfile.mkdtemp(prefix="antiphon-chaos-"))
    lived = Round(plan, place)
    try:
        try:
            outcome = anyio.run(lived.run)
        except Exception:  # a fault of this test's own, or of our client: the other rounds go on
            outcome = Outcome(lived.lives.kills, Findings(wrong=[traceback.format_exc()]))
        if outcome.findings.wrong:
            outcome.kept = keep / f"seed-{plan.seed}"
            shutil.rmtree(outcome.kept, ignore_errors=True)
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copytree(place, outcome.kept)
        return outcome
    finally:
        lived.close()
        shutil.rmtree(place, ignore_errors=True)


def _run(drawn: list[Plan], keep: Path, numbers: range) -> Report:
    report = Report()
    for number in numbers:
        report.add(drawn[number], live(drawn[number], keep))
    return report


def chaos(drawn: list[Plan], jobs: int, keep: Path, told: Callable[[Report], None] = lambda _: None) -> Report:
    """Live through many rounds in several processes; `told` hears of each."""
    report = Report()
    for part in in_pieces(range(len(drawn)), 1, jobs, partial(_run, drawn, keep)):
        report.join(part)
        told(part)
    return report
