"""The trace of a session: that a viewer of traces can read it, and that its arrows lead from command to sound."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.transport import cli_logs, cli_timeline
from antiphon.transport.cli_errors import Stop
from antiphon.transport.perfetto import trace

from tests.sessions.test_suspecting import answering, cough
from tests.sessions.world import World
from tests.talks import Run, keep
from tests.transport.test_cli import run
from tests.transport.test_session_page import spoken

__all__ = ["run"]

Event = dict[str, Any]

NEEDS: dict[str, set[str]] = {
    "X": {"ts", "dur", "cat", "args"},
    "M": {"ts", "args"},
    "C": {"ts", "args"},
    "i": {"ts", "s", "cat"},
    "s": {"ts", "id", "cat"},
    "t": {"ts", "id", "cat"},
    "f": {"ts", "id", "cat", "bp"},
}
"""What each kind of event must have, beside a name, a process and a lane (the Trace Event Format)."""


def events_of(log: list[Transaction]) -> list[Event]:
    told = json.loads(trace(log))
    assert set(told) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert told["displayTimeUnit"] == "ms"
    events: list[Event] = told["traceEvents"]
    return events


def check(events: list[Event]) -> None:
    """Hold a trace to the format."""
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert NEEDS[event["ph"]] <= set(event), event
        assert isinstance(event["ts"], int)
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 1
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert {event["tid"] for event in events if event["ph"] == "X"} <= named
    _check_nesting(events)
    _check_arrows(events)


def _check_nesting(events: list[Event]) -> None:
    """Slices of one lane lie behind each other or within each other."""
    lanes = defaultdict[int, list[tuple[int, int]]](list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["tid"]].append((event["ts"], -(event["ts"] + event["dur"])))
    for spans in lanes.values():
        open_until: list[int] = []
        for start, negative in sorted(spans):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or -negative <= open_until[-1]
            open_until.append(-negative)


def _check_arrows(events: list[Event]) -> None:
    """An arrow begins once, ends once, never goes back in time, and each of its points is on a slice."""
    slices = [(event["tid"], event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X"]
    arrows = defaultdict[int, list[Event]](list)
    for event in events:
        if event["ph"] in "stf":
            arrows[event["id"]].append(event)
            assert any(tid == event["tid"] and start <= event["ts"] < end for tid, start, end in slices)
    for points in arrows.values():
        kinds = "".join(point["ph"] for point in points)
        assert kinds in ("sf", "stf")
        assert all(one["ts"] <= other["ts"] for one, other in pairwise(points))


def lanes(events: list[Event]) -> dict[str, list[Event]]:
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found = defaultdict[str, list[Event]](list)
    for event in events:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return found


def test_a_session_is_a_trace_with_the_lanes_of_its_page() -> None:
    world = spoken()
    events = events_of(world.log)
    check(events)
    found = lanes(events)
    assert [event["dur"] for event in found["heard"]] == [400_000]
    assert found["sent"][0]["args"]["sent_ms"] == 900
    assert [event["name"] for event in found["stage llm"]] == ["llm", "queue", "first output", "further outputs"]
    assert found["stage llm"][0]["args"]["cost"]["first_output_ms"] == 30
    assert [event["name"] for event in found["waits"]][1:] == ["silence", "asr", "llm", "tts", "sending"]
    assert [event["args"]["ended"] for event in found["connection"]] == ["disconnect", "client_close"]
    assert [event["name"] for event in events if event["ph"] == "i"] == ["interrupted: barge_in"]
    said = [*found["client's commands"], *found["what stages report"], *found["the engine"]]
    assert len(said) == len(world.log)
    whole = [event["args"]["entry"] for event in said if "entry" in event["args"]]
    assert any(entry["command"]["type"] == "BargeIn" for entry in whole)
    assert [round(event["args"]["p"], 2) for event in events if event["ph"] == "C"] == [0.02, 0.9, 0.02]


def test_arrows_lead_from_the_command_to_the_request_to_the_sound() -> None:
    world = spoken()
    events = events_of(world.log)
    points = {event["ph"]: event for event in events if event["ph"] in "stf"}
    found = lanes(events)
    asked = next(entry for entry in world.log if any(isinstance(e, ev.RequestSubmitted) for e in entry.events))
    (begun,) = [event for event in found["client's commands"] if event["ts"] == points["s"]["ts"]]
    assert begun["args"]["entry"]["seq"] == asked.seq
    assert (points["t"]["ts"], points["t"]["tid"]) == (found["requests"][0]["ts"], found["requests"][0]["tid"])
    assert (points["f"]["ts"], points["f"]["tid"]) == (found["sent"][0]["ts"], found["sent"][0]["tid"])


def test_what_overlaps_has_rows_of_its_own_and_what_is_at_once_lies_side_by_side() -> None:
    world = World(dialect="ga")
    world.begin("One?")
    world.produce("one", 500)
    for _ in range(3):
        world.say("at once")
    world.cancel()
    world.begin("Two?")
    world.wait(10)
    world.produce("two", 500)
    events = events_of(world.log)
    check(events)
    mine = [entry for entry in world.log if isinstance(entry.command, cmd.ClientCommand)]
    assert len(lanes(events)["client's commands"]) == len(mine)


def test_delivery_that_stood_still_and_a_session_without_sound_are_traces_too() -> None:
    world = answering()
    world.append(2, score=950)
    cough(world)
    events = events_of(world.log)
    check(events)
    assert len(lanes(events)["delivery held"]) == 1
    check(events_of(World().log))


def test_the_command_writes_a_trace_and_the_page_only_if_it_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anyio.run(keep, tmp_path / "data", spoken().log)
    monkeypatch.chdir(tmp_path)
    data = ("--data", tmp_path / "data")
    code, out, _ = run("log", "timeline", "latest", "--perfetto", "trace.json", *data)
    assert (code, "ui.perfetto.dev" in out) == (0, True)
    check(json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"])
    assert not (tmp_path / "timeline.html").exists()
    assert run("log", "timeline", "latest", *data)[0] == 0
    assert (tmp_path / "timeline.html").exists()
    code, out, _ = run("log", "timeline", "latest", "--perfetto", "b.json", "-o", "b.html", *data)
    assert (tmp_path / "b.html").exists()
    with pytest.raises(Stop, match="there is no folder"):
        cli_timeline.write_trace(cli_logs.load("latest", tmp_path / "data"), tmp_path / "none" / "b.json")
