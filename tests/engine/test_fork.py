"""Forks: what is as it was stays so, what is not is decided anew, and every fork is a log like any other."""

import json
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.engine import fork as fork_module
from antiphon.engine import fork_edits, fork_origin, fork_patch
from antiphon.engine.fork import Fork
from antiphon.engine.fork_note import fork_id, gaps, note, runs
from antiphon.engine.forked import Circling, Forked
from antiphon.engine.likeness import likeness
from antiphon.engine.replay import replay
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch, TurnDetection
from antiphon.events.items import Message, TextPart
from antiphon.events.log import Transaction, from_json, to_json
from antiphon.stages.echo import EchoStage

from .test_replay import conversation
from .worlds import opening, settle, world
from tests.histories.golden import FOLDER, PLUGINS
from tests.rules import rule
from tests.sessions.world import FRAME, QUICK_VAD, World, only

FORK = "duplex-fork"


def whole(path: Path) -> list[Transaction] | None:
    """Return a golden log that replays; None for one that does not, which other tests complain of."""
    log = [from_json(line) for line in path.read_bytes().splitlines()[1:]]
    return log if replay(log, PLUGINS).identical else None


LOGS = {path.stem: log for path in sorted(FOLDER.glob("*.jsonl")) if (log := whole(path)) is not None}


def forked(
    log: list[Transaction],
    *edits: dict[str, object],
    at: int | None = None,
    patch: dict[str, object] | None = None,
    assumes: bool = False,
) -> Forked:
    """Fork, and hold what is true of every fork: it replays, and accounts for everything that its origin had."""
    origin = fork_origin.read(log, PLUGINS)
    lines = [json.dumps(edit) for edit in edits]
    read = fork_edits.parse(lines, origin, at or 0)
    wanted = None if patch is None else fork_patch.parse(json.dumps(patch))
    fork = Fork(origin, read, session=FORK, at=at or 0, wanted=wanted, assumes=assumes, plugins=PLUGINS)
    while fork.step():
        assert len(fork.forked.entries) < 10_000
    made = fork.account()
    result = replay(made.transactions, PLUGINS)
    assert result.identical, result.first_difference
    assert [entry.seq for entry in made.entries] == list(range(1, len(made.transactions) + 1))
    kept = [entry.origin for entry in made.entries if entry.origin is not None]
    assert sorted([*kept, *(left.origin for left in made.left)]) == [entry.seq for entry in log]
    assert fork.next_at() is None
    return made


def same(log: list[Transaction], made: Forked) -> bool:
    """Whether a fork decided what its origin did, at the same times."""
    session = log[0].command.session if isinstance(log[0].command, cmd.OpenSession) else ""
    then = [(entry.at, likeness(entry.events, session)) for entry in log]
    return then == [(entry.at, likeness(entry.events, FORK)) for entry in made.transactions]


def sources(made: Forked) -> list[str]:
    return [entry.source for entry in made.entries]


def plain(command: cmd.AnyCommand) -> dict[str, object]:
    return msgspec.json.decode(msgspec.json.encode(command), type=dict[str, object])


def speak(world: World, speech: int, silence: int) -> None:
    """Say something, frame by frame, and be silent."""
    for score in [20] * 4 + [930] * speech + [20] * silence:
        world.append(1, score=score)


def reply(world: World, text: str = "Yes.", ms: int = 300) -> None:
    world.take()
    world.produce(text, ms)
    world.finish()
    world.release()


def spoken() -> World:
    """Two spoken turns, each answered, with the detector's usual silence."""
    world = World(vad=TurnDetection(min_speech_duration_ms=64))
    for _ in range(2):
        speak(world, 20, 20)
        reply(world)
    world.close()
    return world


def written() -> World:
    """Three questions in writing, each answered; the client counts its commands."""
    world = World(dialect="ga")
    for number, text in enumerate(("One?", "Two?", "Three?")):
        message = Message(id="", role="user", content=(TextPart(text),))
        world.do(cmd.CreateItem(attachment=1, item=message, client_seq=2 * number + 1))
        world.do(cmd.CreateResponse(attachment=1, client_seq=2 * number + 2))
        world.wait(200)
        reply(world, f"{text} Yes.")
        world.wait(1_000)
    world.close()
    return world


# -- nothing is otherwise --------------------------------------------------------------------------------------


@rule("P2")
@pytest.mark.parametrize("name", LOGS)
def test_a_fork_without_edits_is_its_origin_wherever_it_begins(name: str) -> None:
    log = LOGS[name]
    for at in {0, 1, len(log) // 2, len(log)}:
        made = forked(log, at=at)
        assert same(log, made)
        assert made.left == []
        assert all(entry.same and entry.origin == entry.seq for entry in made.entries)
        assert sources(made)[:at] == ["prefix"] * at
        assert "prefix" not in sources(made)[at:]


@pytest.mark.parametrize("name", LOGS)
def test_what_is_replaced_by_itself_changes_nothing(name: str) -> None:
    log = LOGS[name]
    timers = {entry.seq for entry in log if isinstance(entry.command, cmd.Tick)}
    choice = random.Random(name)  # any places will do
    for seq in {1, *choice.sample(range(1, len(log) + 1), min(8, len(log)))} - timers:
        assert same(log, forked(log, {"replace": seq, "at_us": log[seq - 1].at})), seq


@pytest.mark.anyio
async def test_a_log_of_the_engine_is_decided_again_from_its_first_entry_on() -> None:
    log = await conversation()
    assert same(log, forked(log, {"replace": 1, "at_us": log[0].at}))


@pytest.mark.anyio
async def test_timers_of_the_engine_ring_when_they_rang() -> None:
    async with world(EchoStage()) as here:
        attachment = await here.hub.open(opening())
        await attachment.detach()
        await settle()
        await here.advance(31_000)
    log = await here.recorded(attachment.session)
    assert any(isinstance(entry.command, cmd.Tick) for entry in log)
    assert same(log, forked(log, {"replace": 2, "at_us": log[1].at}))
    moved = forked(log, {"replace": 2, "at_us": log[1].at + 500_000})
    closed = next(entry for entry in moved.transactions if isinstance(entry.events[0], ev.SessionClosing))
    assert closed.at >= log[1].at + 500_000 + 30_000_000
    assert "timer" in sources(moved)


# -- any edits -------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_dropped_moved_or_put_in_a_fork_replays(data: st.DataObject) -> None:
    log = LOGS[data.draw(st.sampled_from(sorted(LOGS)))]
    fixed = [entry.seq for entry in log[1:] if not isinstance(entry.command, cmd.Tick)]
    commands = [plain(log[seq - 1].command) for seq in fixed]
    edits: list[dict[str, object]] = []
    for seq in data.draw(st.lists(st.sampled_from(fixed), unique=True, max_size=5)):
        other = data.draw(st.sampled_from(commands))
        later = log[seq - 1].at + data.draw(st.integers(0, 3_000_000))
        edit: list[dict[str, object]] = [
            {"drop": seq},
            {"insert_after": seq, "command": other},
            {"insert_after": seq, "command": other, "at_us": later},
            {"replace": seq, "command": other},
            {"replace": seq, "at_us": later},
            {"append": other},
        ]
        edits.append(data.draw(st.sampled_from(edit)))
    silence = data.draw(st.none() | st.integers(32, 2_000))
    patch: dict[str, object] | None = None
    if silence is not None:
        patch = {"turn_detection": {"silence_duration_ms": silence}, "instructions": "Be brief."}
    made = forked(log, *edits, patch=patch, assumes=data.draw(st.booleans()))
    again = fork_origin.read(made.transactions, PLUGINS)
    further = Fork(again, fork_edits.parse([], again, 0), session="duplex-further", at=0, plugins=PLUGINS)
    assert [entry.same for entry in further.forked.entries] == [True] * len(made.transactions)


# -- what if ---------------------------------------------------------------------------------------------------


def test_with_less_silence_turns_end_earlier_without_a_sample() -> None:
    log = spoken().log
    made = forked(log, patch={"turn_detection": {"silence_duration_ms": 320}})
    stops = [[entry.at for entry in each if stopped(entry)] for each in (log, made.transactions)]
    assert [then - now for then, now in zip(*stops, strict=True)] == [192_000, 192_000]
    config = only(list(made.transactions[0].events), ev.SessionOpened).view.config
    assert config.turn_detection is not None
    assert config.turn_detection.silence_duration_ms == 320
    assert config.turn_detection.min_speech_duration_ms == 64
    missing = [entry for entry in made.transactions if isinstance(entry.command, cmd.StageFailed)]
    assert [entry.command.code for entry in missing if isinstance(entry.command, cmd.StageFailed)] == [
        "no_recorded_answer"
    ] * 2
    ended = [event for entry in made.transactions for event in entry.events if isinstance(event, ev.ResponseEnded)]
    assert [event.failure and event.failure.code for event in ended] == ["no_recorded_answer"] * 2
    assert {left.why for left in made.left} == {"what it answers was not asked"}


def stopped(entry: Transaction) -> bool:
    return any(isinstance(event, ev.SpeechStopped) for event in entry.events)


def test_what_was_said_in_the_same_turn_may_do_though_it_was_asked_otherwise() -> None:
    log = spoken().log
    made = forked(log, patch={"turn_detection": {"silence_duration_ms": 320}}, assumes=True)
    ended = [event for entry in made.transactions for event in entry.events if isinstance(event, ev.ResponseEnded)]
    assert [(event.status, event.text) for event in ended] == [("completed", "Yes.")] * 2
    assert "assumed" in sources(made)
    assert "missing" not in sources(made)
    assert made.left == []


def test_a_pause_that_is_too_short_for_the_old_silence_makes_two_turns() -> None:
    world = World(vad=TurnDetection(min_speech_duration_ms=64))
    speak(world, 10, 8)
    speak(world, 10, 20)
    reply(world)
    made = forked(world.log, patch={"turn_detection": {"silence_duration_ms": 200}}, assumes=True)
    committed = [event for e in made.transactions for event in e.events if isinstance(event, ev.InputCommitted)]
    assert len(committed) == 2
    starts = [event for entry in world.log for event in entry.events if isinstance(event, ev.SpeechStarted)]
    assert len(starts) == 1


def test_a_patch_from_a_place_on_leaves_what_was_before() -> None:
    log = spoken().log
    half = next(entry.seq for entry in log if isinstance(entry.command, cmd.StageReleased))
    made = forked(log, at=half, patch={"turn_detection": {"silence_duration_ms": 320}})
    assert sources(made)[: half + 1] == ["prefix"] * half + ["edited"]
    assert isinstance(made.transactions[half].command, cmd.UpdateSession)
    stops = [[entry.at for entry in each if stopped(entry)] for each in (log, made.transactions)]
    assert [then - now for then, now in zip(*stops, strict=True)] == [0, 192_000]


def test_a_later_update_does_not_undo_a_patch() -> None:
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=QUICK_VAD, voice="joe")))
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=None)))
    made = forked(world.log, patch={"turn_detection": {"silence_duration_ms": 200}, "voice": "default"})
    configs = [event.config for e in made.transactions for event in e.events if isinstance(event, ev.ConfigUpdated)]
    assert configs[0].turn_detection == replace(QUICK_VAD, silence_duration_ms=200)
    assert configs[1].turn_detection is None
    assert [config.voice for config in configs] == ["default", "default"]


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("[]", "JSON object"),
        ("{", "JSON object"),
        ('{"turn_detection":' + "[" * 200_000, "JSON object"),
        ("{}", "no field in the configuration"),
        ('{"silence": 1}', "no field 'silence' to change"),
        ('{"model": "x"}', "no field 'model' to change"),
        ('{"turn_detection": {"silence": 1}}', "turn_detection has no field 'silence'; it has type, threshold"),
    ],
)
def test_a_patch_that_names_nothing_is_refused(patch: str, words: str) -> None:
    with pytest.raises(fork_patch.PatchError, match=words):
        fork_patch.parse(patch)


def test_a_patch_that_no_session_can_have_is_refused() -> None:
    world = World(vad=QUICK_VAD)
    world.detach()
    for patch in ({"speed": "fast"}, {"turn_detection": {"silence_duration_ms": "x"}}, {"speed": 9}):
        with pytest.raises(fork_patch.PatchError, match=r"cannot be changed so|can have this"):
            forked(world.log, patch=dict(patch))
    with pytest.raises(fork_patch.PatchError, match="nobody is connected"):
        forked(world.log, at=2, patch={"speed": 1.5})
    with pytest.raises(fork_patch.PatchError, match="did not take it behind 1"):
        forked(World().log, at=1, patch={"turn_detection": {"type": "server_vad", "threshold": 7}})
    opening = plain(world.log[0].command) | {"plugin_version": "9"}
    with pytest.raises(fork_patch.PatchError, match="no session can be opened so"):
        forked(world.log, {"replace": 1, "command": opening})
    made = forked(
        world.log, patch={"tools": [{"name": "x"}], "echo": {"a": 1}, "transcription": {"language": "de"}}
    )
    config = only(list(made.transactions[0].events), ev.SessionOpened).view.config
    assert (config.tools, config.echo) == ('[{"name":"x"}]', {"a": "1"})
    assert config.transcription is not None
    assert config.transcription.language == "de"


# -- what the stages said --------------------------------------------------------------------------------------


def test_an_answer_is_taken_over_as_long_as_its_question_is_the_same() -> None:
    log = written().log
    first = next(entry.seq for entry in log if isinstance(entry.command, cmd.CreateItem))
    # The second question is asked 300 ms later: the third one too, and so their answers.
    second = [entry for entry in log if isinstance(entry.command, cmd.CreateResponse)][1]
    made = forked(log, {"replace": second.seq, "at_us": second.at + 300_000})
    assert "missing" not in sources(made)
    assert made.left == []
    delay = {entry.origin: made.transactions[entry.seq - 1].at - log[entry.origin - 1].at
             for entry in made.entries if entry.origin is not None}  # fmt: skip
    assert delay[second.seq] == delay[second.seq + 1] == delay[second.seq + 2] == 300_000
    # Without the first question, the others are asked with another conversation before them.
    made = forked(log, {"drop": [first, first + 1]})
    words = [entry.command.code for entry in made.transactions if isinstance(entry.command, cmd.StageFailed)]
    assert words == ["no_recorded_answer"] * 2
    assert sum(left.why == "what it answers was not asked" for left in made.left) == 12
    assert not any(isinstance(event, ev.ErrorReported) and event.code == "client_seq_gap"
                   for entry in made.transactions for event in entry.events)  # fmt: skip


def test_what_a_stage_said_can_be_edited() -> None:
    log = written().log
    said = next(entry for entry in log if isinstance(entry.command, cmd.StageProduced))
    changed = plain(said.command) | {"text": "No."}
    made = forked(log, {"replace": said.seq, "command": changed})
    assert sources(made)[said.seq - 1] == "edited"
    ended = [event.text for e in made.transactions for event in e.events if isinstance(event, ev.ResponseEnded)]
    assert ended[0] == "No."
    assert ended[1:] == ["", ""], "the history is another, and so are the questions"


def test_an_answer_that_was_interrupted_ends_by_name_where_it_was() -> None:
    world = World(vad=QUICK_VAD)
    world.begin()
    world.take()
    world.produce("It is ", 400)
    world.wait(500)
    interrupting = len(world.log) + 1
    world.barge_in()
    world.release()
    world.wait(100)
    world.close()
    made = forked(world.log, {"drop": interrupting})
    failed = next(entry for entry in made.transactions if isinstance(entry.command, cmd.StageFailed))
    assert failed.at == world.log[interrupting - 1].at
    ended = only([event for entry in made.transactions for event in entry.events], ev.ResponseEnded)
    assert ended.text == "It is "
    assert ended.failure == ev.Failure(
        "no_recorded_answer", "What was recorded ends here: it was interrupted then."
    )


def test_an_interruption_that_comes_again_is_waited_for() -> None:
    world = World(vad=TurnDetection(min_speech_duration_ms=64))
    speak(world, 20, 20)
    world.take()
    world.produce("It is ", 4_000)
    world.ack(100)
    speak(world, 20, 20)
    world.release()
    reply(world)
    made = forked(world.log, patch={"turn_detection": {"silence_duration_ms": 320}}, assumes=True)
    ended = [event for entry in made.transactions for event in entry.events if isinstance(event, ev.ResponseEnded)]
    assert [event.cause for event in ended] == ["turn_detected", None]


def test_that_an_answer_was_heard_is_told_as_long_after_its_sound() -> None:
    world = World(vad=TurnDetection(min_speech_duration_ms=64))
    speak(world, 20, 20)
    world.take()
    world.produce("It is three.", 400)
    world.wait(250)
    world.ack(250)
    world.wait(150)
    world.ack(400)
    world.finish()
    world.release()
    patch: dict[str, object] = {"turn_detection": {"silence_duration_ms": 320}}
    made = forked(world.log, patch=patch, assumes=True)
    acks = [[entry.at for entry in log if isinstance(entry.command, cmd.AckPlayback)]
            for log in (world.log, made.transactions)]  # fmt: skip
    assert [then - now for then, now in zip(*acks, strict=True)] == [192_000, 192_000]
    assert made.left == []
    made = forked(world.log, patch=patch)
    assert [left.why for left in made.left].count("the answer that it acknowledges was not heard") == 2


def test_units_of_a_model_that_listens_are_answered_where_they_are_the_same() -> None:
    world = World(plugin="echo", auto=True)
    for _ in range(4):
        world.append(2)
        world.produce("", 64, world.resident, takes=True)
    world.wait(100)
    world.close()
    world.release()
    appends = [entry.seq for entry in world.log if isinstance(entry.command, cmd.AppendAudio)]
    made = forked(world.log, {"drop": appends[2]})
    said = [entry.command for entry in made.transactions if isinstance(entry.command, cmd.StageProduced)]
    assert [report.operation for report in said] == [1, 2]
    listens = [entry.command for entry in made.transactions if isinstance(entry.command, cmd.StageSegmentFinished)]
    assert [(report.operation, report.reason) for report in listens] == [(3, "no_recorded_answer")]


def test_sound_that_is_new_is_not_taken_for_the_old() -> None:
    log = spoken().log
    append = next(entry for entry in log if isinstance(entry.command, cmd.AppendAudio) and entry.seq > 12)
    put_in: dict[str, object] = {"type": "AppendAudio", "size": FRAME, "wire_bytes": FRAME, "scores": [930]}
    made = forked(log, {"insert_after": append.seq, "command": put_in})
    assert [entry.source for entry in made.entries if entry.source in ("edited", "missing")][:2] == [
        "edited",
        "missing",
    ]


# -- names, numbers and tokens ---------------------------------------------------------------------------------


def test_a_fork_is_another_session_and_opens_nothing() -> None:
    log = LOGS["spoken_turn"]
    made = forked(log)
    text = b"".join(to_json(entry) for entry in made.transactions).decode()
    opening = log[0].command
    assert isinstance(opening, cmd.OpenSession)
    for secret in (opening.token_digest or "none", f"{2:064x}", f'"{opening.session}"'):
        assert secret not in text
    assert len({"duplex-", fork_id("duplex-1", 3, b"x", ""), fork_id("duplex-1", 3, b"x", "", "2")}) == 3
    assert fork_id("duplex-1", 3, b"x", "") == fork_id("duplex-1", 3, b"x", "")
    assert fork_id("duplex-1", 3, b"x", "").startswith("duplex-")
    assert fork_id("sess_1", 3, b"x", "").startswith("sess_")


def test_a_resume_that_is_dropped_leaves_the_connection_that_there_was() -> None:
    world = World()
    world.detach()
    world.wait(100)
    world.resume()
    world.do(cmd.ConfirmAttachment(attachment=2))
    world.detach()
    world.resume()
    world.do(cmd.Heartbeat(attachment=3))
    made = forked(world.log, {"drop": [2, 3]})
    assert any(isinstance(event, ev.SessionTouched) for event in made.transactions[-1].events)
    command = made.transactions[-1].command
    assert isinstance(command, cmd.Heartbeat)
    assert command.attachment == 2


def test_a_command_that_names_what_never_was_is_left_out_by_name() -> None:
    log = LOGS["text_turn"]
    asked = [entry.seq for entry in log if isinstance(entry.command, cmd.CreateResponse)]
    made = forked(log, {"drop": [asked[0], asked[1]]})
    assert "it speaks of something that never was" in {left.why for left in made.left}


def test_numbers_of_every_command_follow_those_of_the_fork() -> None:
    world = World()
    world.say("One.", "one")
    world.do(cmd.Heartbeat(attachment=1, client_seq=1))
    world.do(cmd.ReportRefusal(attachment=1, code="bad_event", message="No.", client_seq=2))
    world.do(cmd.ReportFault(attachment=1, client_seq=3))
    world.do(cmd.Detach(reason="operator", control_id="operator-1", generation=0))
    world.resume()
    world.do(cmd.Heartbeat(attachment=2, client_seq=4))
    world.do(cmd.Detach(generation=1))
    world.do(replace(world.resumption(), expected_generation=1))
    world.do(cmd.BargeIn(attachment=3, client_seq=5))
    world.close()
    beat = next(entry.seq for entry in world.log if isinstance(entry.command, cmd.Heartbeat))
    made = forked(world.log, {"drop": beat})
    codes = [
        event.code for entry in made.transactions for event in entry.events if isinstance(event, ev.ErrorReported)
    ]
    assert "client_seq_gap" not in codes
    seqs = [
        event.client_seq for e in made.transactions for event in e.events if isinstance(event, ev.CommandSequenced)
    ]
    assert seqs == [1, 2, 3, 4]
    assert [left.why for left in made.left] == ["dropped by an edit"]


def test_a_fork_that_runs_in_a_circle_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_module, "MOST_ENTRIES_PER_US", 2)
    with pytest.raises(Circling, match="runs in a circle at its transaction"):
        forked(LOGS["text_turn"])


# -- edits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("{", "one of drop, replace, insert_after, append"),
        ('{"dropp": 3}', "unknown field `dropp`"),
        ('{"drop": 3, "replace": 4}', "exactly one of"),
        ('{"drop": 99}', "no transaction 99: the log has 1 to"),
        ('{"drop": 2}', "transaction 2 stays as it is: the fork begins behind 2"),
        ('{"drop": [5, 4]}', "5 to 4 is no span"),
        ('{"drop": ' + "[" * 200_000, "an edit has one of"),
        ('{"drop": 5, "at_us": 1}', "neither a command nor a time"),
        ('{"replace": 5}', "needs a command, or another time"),
        ('{"replace": 5, "command": {"type": "Commit"}}', "a command has a type, one of AckPlayback"),
        ('{"replace": 5, "command": {"type": "Tick"}}', "timers ring by themselves"),
        ('{"replace": 5, "command": {"type": "OpenSession"}}', "missing required field `session`"),
        ('{"replace": 5, "command": {"type": "BargeIn", "x": 1}}', "BargeIn has no 'x'; it has attachment"),
        ('{"replace": 5, "command": {"type": "AppendText"}}', "AppendText: Object missing required field `text`"),
        ('{"replace": 5, "command": {"type": "StageLost", "request": "r"}}', "no stage was asked 'r'"),
        ('{"insert_after": 5}', "what is put in needs a command"),
        ('{"insert_after": 1, "command": {"type": "BargeIn"}}', "transaction 1 stays"),
        ('{"append": {"type": "BargeIn"}, "command": {}}', "stands behind append"),
        ('{"append": {"type": "BargeIn"}, "at_us": -5}', "the fork begins at"),
        ('{"append": {"type": "BargeIn"}, "at_us": 9000000000000000000}', "no session goes on until"),
    ],
)
def test_a_line_that_is_no_edit_is_named(edit: str, words: str) -> None:
    origin = fork_origin.read(LOGS["text_turn"])
    with pytest.raises(fork_edits.EditError, match="line 2 of the edits: ") as failed:
        fork_edits.parse(['{"drop": 7}', edit], origin, 2)
    assert words in str(failed.value)


def test_what_begins_a_session_and_what_time_does_are_not_edited() -> None:
    origin = fork_origin.read(LOGS["echo_restart"])
    timer = next(entry.seq for entry in origin.transactions if isinstance(entry.command, cmd.Tick))
    beat = {"type": "Heartbeat"}
    for edit, words in (
        ({"drop": 1}, "begins with its one OpenSession"),
        ({"replace": 1, "command": beat}, "can be changed and nothing else"),
        ({"drop": timer}, "is a timer"),
        ({"replace": timer, "command": beat}, "is a timer"),
        ({"insert_after": 0, "command": beat}, "nothing comes before the opening"),
        ({"insert_after": 2, "command": plain(origin.transactions[0].command)}, "opened once"),
    ):
        with pytest.raises(fork_edits.EditError, match=words):
            fork_edits.parse([json.dumps(edit)], origin, 0)
    with pytest.raises(fork_edits.EditError, match="edited twice"):
        fork_edits.parse(['{"drop": [2, 4]}', '{"drop": 3}'], origin, 0)
    assert fork_edits.parse(["", f'{{"drop": [{timer - 1}, {timer}]}}'], origin, 0).dropped == {timer - 1}


def test_an_edit_that_comes_to_nothing_is_named() -> None:
    log = written().log
    said = next(entry for entry in log if isinstance(entry.command, cmd.StageFinished))
    first = next(entry.seq for entry in log if isinstance(entry.command, cmd.CreateResponse))
    late = plain(said.command)
    made = forked(log, {"drop": first}, {"insert_after": said.seq, "command": late}, {"append": late})
    assert made.unheeded == [2, 3]
    assert forked(log, {"append": {"type": "Heartbeat"}}).unheeded == [1], "the session has ended"
    assert forked(log, {"insert_after": 1, "command": {"type": "Heartbeat"}}).unheeded == []


def test_what_is_added_comes_behind_everything() -> None:
    world = World()
    world.say("Hello?")
    made = forked(world.log, {"append": {"type": "CreateResponse"}, "at_us": world.now + 5_000})
    assert sources(made) == ["decided", "decided", "edited", "missing", "missing", "missing"]
    assert [entry.at for entry in made.transactions][2:4] == [5_000, 5_000]


# -- the note --------------------------------------------------------------------------------------------------


def test_the_note_says_which_entries_are_which() -> None:
    log = written().log
    first = next(entry.seq for entry in log if isinstance(entry.command, cmd.CreateItem))
    made = forked(log, {"drop": [first, first + 1]}, at=1)
    said = note(made, "duplex-1", edits=b'{"drop": [2, 3]}')
    assert (said.origin, said.at, said.edits != "", said.patch) == ("duplex-1", 1, True, "")
    assert (said.entries[0].source, said.entries[0].first, said.entries[0].last) == ("prefix", 1, 1)
    assert [run.first for run in said.entries[1:]] == [run.last + 1 for run in said.entries[:-1]]
    assert sum(run.last - run.first + 1 for run in runs(made.entries)) == len(made.entries)
    assert sum(gap.last - gap.first + 1 for gap in gaps(made.left)) == len(made.left)
    assert msgspec.json.decode(msgspec.json.encode(said), type=type(said)) == said
