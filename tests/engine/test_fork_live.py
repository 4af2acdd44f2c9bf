"""Live stages in a fork: they answer what nobody has answered, in time, and nothing that was recorded."""

from collections.abc import Callable

import anyio
import pytest

from antiphon.engine import fork_edits, fork_origin, fork_patch
from antiphon.engine.clock import VirtualClock
from antiphon.engine.fork import Fork
from antiphon.engine.fork_live import LiveFork, Pace
from antiphon.engine.fork_samples import ForkSamples
from antiphon.engine.forked import Forked
from antiphon.engine.hosts import InlineHost
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.replay import replay
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.config import ConfigPatch
from antiphon.events.log import Samples, Transaction, Unavailable
from antiphon.stages.base import Stage
from antiphon.stages.echo import EchoStage
from antiphon.stages.scripted import ANSWER, Fail, Hang, ScriptedStage, Sleep, Take

from .test_fork import FORK, sources, spoken
from .worlds import MoodyLog, opening, settle, world

pytestmark = pytest.mark.anyio

SHORTER = '{"turn_detection": {"silence_duration_ms": 320}}'
PUT_IN = '{"type": "AppendAudio", "size": 3200, "wire_bytes": 3200}'
PIECE = b"\x00\x20" * 1_600
"""100 ms of sound."""


class Nothing(Samples):
    """There is no sound."""

    async def read(self, session: str, ref: SampleRef) -> bytes:
        raise Unavailable("no sound")


NOTHING = Nothing()


class Silence(Samples):
    """All sound is silence."""

    async def read(self, session: str, ref: SampleRef) -> bytes:
        return bytes(ref.size)


def echo(_clock: VirtualClock) -> Stage:
    return EchoStage()


def slow(clock: VirtualClock) -> Stage:
    return ScriptedStage(clock, default=(Sleep(100), *ANSWER))


def failing(clock: VirtualClock) -> Stage:
    return ScriptedStage(clock, {0: (Take(3), Fail())}, default=(Hang(),))


def mute(clock: VirtualClock) -> Stage:
    return ScriptedStage(clock, default=(Hang(),))


async def live(
    log: list[Transaction],
    *edits: str,
    stage: Callable[[VirtualClock], Stage] = echo,
    samples: Samples = NOTHING,
    pace: Pace = "virtual",
    patch: str | None = None,
) -> tuple[Forked, ForkSamples, list[str]]:
    """Fork beside an echo, whose clock is moved along; hold that the fork replays."""
    origin = fork_origin.read(log)
    wanted = None if patch is None else fork_patch.parse(patch)
    fork = Fork(origin, fork_edits.parse(edits, origin, 0), session=FORK, at=0, wanted=wanted, live=True)
    clock, asked = VirtualClock(), list[str]()
    host = InlineHost(stage(clock))
    known = ForkSamples(fork.sounds, lambda ref: samples.read(origin.session, ref))
    running = LiveFork(fork, host, known, clock, pace, lambda request, _: asked.append(request))
    await host.start(running.on_report)

    async def move() -> None:
        while True:
            await settle(5)
            clock.advance(10_000)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(move)
        await running.run()
        tasks.cancel_scope.cancel()
    await host.aclose()
    made = fork.account()
    assert replay(made.transactions).identical
    return made, known, asked


async def two_turns() -> tuple[list[Transaction], MoodyLog]:
    """Two turns that the echo has answered, with their sound."""
    async with world(EchoStage()) as here:
        attachment = await here.hub.open(opening())
        for size in (3, 5):
            for _ in range(size):
                attachment.append(AppendRequest(data=PIECE, speech=True))
                await here.advance(100)
            attachment.send(cmd.CommitInput(attachment=1, create_response=True))
            await here.advance(2_000)
        attachment.send(cmd.CloseSession(control_id="over", attachment=1))
        await here.advance(3_000)
    return await here.recorded(attachment.session), here.log


async def listening() -> tuple[list[Transaction], MoodyLog]:
    """A session in which the echo plays back every piece at once."""
    async with world(EchoStage()) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(auto_response=True)))
        for _ in range(6):
            attachment.append(AppendRequest(data=PIECE, speech=True))
            await here.advance(100)
        attachment.send(cmd.CloseSession(control_id="over", attachment=1))
        await here.advance(3_000)
    return await here.recorded(attachment.session), here.log


def made_session(log: list[Transaction]) -> str:
    return fork_origin.read(log).session


def answers(made: Forked) -> list[str]:
    return [
        event.text for entry in made.transactions for event in entry.events if isinstance(event, ev.ResponseEnded)
    ]


def appends(log: list[Transaction]) -> list[int]:
    return [entry.seq for entry in log if isinstance(entry.command, cmd.AppendAudio)]


@pytest.mark.parametrize("pace", ["real", "virtual"])
async def test_what_is_asked_otherwise_is_answered_live_with_the_sound_of_the_origin(pace: Pace) -> None:
    log, kept = await two_turns()
    second = appends(log)[4]
    made, known, asked = await live(log, f'{{"drop": {second}}}', samples=kept.samples, pace=pace)
    first, other = answers(made)
    assert first == 'You said: "[300 ms of speech]"'
    assert other == 'You said: "[400 ms of speech]"'
    assert asked == [f"{FORK}.e0"]
    assert "missing" not in sources(made)
    live_ones = [made.transactions[entry.seq - 1].command for entry in made.entries if entry.source == "live"]
    assert live_ones[0] == cmd.StageAccepted(request=f"{FORK}.e0", operation=2)
    assert isinstance(live_ones[-1], cmd.StageReleased)
    spoken_now = [
        event.ref
        for entry in made.entries
        if entry.source == "live"
        for event in made.transactions[entry.seq - 1].events
        if isinstance(event, ev.AudioDelta)
    ]
    whole = SampleRef("out", spoken_now[0].start, sum(ref.size for ref in spoken_now))
    sound = await known.read(FORK, whole)
    assert len(sound) == sum(report.size for report in live_ones if isinstance(report, cmd.StageProduced)) > 0
    assert await known.read(FORK, spoken_now[1]) == sound[spoken_now[0].size :][: spoken_now[1].size]
    everything = SampleRef("out", 0, whole.end)
    before = await kept.samples.read(made_session(log), SampleRef("out", 0, whole.start))
    assert await known.read(FORK, everything) == before + sound
    with pytest.raises(Unavailable):
        await known.read(FORK, SampleRef("out", whole.start, whole.size + 2))


async def test_nothing_is_asked_where_everything_was_recorded() -> None:
    log, _ = await two_turns()
    made, _, asked = await live(log, f'{{"replace": 1, "at_us": {log[0].at}}}')
    assert asked == []
    assert "live" not in sources(made)


async def test_without_the_sound_a_request_fails_and_a_unit_is_refused_by_name() -> None:
    here = "no sound"
    log, kept = await two_turns()
    made, _, _ = await live(log, f'{{"drop": {appends(log)[4]}}}')
    failed = [entry.command for entry in made.transactions if isinstance(entry.command, cmd.StageFailed)]
    assert [report.message for report in failed] == [here], "what the model heard before cannot be told"
    made, _, _ = await live(
        log, f'{{"insert_after": {appends(log)[4]}, "command": {PUT_IN}}}', samples=kept.samples
    )
    refused = [entry.command for entry in made.transactions if isinstance(entry.command, cmd.StageRefused)]
    assert [report.message for report in refused] == ["The sound of what was edited is not known."]
    made, _, _ = await live(spoken().log, patch=SHORTER)
    failed = [entry.command for entry in made.transactions if isinstance(entry.command, cmd.StageFailed)]
    assert [report.message for report in failed] == [here] * 2


@pytest.mark.parametrize("pace", ["real", "virtual"])
async def test_a_model_that_listens_is_told_what_it_heard_and_answers_from_there_on(pace: Pace) -> None:
    log, kept = await listening()
    units = sum(isinstance(event, ev.UnitTaken) for entry in log for event in entry.events)
    edit = f'{{"drop": {appends(log)[2]}}}'
    made, _, asked = await live(log, edit, samples=kept.samples, pace=pace)
    assert asked == [f"{FORK}.e0"]
    produced = [
        (entry.source, report.operation)
        for entry in made.entries
        if isinstance(report := made.transactions[entry.seq - 1].command, cmd.StageProduced)
    ]
    assert produced == [("recorded", 1), ("recorded", 2), *[("live", number) for number in range(3, units)]]
    # The session need not have an end for the fork to have one.
    made, _, _ = await live(log[:-3], edit, samples=kept.samples, pace=pace)
    assert made.transactions[-1].events


async def test_each_turn_that_is_asked_otherwise_is_a_request_of_its_own() -> None:
    made, _, asked = await live(spoken().log, patch=SHORTER, samples=Silence())
    assert asked == [f"{FORK}.e0.turn0", f"{FORK}.e1.turn1"]
    assert answers(made) == ['You said: "[1088 ms of speech]"', 'You said: "[1260 ms of speech]"']
    assert sources(made).count("live") > 0


@pytest.mark.parametrize("pace", ["real", "virtual"])
async def test_a_stage_that_is_slow_is_overtaken_in_real_time_only(pace: Pace) -> None:
    log = spoken().log
    made, _, _ = await live(log, patch=SHORTER, samples=Silence(), pace=pace, stage=slow)
    kinds = sources(made)
    first = kinds.index("live")
    answer = kinds[first : kinds.index("live", first + 3)]
    assert ("decided" in answer) == (pace == "real")


@pytest.mark.parametrize("pace", ["real", "virtual"])
async def test_a_model_that_says_nothing_to_a_unit_is_not_waited_for(pace: Pace) -> None:
    log, kept = await listening()
    made, _, _ = await live(log, f'{{"drop": {appends(log)[2]}}}', samples=kept.samples, pace=pace, stage=mute)
    said = {type(made.transactions[entry.seq - 1].command) for entry in made.entries if entry.source == "live"}
    assert said == {cmd.StageAccepted, cmd.StageReleased}
    assert any(isinstance(event, ev.SessionClosed) for event in made.transactions[-1].events)


@pytest.mark.parametrize("pace", ["real", "virtual"])
async def test_a_stage_that_fails_is_heard(pace: Pace) -> None:
    log, kept = await listening()
    edit = f'{{"drop": {appends(log)[2]}}}'
    made, _, _ = await live(log, edit, samples=kept.samples, pace=pace, stage=failing)
    failed = [entry.command for entry in made.transactions if isinstance(entry.command, cmd.StageFailed)]
    assert [report.code for report in failed] == ["engine_error"]


async def test_a_stage_that_says_nothing_is_given_up_when_time_stands_still() -> None:
    made, _, asked = await live(spoken().log, patch=SHORTER, samples=Silence(), stage=mute)
    assert len(asked) == 2
    failed = [entry.command for entry in made.transactions if isinstance(entry.command, cmd.StageFailed)]
    assert [(report.code, report.message) for report in failed] == [
        ("no_recorded_answer", "The stage has said nothing for two minutes.")
    ] * 2
    assert "missing" in sources(made)
