"""`antiphon log show`: a table that can be read, and the entries that were asked for."""

import io
import json
from pathlib import Path

import anyio
import msgspec
import pytest
from rich.console import Console

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.sessions.plugins import REGISTRY
from antiphon.transport.cli_errors import UNUSABLE, Stop
from antiphon.transport.cli_select import Choice, select, turn_starts
from antiphon.transport.cli_show_table import show_table

from tests.sessions.test_suspecting import answering, cough
from tests.sessions.world import QUICK_VAD, World
from tests.talks import Run, keep
from tests.transport.test_cli import run
from tests.transport.test_session_page import spoken

__all__ = ["run"]


def table(log: list[Transaction], **options: bool) -> list[str]:
    out = io.StringIO()
    show_table(Console(file=out, width=1_000, highlight=False), log, log[0].at, **options)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def line(log: list[Transaction], word: str) -> str:
    """Return the one line in which a word stands, without its place and time."""
    (found,) = [line for line in table(log) if word in line]
    return found[24:]


def test_every_line_says_when_and_who_and_what_came_of_it() -> None:
    world = spoken("All is well [here].")
    head, opened, *_ = lines = table(world.log)
    assert head == "      entry       time  who     what"
    assert opened == "          1      0.000  engine  OpenSession → SessionOpened duplex, cascade 1"
    assert line(world.log, "BargeIn").startswith("client  BargeIn → ")
    assert "Interrupted barge_in · HistoryCut heard 0.40 s (by playout)" in line(world.log, "BargeIn")
    assert "ResponseEnded cancelled (barge_in) “All is well [here].All is well" in line(world.log, "BargeIn")
    assert line(world.log, "SessionDetached") == "engine  Detach → SessionDetached disconnect"
    assert "SessionResumed connection 2" in line(world.log, "ResumeSession")
    assert "[dim]" not in "\n".join(lines)


def test_what_comes_often_is_one_line() -> None:
    world = spoken("Well.")
    lines = table(world.log)
    assert len(lines) < len(world.log) / 2
    assert any("  2 pieces of the answer, to 0.90 s “Well.Well.” · 1 measurement" in line for line in lines)
    sums = [line for line in lines if "pieces of sound" in line]
    assert sums[0].startswith("        2–5 ")
    world = World()
    world.begin()
    world.produce("Well.", 500)
    for ms in (100, 200):
        world.ack(ms)
    world.do(cmd.Heartbeat(attachment=1))
    world.append(1, speech=False)
    assert table(world.log)[-1].endswith("1 piece of sound · 2 acknowledgements, heard to 0.20 s · 1 heartbeat")
    world.do(cmd.StageMeasured(request=world.request, usage=cmd.Usage(output_text=1)))
    assert table(world.log)[-1].endswith(" · 1 heartbeat · 1 measurement")
    assert len(table(world.log, sum_up=False)) == len(world.log) + 1


def test_the_words_of_a_conversation_are_seen() -> None:
    world = World(vad=QUICK_VAD)
    world.say("Look [it] up, " + "please, " * 30)
    world.respond()
    world.call("look", '{"word": "[it]"}')
    world.finish()
    text = "\n".join(table(world.log))
    assert "ItemCreated user “Look [it] up, please, " in text
    assert "…”" in text
    assert 'CallEnded look({"word": "[it]"})' in text
    world.give_output(world.logged(ev.CallEnded)[0].item.call_id, "It is there.")
    assert "“It is there.”" in table(world.log)[-1] or "“It is there.”" in table(world.log)[-2]


def test_5_13_suspicions_and_refusals_say_why() -> None:
    world = answering()
    world.append(2, score=950)
    cough(world)
    world.do(cmd.ReportRefusal(attachment=1, code="bad_event", message="No [b]such\x1b[2J thing."))
    text = "\n".join(table(world.log))
    assert "InterruptionSuspected at 0.40 s" in text
    assert "(too_short)" in text
    assert "ErrorReported bad_event: No [b]such" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("path", sorted((Path(__file__).resolve().parents[1] / "histories").glob("*.jsonl")))
def test_every_history_can_be_shown(path: Path) -> None:
    log = [msgspec.json.decode(line, type=Transaction) for line in path.read_bytes().splitlines()[1:]]
    assert 1 < len(table(log)) <= len(log) + 1


# -- which entries -------------------------------------------------------------------------------------------


def test_entries_are_chosen_by_name_or_a_part_of_one() -> None:
    log = spoken().log
    seqs = [entry.seq for entry in select(log, Choice(types=("interrupted",)))]
    assert seqs == [entry.seq for entry in log if any(isinstance(event, ev.Interrupted) for event in entry.events)]
    appends = select(log, Choice(types=("appendaudio",)))
    assert {type(entry.command) for entry in appends} == {cmd.AppendAudio}
    both = select(log, Choice(types=("BargeIn", "speechst")))
    assert len(both) == 3
    with pytest.raises(Stop, match="there is no command or event 'nothing'") as ended:
        select(log, Choice(types=("nothing",)))
    assert ended.value.code == UNUSABLE


def test_entries_are_chosen_by_time_and_both_ends_belong() -> None:
    log = spoken().log
    chosen = select(log, Choice(start_s=0.064, end_s=0.128))
    assert [(entry.at - log[0].at) // 1000 for entry in chosen] == [64, 96, 128]
    assert select(log, Choice()) == log
    assert select([], Choice()) == []


def test_a_turn_goes_up_to_the_next_one_whether_it_was_said_or_written() -> None:
    world = World(vad=QUICK_VAD, plugins=REGISTRY)
    for score in [20] * 3 + [900] * 10 + [20] * 12:
        world.append(1, score=score)
    world.produce("One.", 100)
    world.finish()
    world.ack(100)
    world.begin("And?")
    starts = turn_starts(world.log)
    assert len(starts) == 2
    first, second = (select(world.log, Choice(turn=turn)) for turn in (1, 2))
    assert isinstance(first[0].events[1], ev.SpeechStarted)
    assert isinstance(second[0].command, cmd.CreateItem)
    assert (first[-1].seq + 1, second[-1].seq) == (second[0].seq, world.log[-1].seq)
    with pytest.raises(Stop, match="there is no turn 3: the session has 2 turns"):
        select(world.log, Choice(turn=3))
    with pytest.raises(Stop, match="there is no turn 1: the session has 0 turns"):
        select([], Choice(turn=1))


def test_the_command_takes_all_of_it(run: Run, tmp_path: Path) -> None:
    anyio.run(keep, tmp_path, spoken().log)
    data = ("--data", tmp_path)
    code, out, _ = run("log", "show", "latest", *data, "--turn", "1", "--type", "Interrupted")
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()[1:]] == ["client"]
    code, out, _ = run("log", "show", "latest", *data, "--from", "0.1", "--to", "0.2", "--json")
    assert [json.loads(line)["at"] for line in out.splitlines()] == [128_000, 160_000, 192_000]
    code, out, _ = run("log", "show", "latest", *data, "--type", "BargeIn", "--all")
    assert (code, out.count("BargeIn"), "→ Interrupted" in out) == (0, 1, True)
    assert run("log", "show", "latest", *data, "--from", "99")[1] == "No entry is like that.\n"
    for wrong, why in (
        (("--turn", "9"), "there is no turn 9"),
        (("--type", "x y"), "there is no command or event"),
    ):
        code, _, told = run("log", "show", "latest", *data, *wrong)
        assert (code, why in told) == (2, True)
