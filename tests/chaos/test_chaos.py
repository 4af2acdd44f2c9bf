"""A server that is killed at any moment loses nothing that a client saw, and does nothing twice."""

from pathlib import Path

import pytest

from tests.chaos.many import chaos, plans
from tests.rules import rule

KILLS = 25
JOBS = 2
SEED = 1


@rule("P1", "P2", "P3", "P6", "P49", "P50", "P52", "P54")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_at_any_moment_lose_nothing_repeat_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    report = chaos(plans(SEED, KILLS), JOBS, tmp_path)
    assert report.broken == []
    assert report.kills.total() == KILLS
    assert report.findings.resumes >= KILLS
