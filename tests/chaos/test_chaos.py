"""A server that is killed at any moment loses nothing that a client saw, and does nothing twice."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.chaos.disks import Disk, LimitedDisk, SmallDisk
from tests.chaos.lives import FULL, FULL_AGAIN, SPACE
from tests.chaos.many import chaos, plans
from tests.chaos.round import Plan, Round
from tests.rules import rule

KILLS = 25
JOBS = 2
SEED = 1


def no_mount(_: Path) -> Disk:
    return LimitedDisk()


@rule("P1", "P2", "P3", "P6", "P49", "P50", "P52", "P54")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_at_any_moment_lose_nothing_repeat_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    report = chaos(plans(SEED, KILLS), JOBS, tmp_path)
    assert report.broken == []
    assert report.kills.total() == KILLS
    assert report.findings.resumes >= KILLS


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("a restart does not fail the answer that was open", "replay differs"),
        ("a command that comes twice is not dropped", "taken twice"),
    ],
)
def test_a_fault_of_the_product_is_found(fault: str, found: str, tmp_path: Path) -> None:
    lived = Round(Plan(0, 3, "echo", ("duplex", "ga", "duplex", "ga"), fault=fault), tmp_path)
    outcome = anyio.run(lived.run)
    assert any(found in wrong for wrong in outcome.findings.wrong), outcome.findings.wrong


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("made", [SmallDisk, no_mount], ids=["small", "limited"])
def test_a_full_disk_is_told_and_loses_nothing(made: Callable[[Path], Disk], tmp_path: Path) -> None:
    try:
        lived = Round(Plan(0, 3, "cascade", ("duplex", "ga", "duplex"), fills=True), tmp_path, made)
    except (PermissionError, FileNotFoundError):
        pytest.skip("no file system may be mounted here")
    try:
        outcome = anyio.run(lived.run)
    finally:
        lived.close()
    assert outcome.findings.wrong == []
    assert dict(outcome.kills) == {SPACE: 1, FULL: 1, FULL_AGAIN: 1}
    assert outcome.findings.told
