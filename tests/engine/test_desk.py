"""A session's desk at the stages: the right sound, in order, from memory or from the store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace

from antiphon.engine.desk import Desk
from antiphon.engine.hosts import InlineHost
from antiphon.engine.sample_store import MemorySamples
from antiphon.engine.window import SoundWindow
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import AnyCommand, StageFailed, StageRefused
from antiphon.events.context import ContextTurn
from antiphon.events.effects import (
    AbortRequests,
    AnyEffect,
    ConfirmRequest,
    ReleaseRequests,
    SubmitToStage,
    TurnInput,
)
from antiphon.events.items import AudioPart, ImagePart, Item, Message, TextPart
from antiphon.events.log import SampleWrite, Unavailable
from antiphon.stages.base import Abort, Append, Confirm, Release, Submit
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


PICTURE = SampleRef("item", 0, 7)
CLIP = SampleRef("item", 7, 4)
SHOT = SampleRef("img", 0, 4)


def seen(size: int) -> Message:
    return Message(id="p", role="user", content=(ImagePart("image/png", size, PICTURE),))


async def test_a_turn_gets_the_bytes_of_everything_that_it_names() -> None:
    async with bench() as here:
        words = Message(id="w", role="user", content=(TextPart("hi"),))
        turn = submit(words, spoken(100, 1, "known"), spoken(101, 2), seen(7))
        shot, voice, clip = SampleRef("img", 0, 3), SampleRef("ref", 0, 4), SampleRef("img", 3, 3)
        for ref, data in ((PICTURE, b"picture"), (shot, b"sho"), (voice, b"lent"), (clip, b"old")):
            here.window.keep(ref, data)
        remembered = (ContextTurn(clip=(clip, clip)), ContextTurn(user="hi"))
        payload = replace(turn.payload, frames=(shot, shot), ref_audio=voice, context=remembered)
        here.desk.execute([replace(turn, payload=payload)])
        (message,) = here.stage.messages
        assert isinstance(message, Submit)
        assert message.sound == (
            (SampleRef("in", 100, 1), b"a"),
            (SampleRef("in", 101, 2), b"bc"),
            (PICTURE, b"picture"),
            (shot, b"sho"),
            (voice, b"lent"),
            (clip, b"old"),
        )


@pytest.mark.parametrize("stored", [False, True])
async def test_a_unit_gets_the_bytes_of_its_turn_and_of_what_it_tells(stored: bool) -> None:
    async with bench() as here:
        here.samples.write("s", [SampleWrite(PICTURE, b"picture"), SampleWrite(CLIP, b"clip")])
        here.samples.write("s", [SampleWrite(SHOT, b"shot")])
        if not stored:
            for ref, data in ((PICTURE, b"picture"), (CLIP, b"clip"), (SHOT, b"shot")):
                here.window.keep(ref, data)
        effect = fed("s.e0", SampleRef("in", 100, 2), 1)
        clip = Message(id="c", role="user", content=(AudioPart(None, CLIP), TextPart("and this")))
        turn = submit(spoken(101, 3), clip).payload
        effect = replace(effect, refs=(*effect.refs, SampleRef("in", 102, 1)), frames=(SHOT,), turn=turn)
        here.desk.execute([replace(effect, items=(seen(7), clip))])
        here.samples.gate.set()
        await settle()
        (message,) = here.stage.messages
        assert isinstance(message, Append)
        assert (message.data, message.frames) == (b"abc", (b"shot",))
        assert message.sound == ((SampleRef("in", 101, 3), b"bcd"), (CLIP, b"clip"), (PICTURE, b"picture"))


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
@pytest.mark.parametrize("units", [False, True])
async def test_a_turn_that_is_called_off_while_it_is_prepared_is_given_to_nobody(units: bool, other: bool) -> None:
    async with bench() as here:
        here.desk.execute(
            [fed("s.e0.turn0", SampleRef("in", 98, 2), 1) if units else submit(spoken(98, 2))],
        )
        here.desk.execute([AbortRequests(requests=("another",) if other else ("another", "s.e0.turn0"))])
        here.samples.gate.set()
        await settle()
        given = "Append" if units else "Submit"
        assert here.told == ([given, "Abort"] if other else ["Abort"]), (
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
        assert (failed.request, failed.code) == ("s.e0.turn0", "runtime_append_failed")
        assert here.told == ["Release"]


@rule("G22", "E25")
async def test_a_unit_that_cannot_be_read_is_refused_with_those_behind_it() -> None:
    async with bench() as here:
        here.samples.broken = True
        here.samples.gate.set()
        lost = fed("s.e0", SampleRef("in", 98, 2), 1)
        behind = [fed("s.e0", SampleRef("in", 100, 2), 2), fed("s.e1", SampleRef("in", 100, 2), 2)]
        here.desk.execute([lost, *behind])
        await settle()
        (refused,) = here.posted
        assert refused == StageRefused(request="s.e0", operation=1, message="gone"), "the request itself lives on"
        assert here.stage.messages == [unit("s.e1", 2, b"ab")]
        again = replace(fed("s.e0", SampleRef("in", 102, 2), 3), seq=1)
        here.desk.execute([fed("s.e0", SampleRef("in", 102, 2), 3), again])
        assert here.stage.messages[1:] == [replace(unit("s.e0", 3, b"cd"), seq=1)], "its number is given again"
        here.desk.execute([fed("s.e0", SampleRef("in", 100, 2), 4)])
        assert len(here.stage.messages) == 3


async def test_an_end_of_the_request_forgets_what_could_not_be_read() -> None:
    async with bench() as here:
        here.samples.broken = True
        here.samples.gate.set()
        for end in (AbortRequests(requests=("s.e0",)), ReleaseRequests(requests=("s.e0",))):
            here.desk.execute([fed("s.e0", SampleRef("in", 98, 2), 1)])
            await settle()
            here.desk.execute([end, fed("s.e0", SampleRef("in", 100, 2), 2)])
        assert here.told == ["Abort", "Append", "Release", "Append"]


async def test_an_abandoned_desk_does_nothing_more() -> None:
    async with bench() as here:
        here.desk.execute([submit(spoken(0, 10)), ConfirmRequest(request="s.e0.turn0")])
        here.desk.abandon(["s.e0.turn0"])
        here.samples.gate.set()
        await settle()
        assert here.told == ["Abort"]
