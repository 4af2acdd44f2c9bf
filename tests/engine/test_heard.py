"""When answers were heard: at every entry of every history it is what the core says at that entry (DESIGN 5.10)."""

from pathlib import Path

import msgspec
import pytest

from antiphon.engine.heard import Heard, Run
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.playback import heard

from tests.sessions.world import World

HISTORIES = sorted((Path(__file__).resolve().parents[1] / "histories").glob("*.jsonl"))


def position(runs: list[Run], now: int) -> int:
    """Return how much of an answer was heard by `now`, in microseconds."""
    heard_us = 0
    for run in runs:
        until = now if run.until_us is None else min(now, run.until_us)
        heard_us = max(heard_us, min(run.to_us, run.from_us + until - run.at_us))
    return heard_us


def agrees(log: list[Transaction]) -> int:
    """Compare at every entry; return how often there was something to compare."""
    session, model, compared = core.new(), Heard(), 0
    for entry in log:
        for event in entry.events:
            core.evolve(session, event, entry.at)
        model.take(entry)
        for response_id, playout in session.playouts.items():
            ms, basis = heard(playout, entry.at)
            if basis != "playout" or not playout.sent or playout.acked:
                continue
            found = position(model.runs(response_id), entry.at)
            assert abs(found - ms * 1000) <= 1_000, (entry.seq, response_id, found, ms)
            compared += 1
    return compared


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_it_is_what_the_core_says_at_every_entry(path: Path) -> None:
    agrees([msgspec.json.decode(line, type=Transaction) for line in path.read_bytes().splitlines()[1:]])


def test_the_histories_hold_enough_to_compare() -> None:
    logs = (
        [msgspec.json.decode(line, type=Transaction) for line in path.read_bytes().splitlines()[1:]]
        for path in HISTORIES
    )
    assert sum(map(agrees, logs)) > 200


def test_it_agrees_over_lost_lines_slow_stages_and_answers_behind_one_another() -> None:
    world = World(policy="commit_all_on_done")
    world.begin()
    world.produce("one", 400)
    world.wait(1_000)
    world.produce("late", 900)
    world.finish()
    world.wait(300)
    world.begin("And?")
    world.produce("behind", 500)
    world.wait(200)
    world.detach()
    world.produce("unheard", 500)
    world.wait(5_000)
    world.resume()
    world.wait(450)
    world.cancel()
    world.wait(50)
    world.begin("Then?")
    world.produce("again", 300)
    world.finish()
    world.wait(100)
    world.close()
    assert agrees(world.log) > 20


def test_a_log_that_nobody_decided_is_followed_as_far_as_it_makes_sense() -> None:
    world = World()
    world.begin()
    world.produce("one", 400)
    world.finish()
    for left_out in range(1, len(world.log)):
        model = Heard()
        for entry in (*world.log[:left_out], *world.log[left_out + 1 :]):
            model.take(entry)
        if not model.lost:
            model.runs("resp")
    model = Heard()
    for entry in world.log[2:]:
        model.take(entry)
    assert model.lost
    assert model.runs("resp") == []
