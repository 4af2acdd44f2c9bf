"""Worlds that one seed decides: nothing that goes wrong in them breaks a rule, and what breaks one is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.rules import rule
from tests.simulation.__main__ import KEPT
from tests.simulation.many import simulate
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.script import Script, Step, load, save, script
from tests.simulation.shrink import kind, shrink
from tests.simulation.world import live

WORLDS = 2000
JOBS = 2
SCRIPTS = sorted(KEPT.glob("*.json"))


@rule("P1", "P2", "P3", "P5", "P6", "P13", "P27", "P29", "P33", "P43", "P44", "P47", "P49", "P50", "P51", "P52")
@rule("P53", "P54", "P56", "P57", "P58")
@pytest.mark.timeout(900)
def test_worlds_in_which_everything_goes_wrong_break_no_rule() -> None:
    report = simulate(range(WORLDS), JOBS)
    assert report.broken == []
    assert report.missing == [], "what never happens holds nothing"


def _traces(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "40..60", "--traces"]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_a_seed_has_one_trace_whatever_the_hash_seed() -> None:
    first = _traces("1")
    assert len(first.split()) == 40
    assert _traces("2") == first
    assert first.split()[1] == live(script(40)).trace.hexdigest()


def test_what_once_broke_a_rule_breaks_none() -> None:
    assert SCRIPTS
    for path in SCRIPTS:
        live(load(path))


def test_a_script_is_kept_as_it_is(tmp_path: Path) -> None:
    made = script(7)
    save(made, tmp_path / "seven.json")
    assert load(tmp_path / "seven.json") == made
    assert (tmp_path / "seven.json").read_text().count("\n") > len(made.steps)


def test_a_failing_script_is_cut_to_what_it_takes() -> None:
    made = script(11)
    needed = {made.steps[20], made.steps[90]}

    def fails(candidate: Script) -> str | None:
        kept = {replace(step, gap_us=0) for step in candidate.steps}
        return "P1" if {replace(step, gap_us=0) for step in needed} <= kept else None

    short = shrink(made, fails)
    assert short.about == "P1"
    assert short.steps == tuple(replace(step, gap_us=0) for step in made.steps if step in needed)
    assert shrink(made, lambda _: None) is made


def test_failures_of_one_kind_are_told_from_others() -> None:
    first = kind("seed 5, step 7: AssertionError: P49, P50: 12 behind 9")
    assert first == kind("seed 8, step 70: AssertionError: P49, P50: 2 behind 1") == "P49, P50"
    assert kind("seed 5, step 7: KeyError: 'sess_0123456789'") == "KeyError: 'sess_N'"


def test_a_step_means_something_in_every_world() -> None:
    steps = tuple(
        Step(0, who, what, 5, 6, 7) for what in ("append", "delete", "ack", "kill", "no such") for who in (0, 9)
    )
    live(replace(script(3), steps=steps))


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_deliberate_fault_has_its_place(mutant: Mutant, root: Path) -> None:
    source = root / (mutant.module.removeprefix("antiphon.").replace(".", "/") + ".py")
    assert source.read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_a_deliberate_fault_is_found() -> None:
    """All of them are looked for by `make mutants`; that the search can find one is held here."""
    command = [sys.executable, "-m", "tests.simulation.mutants", "--only", "begins no epoch", "--within", "100"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "P8" in ended.stdout
