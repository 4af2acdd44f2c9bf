"""The golden logs: decided again they give the same events, the same state, and the same messages."""

import io
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from rich.console import Console

from antiphon.engine.replay import replay
from antiphon.events.audio import SampleRef
from antiphon.events.commands import AnyCommand
from antiphon.events.events import AnyEvent, ResponseCreated
from antiphon.events.log import BEHAVIOUR, Unavailable, from_json, to_json
from antiphon.sessions import core
from antiphon.transport import cli, timeline, timeline_plot
from antiphon.transport.cli_show import show
from antiphon.transport.perfetto import trace
from antiphon.transport.session_page import session_page

from .broken import place_in
from .compare import differences
from .golden import BROKEN, FOLDER, OLD, PLUGINS, UNSHIPPED, WIRE, Golden, digest, home, read
from .scene import SCENES, Scene, scenes
from .telling import told
from tests.rules import rule

HISTORIES = sorted([*FOLDER.glob("*.jsonl"), *UNSHIPPED.glob("*.jsonl")])
AGAIN = "record it again (make histories RECORD=1) if this is wanted"


@pytest.fixture(scope="module", params=HISTORIES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> tuple[Scene, Golden]:
    path: Path = request.param
    return scenes()[path.stem], read(path)


def test_every_scene_is_recorded_and_has_its_line() -> None:
    names = set(scenes())
    assert set(HISTORIES) == {home(scene) for scene in scenes().values()}
    assert {path.stem for path in WIRE.glob("*.txt")} == names
    readme = (FOLDER / "README.md").read_text()
    for name, scene in SCENES.items():
        assert f"| `{name}` | {scene.says} |" in readme, f"{name}: its line is written by `make histories RECORD=1`"


@rule("P2")
def test_a_history_is_decided_as_it_was(golden: tuple[Scene, Golden]) -> None:
    _, kept = golden
    assert kept.header.behaviour in (BEHAVIOUR, BEHAVIOUR - 1)
    result = replay(kept.log, PLUGINS)
    assert result.first_difference is None
    assert result.identical
    assert result.commands == kept.header.transactions


def test_a_history_folds_to_the_state_that_it_had(golden: tuple[Scene, Golden]) -> None:
    scene, kept = golden
    session = core.fold(kept.log)
    assert kept.header.state_version == core.STATE_VERSION, f"the state has another version: {AGAIN}"
    assert digest(kept.log) == kept.header.state, f"the state behind {scene.name} is another one: {AGAIN}"
    assert (session.id, session.phase) == (kept.header.session, "closed")
    assert core.outstanding(session) == []


def test_what_it_is_named_for_happens_in_it(golden: tuple[Scene, Golden]) -> None:
    scene, kept = golden
    happened = {type(event) for entry in kept.log for event in entry.events}
    commands = {type(entry.command) for entry in kept.log}
    assert [kind.__name__ for kind in scene.shows if kind not in happened | commands] == []
    assert kept.header.scenario == scene.says


def test_its_messages_are_those_that_were_told(golden: tuple[Scene, Golden]) -> None:
    scene, kept = golden
    changed = differences((WIRE / f"{scene.name}.txt").read_text(), told(kept.log))
    assert changed == [], "\n".join([f"{scene.name}: {AGAIN}", *changed])


def test_it_is_whole_and_its_lines_are_canonical(golden: tuple[Scene, Golden]) -> None:
    _, kept = golden
    assert [entry.seq for entry in kept.log] == list(range(1, kept.header.transactions + 1))
    assert [to_json(entry) for entry in kept.log] == kept.lines
    assert all(before.at <= after.at for before, after in pairwise(kept.log))


def test_it_is_shown_and_told_as_a_story(golden: tuple[Scene, Golden]) -> None:
    _, kept = golden
    shown = io.StringIO()
    show(Console(file=shown, width=200), kept.log)
    assert shown.getvalue().count("→ ") >= sum(len(entry.events) for entry in kept.log)
    story = timeline.tell(kept.log)
    assert story.session == kept.header.session
    begun = [event.head.id for entry in kept.log for event in entry.events if isinstance(event, ResponseCreated)]
    assert [answer.response_id for answer in story.answers] == begun
    events = msgspec.json.decode(trace(kept.log))["traceEvents"]
    assert len(events) > len(kept.log)


def test_every_command_and_every_event_is_in_some_history() -> None:
    logs = [read(path).log for path in HISTORIES]
    happened = {type(event) for log in logs for entry in log for event in entry.events}
    happened |= {type(entry.command) for log in logs for entry in log}
    missing = {kind.__name__ for kind in (*get_args(AnyCommand), *get_args(AnyEvent)) if kind not in happened}
    assert missing == {"ReportFault"}, "an error of ours ends a recording"


async def test_it_has_a_page(golden: tuple[Scene, Golden]) -> None:
    _, kept = golden

    async def silent(_ref: SampleRef) -> bytes:
        raise Unavailable("a golden log has no sound")

    page = await session_page(kept.log, silent)
    assert kept.header.session.encode() in page


@pytest.mark.parametrize("name", ["spoken_turn", "tools", "minicpm", "echo_restart", "chat", "draining_turns"])
def test_it_is_drawn(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    timeline_plot.draw(timeline.tell(read(home(scenes()[name])).log), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


# -- recording -----------------------------------------------------------------------------------------------


def test_recording_is_the_same_every_time_whatever_strings_hash_to() -> None:
    names = [name for name, scene in scenes().items() if scene.models is None]
    said = [_digests(seed, names) for seed in ("1", "2")]
    assert said[0] == said[1]
    assert len(said[0].splitlines()) == len(names)


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_recording_with_models_is_the_same_every_time() -> None:
    names = [name for name, scene in scenes().items() if scene.models is not None]
    if why := next(filter(None, (scenes()[name].missing for name in names)), None):
        pytest.skip(why)
    assert _digests("1", names) == _digests("2", names)


def _digests(seed: str, names: list[str]) -> str:
    code = (
        "import hashlib, sys\n"
        "from tests.histories.golden import recorded, scenes\n"
        "for name in sys.argv[1:]:\n"
        "    made = recorded(scenes()[name])\n"
        "    print(name, hashlib.sha256((made.log + made.wire).encode()).hexdigest())\n"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed}
    run = subprocess.run([sys.executable, "-c", code, *names], env=env, check=True, text=True, capture_output=True)
    return run.stdout


def test_what_changed_is_told_by_transaction_and_field() -> None:
    text = (FOLDER / "tools.jsonl").read_text()
    head, *lines = text.splitlines(keepends=True)
    assert differences(text, text) == []
    changed = text.replace('"role":"user"', '"role":"system"')
    assert differences(text, changed) == [
        "3 CreateItem: command.item.role: user → system",
        "3 CreateItem: events[0].item.role: user → system",
    ]
    shorter = "".join([head, *lines[:7], *(line.replace('"seq":', '"seq":1') for line in lines[8:])])
    assert differences(text, shorter) == ["8: gone: StageCalled → CallStarted CallDelta"]
    delayed = text.replace('"at":16000', '"at":17000').replace('"at":18000', '"at":19000')
    assert [line.partition(":")[0] for line in differences(text, delayed)] == ["6 StageProduced"]
    wire = (WIRE / "tools.txt").read_text()
    other = wire.replace('"status":"completed"', '"status":"done"')
    told_of = differences(wire, other)
    assert told_of[0].endswith("completed → done")
    assert told_of[-1].endswith("differences more")


# -- logs that do not replay ---------------------------------------------------------------------------------


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["antiphon", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_a_damaged_log_is_refused_where_it_is_damaged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = place_in((FOLDER / "spoken_turn.jsonl").read_bytes().splitlines()[1:])
    assert ended(monkeypatch, "replay", str(BROKEN / "damaged.jsonl")) == 2
    assert f"damaged in line {at + 1}" in " ".join(capsys.readouterr().err.split())


def test_a_divergent_log_is_told_apart_where_it_diverges(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = BROKEN / "divergent.jsonl"
    at = place_in(path.read_bytes().splitlines()[1:])
    found = replay(read(path).log).first_difference
    assert found is not None
    assert (found.seq, "completed" in (found.expected or ""), "cancelled" in (found.actual or "")) == (
        at,
        True,
        True,
    )
    assert ended(monkeypatch, "replay", str(path)) == 1
    assert f"transaction {at}" in " ".join(capsys.readouterr().out.split())


def test_a_log_of_a_later_layout_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    later = tmp_path / "later.jsonl"
    later.write_bytes((FOLDER / "tools.jsonl").read_bytes().replace(b'"v":2}\n', b'"v":99}\n'))
    assert ended(monkeypatch, "replay", str(later)) == 2
    assert "layout 99, which a later version of antiphon wrote" in " ".join(capsys.readouterr().err.split())


def test_a_log_of_a_model_that_is_not_shipped_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "replay", str(UNSHIPPED / "draining_turns.jsonl")) == 2
    assert "cascade-beside" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(OLD.glob("*.jsonl")), ids=lambda path: path.stem)
def test_an_old_log_is_folded_shown_and_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = path.read_bytes().splitlines()[1:]
    assert not any(line.endswith(b'"v":2}') for line in lines)
    log = [from_json(line) for line in lines]
    session = core.fold(log)
    assert session.phase == "closed"
    assert len(timeline.tell(log).answers) == 2
    assert ended(monkeypatch, "log", "show", str(path)) == 0
