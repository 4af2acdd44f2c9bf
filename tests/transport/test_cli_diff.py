"""`antiphon diff` on the command line: the verdict, its words and its exit code."""

import json
from pathlib import Path

from .test_cli import run as run  # the fixture
from .test_cli_fork import log as log  # the fixture
from tests.talks import Run


def test_a_log_and_its_fork_are_the_same_until_something_is_changed(run: Run, log: Path, tmp_path: Path) -> None:
    copy, fork = tmp_path / "copy.jsonl", tmp_path / "fork.jsonl"
    assert run("fork", log, "-o", copy)[0] == 0
    code, said, _ = run("diff", log, copy)
    assert code == 0
    assert said.startswith("the same: ")
    patch = '{"turn_detection": {"silence_duration_ms": 320}}'
    assert run("fork", log, "--config-patch", patch, "-o", fork)[0] == 0
    code, said, _ = run("diff", log, fork)
    assert code == 1
    assert (
        "the first 0 transactions are the same; they part at\n  transaction 1 of A and 1 of B: OpenSession" in said
    )
    assert "command.config.turn_detection.silence_duration_ms\n      A 500\n      B 320" in said
    assert "turn 1 ended 192 ms earlier (at 1.088 s instead of 1.280 s)" in said
    assert "It is [three]." in said
    code, said, _ = run("diff", log, fork, "--all")
    assert "which the other has not: StageFailed" in said
    code, said, _ = run("diff", log, fork, "--json")
    verdict = json.loads(said)
    assert (code, verdict["equal"], verdict["common"], len(verdict["differences"])) == (1, False, 0, 1)
    assert verdict["only_b"] > 0
    code, said, _ = run("diff", log, fork, "--json", "--all")
    assert len(json.loads(said)["differences"]) > 1


def test_other_times_are_a_difference_only_if_asked_for(run: Run, log: Path, tmp_path: Path) -> None:
    edits, moved = tmp_path / "edits.jsonl", tmp_path / "moved.jsonl"
    last = len(log.read_text().splitlines()) - 1
    at = json.loads(log.read_text().splitlines()[-1])["at"]
    edits.write_text(json.dumps({"replace": last, "at_us": at + 1_500}))
    assert run("fork", log, "--commands", edits, "-o", moved)[0] == 0
    code, said, _ = run("diff", log, moved)
    assert code == 0
    assert f"but for their times: up to 1.5 ms later in B (transaction {last} of A)" in said
    assert run("diff", log, moved, "--times")[0] == 1


def test_what_cannot_be_read_has_its_own_code(run: Run, log: Path, tmp_path: Path) -> None:
    code, _, said = run("diff", log, tmp_path / "none.jsonl")
    assert code == 2
    assert "there is no file" in said
