"""Hostile inputs (WIRE 12), a few thousand of them; `make fuzz` sends a hundred thousand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .draw import plan, talks
from .frames import CLOSINGS, HEARTBEAT, frame
from .many import run
from .mutations import written
from .oracle import CLOSE, CONT, PING, read
from .place import Broken, carry_out
from .plan import Plan, Step, load, save
from .shrink import shrink
from tests.rules import rule

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
INPUTS = 800


@rule("D7", "M10", "O1", "O2")
def test_whatever_a_stranger_sends_is_answered_as_documented_and_leaves_nothing() -> None:
    report = run(range(INPUTS))
    assert report.broken == []
    assert {kind for kind, _ in report.outcomes} == {"frames", "request", "post", "talk"}
    ended = {outcome for _, outcome in report.outcomes}
    assert {"open", "within", "closed 1002", "closed 1007", "closed 1009", "client closed", "HTTP 400"} <= ended


@pytest.mark.parametrize("path", KEPT, ids=[path.stem for path in KEPT])
def test_what_once_was_not_as_documented_is(path: Path) -> None:
    carry_out(load(path))


@pytest.mark.parametrize("number", range(len(talks())))
def test_a_conversation_that_nobody_has_touched_is_served(number: int) -> None:
    talk = talks()[number]
    steps = tuple(
        Step(20_000, _text(message), True) for message in talk.messages if message["type"] != "session.close"
    )
    place = carry_out(
        Plan(
            seed=number, kind="talk", dialect=talk.dialect, request=talk.request.decode(), steps=steps, beside=True
        )
    )
    assert place.outcome in ("open", "closed 1000", "closed 1008")


def _text(message: dict[str, object]) -> str:
    return written(message)


def test_a_seed_has_one_trace_whatever_the_hash_seed() -> None:
    code = "from tests.fuzz.test_fuzz import traces; print(traces())"
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] == traces()


def traces() -> str:
    """Return a checksum of what was answered to a few inputs."""
    return " ".join(carry_out(plan(seed)).trace.hexdigest()[:8] for seed in range(500, 530))


def test_a_plan_is_kept_as_it_is(tmp_path: Path) -> None:
    for seed in range(20):
        made = plan(seed)
        save(made, tmp_path / "plan.json")
        assert load(tmp_path / "plan.json") == made


def test_a_failing_plan_is_cut_to_what_it_takes() -> None:
    made = Plan(seed=1, kind="talk", steps=tuple(Step(5, str(number), True) for number in range(20)))

    def fails(candidate: Plan) -> str | None:
        return "both" if {"3", "11"} <= {step.data for step in candidate.steps} else None

    assert [step.data for step in shrink(made, fails).steps] == ["3", "11"]
    assert shrink(made, lambda _: None) is made


def test_an_answer_that_is_not_documented_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge can say no."""
    monkeypatch.setattr("tests.fuzz.judge.CODES", {"ga": frozenset(), "beta": frozenset(), "duplex": frozenset()})
    request = next(talk.request.decode() for talk in talks() if talk.dialect == "ga")
    with pytest.raises(Broken, match="not documented"):
        carry_out(Plan(seed=0, kind="talk", dialect="ga", request=request, steps=(Step(0, "{}", True),)))


@pytest.mark.parametrize(
    ("data", "state", "code"),
    [
        (frame(HEARTBEAT), "open", None),
        (frame(HEARTBEAT)[:-1], "within", None),
        (frame(b"\xff"), "failed", 1007),
        (frame(b"a", fin=False) + frame(b"b", PING) + frame(b"c", CONT), "open", None),
        (frame(b"a", CONT), "failed", 1002),
        (frame(b"a", fin=False) + frame(b"b"), "failed", 1002),
        (frame(b"a", rsv=1), "failed", 1002),
        (frame(b"a", 3), "failed", 1002),
        (frame(b"a" * 126, PING), "failed", 1002),
        (b"\x81\x00", "failed", 1002),
        (b"\x81\xff" + b"\xff" * 8, "failed", 1009),
        (frame(b"\x03\xe8bye", CLOSE), "closed", 1000),
        (frame(b"", CLOSE), "closed", None),
        (frame(b"\x03", CLOSE), "failed", 1002),
        (frame(CLOSINGS[-1], CLOSE), "failed", 1007),
    ],
)
def test_the_second_reader_of_frames(data: bytes, state: str, code: int | None) -> None:
    fate = read(data)
    assert (fate.state, fate.codes) == (state, set() if state in ("open", "within") else {code})
