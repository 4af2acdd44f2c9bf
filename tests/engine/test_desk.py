"""A session's desk at the stages: the right sound, in order, from memory or from the store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from antiphon.engine.desk import Desk
from antiphon.engine.hosts import InlineHost
from antiphon.engine.sample_store import MemorySamples
from antiphon.engine.window import SoundWindow
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import AnyCommand, StageFailed
from antiphon.events.effects import (
    AbortRequests,
    AnyEffect,
    ConfirmRequest,
    ReleaseRequests,
    SubmitToStage,
    TurnInput,
)
from antiphon.events.items import AudioPart, Item, Message, TextPart
from antiphon.events.log import SampleWrite, Unavailable
from antiphon.stages.base import Abort, Confirm, Release, Submit
from antiphon.stages.scripted import Hang, ScriptedStage

from .worlds import settle
from tests.rules import rule
from tests.stages.units import fed, unit

pytestmark = pytest.mark.anyio


class GatedSamples(MemorySamples):
    """Samples that are read when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.broken = False

    async def read(self, session: str, ref: SampleRef) -> bytes:
        await self.gate.wait()
        if self.broken:
            raise Unavailable("gone")
        return await super().read(session, ref)


class Bench:
    def __init__(self, group: anyio.abc.TaskGroup, host: InlineHost, stage: ScriptedStage) -> None:
        self.samples = GatedSamples()
        self.stage = stage
        self.posted: list[AnyCommand] = []
        self.window = SoundWindow(100)
        self.samples.write("s", [SampleWrite(SampleRef("in", 0, 100), bytes(range(100)))])
        self.window.append(SampleRef("in", 100, 4), b"abcd")
        self.desk = Desk("s", host, self.samples, self.window, group, self.posted.append)

    @property
    def told(self) -> list[str]:
        return [type(message).__name__ for message in self.stage.messages]


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    stage = ScriptedStage(default=(Hang(),))
    host = InlineHost(stage)
    async with anyio.create_task_group() as group:
        await host.start(lambda report, sound: None)
        yield Bench(group, host, stage)
        await host.aclose()


def submit(*items: Item, request: str = "s.e0.turn0") -> SubmitToStage:
    payload = TurnInput(
        session="s",
        response_id="resp",
        items=items,
        instructions="",
        speaks=True,
        format=AudioFormat("pcm16", 16_000),
        voice="default",
    )
    return SubmitToStage(request=request, payload=payload)


def spoken(start: int, size: int, transcript: str | None = None) -> Message:
    return Message(id=f"i{start}", role="user", content=(AudioPart(transcript, SampleRef("in", start, size)),))


async def test_a_turn_gets_the_sound_that_nobody_has_transcribed() -> None:
    async with bench() as here:
        words = Message(id="w", role="user", content=(TextPart("hi"),))
        here.desk.execute([submit(words, spoken(0, 10, "known"), spoken(101, 2))])
        (message,) = here.stage.messages
        assert isinstance(message, Submit)
        assert message.sound == ((SampleRef("in", 101, 2), b"bc"),)


async def test_each_effect_becomes_its_message() -> None:
    async with bench() as here:
        effects: list[AnyEffect] = [
            submit(),
            fed("s.e0.turn0", SampleRef("in", 100, 4), 1),
            ConfirmRequest(request="s.e0.turn0"),
            AbortRequests(requests=("a",)),
            ReleaseRequests(requests=("b",)),
        ]
        here.desk.execute(effects)
        assert here.stage.messages[1:] == [
            unit("s.e0.turn0", 1, b"abcd"),
            Confirm(request="s.e0.turn0"),
            Abort(requests=("a",)),
            Release(requests=("b",)),
        ]


@rule("K23")
async def test_old_sound_comes_from_the_store_and_later_effects_wait_behind_it() -> None:
    async with bench() as here:
        here.desk.execute([submit(spoken(98, 2), spoken(100, 2))])
        here.desk.execute([ConfirmRequest(request="s.e0.turn0")])
        await settle()
        assert here.told == []
        here.samples.gate.set()
        await settle()
        assert here.told == ["Submit", "Confirm"]
        (message, _) = here.stage.messages
        assert isinstance(message, Submit)
        assert [data for _, data in message.sound] == [b"bc", b"ab"]
        here.desk.execute([ReleaseRequests(requests=("s.e0.turn0",))])
        assert here.told == ["Submit", "Confirm", "Release"]


@rule("K23")
async def test_the_sound_of_what_waits_is_kept_for_it() -> None:
    async with bench() as here:
        here.desk.execute([submit(spoken(98, 2))])
        here.desk.execute([submit(spoken(100, 2), request="s.e0.turn1")])
        here.window.trim(104)
        here.samples.gate.set()
        await settle()
        sound = [message.sound for message in here.stage.messages if isinstance(message, Submit)]
        assert [data for pieces in sound for _, data in pieces] == [b"bc", b"ab"]


@rule("K6")
@pytest.mark.parametrize("other", [False, True])
async def test_a_turn_that_is_called_off_while_it_is_prepared_is_given_to_nobody(other: bool) -> None:
    async with bench() as here:
        here.desk.execute([submit(spoken(98, 2))])
        here.desk.execute([AbortRequests(requests=("another",) if other else ("another", "s.e0.turn0"))])
        here.samples.gate.set()
        await settle()
        assert here.told == (["Submit", "Abort"] if other else ["Abort"]), (
            "the abort is told and confirmed all the same"
        )


async def test_sound_that_cannot_be_read_fails_the_request() -> None:
    async with bench() as here:
        here.samples.broken = True
        here.samples.gate.set()
        here.desk.execute([submit(spoken(0, 10)), ReleaseRequests(requests=("x",))])
        await settle()
        (failed,) = here.posted
        assert isinstance(failed, StageFailed)
        assert (failed.request, failed.code) == ("s.e0.turn0", "storage_unavailable")
        assert here.told == ["Release"]


async def test_an_abandoned_desk_does_nothing_more() -> None:
    async with bench() as here:
        here.desk.execute([submit(spoken(0, 10)), ConfirmRequest(request="s.e0.turn0")])
        here.desk.abandon(["s.e0.turn0"])
        here.samples.gate.set()
        await settle()
        assert here.told == ["Abort"]
