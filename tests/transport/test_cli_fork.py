"""`antiphon fork` on the command line: what it writes, what it says, and how it refuses."""

import json
from importlib.resources import files
from pathlib import Path

import anyio
import pytest

from antiphon.events import commands as cmd
from antiphon.events.audio import SampleRef
from antiphon.events.config import TurnDetection
from antiphon.transport import cli_export, cli_fork
from antiphon.transport.cli_logs import LoadedLog, header_of, load, read_export, write_export
from antiphon.transport.turn_rows import TurnRow, changes, counterparts, rows

from .test_cli import run as run  # the fixture
from tests.sessions.world import World
from tests.talks import Run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two spoken turns with the usual silence, the first answered."""
    world = World(vad=TurnDetection(min_speech_duration_ms=64))
    for turn in range(2):
        for score in [20] * 4 + [930] * 20 + [20] * 20:
            world.append(1, score=score)
        if not turn:
            world.take()
            world.produce("It is [three].", 300)
            world.finish()
            world.release()
            world.ack(200)
    path = tmp_path / "origin.jsonl"
    write_export(path, LoadedLog(header_of("duplex-1", world.log), world.log))
    return path


def test_what_if_the_silence_had_been_shorter(run: Run, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "fork.jsonl"
    patch = '{"turn_detection": {"silence_duration_ms": 320}}'
    code, said, _ = run("fork", log, "--config-patch", patch, "--out", out)
    assert code == 0
    assert "turn 1 ended 192 ms earlier (at 1.088 s instead of 1.280 s)" in said
    assert "the answer to turn 1 was nothing instead of “It is [three].”" in said
    assert "the answer to turn 1 ended as no_recorded_answer instead of completed" in said
    assert "stands for an answer that nobody has" in said
    header = read_export(out).header
    assert header.fork
    assert (header.fork.origin, header.fork.at, header.fork.patch) == ("duplex-1", 0, patch)
    assert header.session.startswith("duplex-")
    assert run("replay", out)[0] == 0
    code, said, _ = run("fork", log, "--config-patch", patch, "--assume-answers", "--out", out, "--json")
    report = json.loads(said)
    assert code == 0
    assert report["changes"][0] == "turn 1 ended 192 ms earlier (at 1.088 s instead of 1.280 s)"
    assert report["turns"][0]["answer"] == "It is [three]."
    assert {run["source"] for run in report["fork"]["entries"]} >= {"decided", "assumed"}


def test_edits_and_patches_may_come_from_files_and_runs_be_named(run: Run, log: Path, tmp_path: Path) -> None:
    edits, patch, out = tmp_path / "edits.jsonl", tmp_path / "patch.json", tmp_path / "fork.jsonl"
    edits.write_text('{"append": {"type": "Heartbeat"}}\n')
    patch.write_text('{"instructions": "Be brief."}')
    code, said, _ = run("fork", log, "--commands", edits, "--config-patch", patch, "-o", out, "--all")
    assert code == 0
    assert "1 was 1, decided otherwise" in said
    assert "edited" in said
    assert "came to nothing" not in said
    edits.write_text('{"append": {"type": "AckPlayback", "played_ms": 1, "attachment": 7}}\n')
    assert "line 1 of the edits came to nothing" in run("fork", log, "--commands", edits, "-o", out)[1]
    code, said, _ = run("fork", log, "--at", 3, "-o", out)
    assert code == 0
    assert "no turn has changed" in said
    code, said, _ = run("fork", out, "--commands", edits, "-o", tmp_path / "again.jsonl")
    assert code == 0


def test_what_cannot_be_forked_is_one_sentence(run: Run, log: Path, tmp_path: Path) -> None:
    edits = tmp_path / "edits.jsonl"
    edits.write_text('\n{"drop": 999}\n')
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xff")
    lines = log.read_text().splitlines()
    changed = tmp_path / "changed.jsonl"
    changed.write_text("\n".join([*lines[:5], lines[5].replace('"size":1024', '"size":1022'), *lines[6:]]))
    other = tmp_path / "other.jsonl"
    other.write_text(log.read_text().replace('"plugin_version":"1"', '"plugin_version":"9"'))
    for arguments, words in (
        ([log, "--at", 999], "there is no transaction 999 to begin behind: the log has 1 to"),
        ([log, "--commands", edits], "line 2 of the edits: there is no transaction 999"),
        ([log, "--commands", tmp_path / "none"], "there is no file"),
        ([log, "--commands", tmp_path], "cannot read"),
        ([log, "--config-patch", binary], "is no text"),
        ([log, "--config-patch", '{"silence": 1}'], "there is no field 'silence' to change"),
        ([log, "--config-patch", '{"speed": 9}'], "no session can have this configuration"),
        ([log, "--config-patch", '{"instructions": ""}'], "there is nothing to change"),
        ([changed], "transaction 6 is not decided today as it was recorded"),
        ([log, "-o", tmp_path], "is a folder"),
        ([log, "-o", log.parent / "." / log.name], "is the log that is to be forked"),
        ([other], "the log needs plugin 'cascade' version '9'"),
        ([log, "--at", "1", "--config-patch", '{"model": "x"}'], "there is no field 'model' to change"),
    ):
        code, _, said = run("fork", *arguments)
        assert code == 2, words
        assert words in said
    assert run("fork", changed, "--at", "5", "-o", tmp_path / "fork.jsonl")[0] == 0


def test_a_fork_can_be_a_bundle_with_the_sound_of_its_origin(run: Run, tmp_path: Path) -> None:
    world = World()
    sound = bytes(range(250)) * 4
    for _ in range(3):
        world.do(cmd.AppendAudio(attachment=1, size=1000, wire_bytes=1000))
    origin, out, edits = tmp_path / "origin.antiphon", tmp_path / "fork.antiphon", tmp_path / "edits.jsonl"
    log = LoadedLog(header_of("duplex-1", world.log), world.log, Sound(sound))
    anyio.run(cli_export.write_bundle, origin, log)
    edits.write_text('{"drop": 3}')
    assert run("fork", origin, "--commands", edits, "-o", out)[0] == 0
    made = load(str(out), tmp_path)
    assert made.header.fork
    assert anyio.run(made.read, SampleRef("in", 500, 1000)) == sound[500:] + sound[:500]
    assert run("replay", out)[0] == 0


class Sound:
    """The same sound, over and over again."""

    def __init__(self, sound: bytes) -> None:
        self.sound = sound

    async def read(self, session: str, ref: SampleRef) -> bytes:
        return (self.sound * (ref.end // len(self.sound) + 1))[ref.start : ref.end]


def test_turns_are_compared_in_words() -> None:
    one = TurnRow(
        item_id="a", start_s=1.0, end_s=2.0, words="One?", answer="Yes.", status="completed", first_ms=300
    )
    two = TurnRow(item_id="b", start_s=5.0, end_s=None, words="", interruptions=("barge_in",))
    new = TurnRow(item_id="c", start_s=1.1, end_s=2.5, words="x" * 80, heard_ms=200)
    assert changes([one], [one], str) == []
    assert changes([one, two], [new, two], {"a": "c", "b": "b"}.get) == [
        "turn 1 began 100 ms later (at 1.100 s instead of 1.000 s)",
        "turn 1 ended 500 ms later (at 2.500 s instead of 2.000 s)",
        f"turn 1 was heard as “{'x' * 59}…” instead of “One?”",
        "the answer to turn 1 was nothing instead of “Yes.”",
        "the answer to turn 1 ended as none instead of completed",
        "the first sound behind turn 1 came never instead of after 300 ms",
        "of the answer to turn 1 200 ms was heard instead of nothing",
    ]
    assert changes([one, two], [two], {"b": "b"}.get) == ["turn 1 (“One?”) is not there any more"]
    assert changes([two], [one, two], {"b": "b"}.get) == ["turn 1 (“One?”) is new: it ended at 2.000 s"]
    later = TurnRow(item_id="b", start_s=5.0, end_s=6.0, words="")
    assert changes([two], [later], str) == [
        "turn 1 ended at 6.000 s, which it never had",
        "behind turn 1: no interruption instead of interrupted by barge_in",
    ]
    long = "This answer begins as the other one does, and ends "
    one, two = (
        TurnRow(item_id="a", start_s=0.0, end_s=1.0, words="", answer=long + word) for word in ("well", "ill")
    )
    assert changes([one], [two], str) == [
        "the answer to turn 1 was “…other one does, and ends ill” instead of “…other one does, and ends well”"
    ]
    assert rows([]) == []


def test_turns_without_a_common_name_belong_together_by_their_time() -> None:
    def row(item_id: str, start: float, end: float | None) -> TurnRow:
        return TurnRow(item_id=item_id, start_s=start, end_s=end, words="")

    ours = [row("a", 1, 2), row("mine", 3, 4), row("b", 5, 6), row("lonely", 50, None)]
    theirs = [row("x", 1.2, 2.2), row("mine", 3, 4), row("y", 5.5, 6), row("z", 90, 91)]
    assert counterparts(ours, theirs, {"a": "nothing"}.get) == {"a": "x", "mine": "mine", "b": "y"}
    assert counterparts(ours, [], str) == {}


def test_spans_are_joined_and_cut_short() -> None:
    assert cli_fork.spans([(1, 2), (3, 4), (6, 6)]) == "1–4, 6"
    assert cli_fork.spans([(n, n) for n in range(0, 40, 2)]).endswith("14, …")


@pytest.mark.parametrize("pace", ["real", "virtual"])
def test_a_pipeline_answers_what_nobody_has(run: Run, tmp_path: Path, pace: str) -> None:
    world = World(plugin="echo")
    world.say("Hello?")
    log, edits, out = tmp_path / "origin.jsonl", tmp_path / "edits.jsonl", tmp_path / "fork.jsonl"
    write_export(log, LoadedLog(header_of("duplex-1", world.log), world.log))
    edits.write_text('{"append": {"type": "CreateResponse"}}')
    code, said, told = run(
        "fork", log, "--commands", edits, "--pipeline", "echo", "--pace", pace, "-o", out, "--json"
    )
    assert code == 0
    assert "echo answers duplex-" in told
    report = json.loads(said)
    assert report["turns"][0]["answer"] == 'You said: "Hello?"'
    assert [run["source"] for run in report["fork"]["entries"]] == ["prefix", "edited", "live"]
    assert report["fork"]["pipeline"] == "echo"
    assert run("replay", out)[0] == 0


def test_a_pipeline_that_cannot_answer_is_named(run: Run, log: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("name = 1")
    lacking = tmp_path / "lacking.toml"
    voice = (files("antiphon.stages") / "pipelines" / "voice.toml").read_text()
    models = 'models = ["asr", "llm", "tts"]'
    assert models in voice
    lacking.write_text(
        voice.replace('hosting = "process"', 'hosting = "inline"').replace(
            models, f'{models}\n[stage.arguments]\nasr = "/none"'
        )
    )
    for pipeline, words in (
        (str(lacking), "cannot be loaded"),
        ("none", "there is no pipeline 'none'"),
        (str(broken), "the description of a pipeline is wrong"),
        ("echo", "the pipeline 'echo' answers for echo 1, and the log is of cascade 1"),
    ):
        code, _, said = run("fork", log, "--pipeline", pipeline, "-o", tmp_path / "fork.jsonl")
        assert code == 2
        assert words in said
