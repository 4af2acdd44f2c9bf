"""Where stages live: order, faults, priorities, and a process that dies."""

import asyncio
import errno
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from antiphon.engine import process_host
from antiphon.engine.host import PipelineHost
from antiphon.engine.hosts import THREAD_NICENESS, InlineHost, Mailbox, ThreadHost
from antiphon.engine.process_host import BACKOFF_S, NICENESS, ProcessHost
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import (
    StageAbortFailed,
    StageAccepted,
    StageFailed,
    StageFinished,
    StageLost,
    StageProduced,
    StageReleased,
)
from antiphon.events.effects import AbortRequests, ConfirmRequest, ReleaseRequests, SubmitToStage, TurnInput
from antiphon.events.items import AudioPart, Message
from antiphon.stages.base import AnyMessage, AnyReport, Report, StageUnavailable
from antiphon.stages.echo import EchoStage
from antiphon.stages.scripted import Crash, ScriptedStage

from tests.rules import rule
from tests.stages.units import fed

pytestmark = pytest.mark.anyio

FORMAT = AudioFormat("pcm16", 16_000)


class Desk:
    """Collects reports, and lets a test wait for the one it wants."""

    def __init__(self) -> None:
        self.said: list[tuple[AnyReport, bytes]] = []
        self.threads: set[int] = set()
        self._changed = anyio.Event()

    def report(self, report: AnyReport, sound: bytes) -> None:
        self.said.append((report, sound))
        self.threads.add(threading.get_ident())
        self._changed.set()

    async def until(self, kind: type[AnyReport], count: int = 1) -> list[AnyReport]:
        with anyio.fail_after(30):
            while len(found := [report for report, _ in self.said if isinstance(report, kind)]) < count:
                self._changed = anyio.Event()
                await self._changed.wait()
        return found

    @property
    def kinds(self) -> list[type[AnyReport]]:
        return [type(report) for report, _ in self.said]


@asynccontextmanager
async def started(host: PipelineHost) -> AsyncIterator[Desk]:
    desk = Desk()
    await host.start(desk.report)
    try:
        with anyio.fail_after(30):
            await host.wait_ready()
        yield desk
    finally:
        await host.aclose()


def turn(request: str = "s.e0.turn0", *, response_id: str | None = "resp", pcm: bytes = b"") -> SubmitToStage:
    ref = SampleRef("in", 0, len(pcm))
    items = (Message(id="i", role="user", content=(AudioPart(None, ref),)),) if pcm else ()
    payload = TurnInput(
        session="s",
        response_id=response_id,
        items=items,
        instructions="",
        speaks=True,
        format=FORMAT,
        voice="default",
    )
    return SubmitToStage(request=request, payload=payload)


PCM = bytes(range(256)) * 20


@pytest.fixture(params=["inline", "thread", "process"])
def host(request: pytest.FixtureRequest) -> PipelineHost:
    made: dict[str, PipelineHost] = {
        "inline": InlineHost(EchoStage()),
        "thread": ThreadHost(EchoStage()),
        "process": ProcessHost("antiphon.stages.echo:EchoStage"),
    }
    return made[request.param]


@rule("K23")
async def test_every_host_carries_messages_and_reports_in_order_to_the_loops_thread(host: PipelineHost) -> None:
    async with started(host) as desk:
        assert host.ready
        host.submit(turn(pcm=PCM), ((SampleRef("in", 0, len(PCM)), PCM),))
        await desk.until(StageFinished)
        produced = [(report, sound) for report, sound in desk.said if isinstance(report, StageProduced)]
        assert b"".join(sound for _, sound in produced) == PCM
        assert [report.size for report, _ in produced] == [len(sound) for _, sound in produced]
        host.release(ReleaseRequests(requests=("s.e0.turn0",)))
        host.submit(turn("s.e0", response_id=None), ())
        for seq in range(1, 4):
            host.feed(fed("s.e0", SampleRef("in", 0, 4), seq), bytes([seq]) * 4)
        host.abort(AbortRequests(requests=("s.e0", "never.heard.of")))
        await desk.until(StageReleased, 3)
        assert [sound for _, sound in desk.said if sound][-3:] == [b"\1" * 4, b"\2" * 4, b"\3" * 4]
        assert desk.kinds[0] is StageAccepted
        assert desk.threads == {threading.get_ident()}
    await host.aclose()


class Broken:
    """A stage that raises on everything but its start; or that cannot start."""

    def __init__(self, missing: str | None = None) -> None:
        self.missing = missing
        self.closed = 0
        self.niceness = 0

    @property
    def input_format(self) -> AudioFormat:
        return FORMAT

    def start(self, report: Report) -> None:
        self.niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        if self.missing is not None:
            raise StageUnavailable(self.missing)

    def handle(self, message: AnyMessage) -> None:
        raise RuntimeError("secret detail")

    def close(self) -> None:
        self.closed += 1


@rule("K16", "Q4.21")
@pytest.mark.parametrize("kind", [InlineHost, ThreadHost])
async def test_an_exception_fails_its_request_and_nothing_else(kind: type[InlineHost | ThreadHost]) -> None:
    stage = Broken()
    host = kind(stage)
    async with started(host) as desk:
        host.submit(turn(), ())
        host.abort(AbortRequests(requests=("s.e0.turn0", "other")))
        await desk.until(StageAbortFailed, 2)
        (failed, _), *rest = desk.said
        assert isinstance(failed, StageFailed)
        assert failed.code == "runtime_data_plane_stream_failed"
        assert "secret" not in failed.message
        # It may hold them still: nobody else gets their place (B2, K22).
        assert [type(report) for report, _ in rest] == [StageAbortFailed, StageAbortFailed]
    assert stage.closed == 1


@pytest.mark.parametrize("kind", [InlineHost, ThreadHost])
async def test_a_stage_that_cannot_load_says_why_and_answers_for_its_requests(
    kind: type[InlineHost | ThreadHost],
) -> None:
    stage = Broken("the voice is missing: pip install it")
    host = kind(stage)
    async with started(host) as desk:
        assert not host.ready
        assert host.unavailable == "the voice is missing: pip install it"
        host.submit(turn(), ())
        host.release(ReleaseRequests(requests=("s.e0.turn0",)))
        await desk.until(StageReleased)
        assert desk.kinds == [StageFailed, StageReleased]
    assert stage.closed == 1


class Faulty(Broken):
    """Raises what nobody has foreseen, from its start and from its end."""

    def start(self, report: Report) -> None:
        raise RuntimeError("secret detail")

    def close(self) -> None:
        super().close()
        raise RuntimeError("secret detail")


@pytest.mark.parametrize("kind", [InlineHost, ThreadHost])
async def test_a_start_that_raises_anything_is_a_stage_that_cannot_load(
    kind: type[InlineHost | ThreadHost],
) -> None:
    stage = Faulty()
    host = kind(stage)
    async with started(host) as desk:
        assert (host.ready, host.unavailable, host.not_ready) == (
            False,
            "cannot load: RuntimeError",
            "cannot load: RuntimeError",
        )
        host.submit(turn(), ())
        await desk.until(StageFailed)
    assert stage.closed == 1


async def test_a_stage_thread_runs_at_a_lower_priority() -> None:
    stage = Broken()
    async with started(ThreadHost(stage)):
        assert stage.niceness == min(19, os.getpriority(os.PRIO_PROCESS, 0) + THREAD_NICENESS)


async def test_a_scripted_crash_is_a_fault_of_one_request() -> None:
    stage = ScriptedStage(scripts={0: (Crash(),)})
    host = InlineHost(stage)
    async with started(host) as desk:
        host.submit(turn("a"), ())
        host.submit(turn("b"), ())
        assert desk.kinds == [StageFailed, StageAccepted, StageProduced, StageFinished]


@rule("K18")
async def test_a_process_that_dies_loses_its_live_requests_and_is_started_again() -> None:
    host = ProcessHost("antiphon.stages.echo:EchoStage")
    async with started(host) as desk:
        first = host.pid
        assert first is not None
        assert os.getpriority(os.PRIO_PROCESS, first) == os.getpriority(os.PRIO_PROCESS, 0) + NICENESS
        host.submit(turn("s.e0", response_id=None), ())
        host.submit(turn("s.e0.turn1"), ())
        await desk.until(StageFinished)
        host.release(ReleaseRequests(requests=("s.e0.turn1",)))
        await desk.until(StageReleased)
        os.kill(first, signal.SIGKILL)
        assert await desk.until(StageLost) == [StageLost(request="s.e0")]
        assert not host.ready
        # Until the next child is there, new requests wait for it; what is lost is answered for.
        host.submit(turn("s.e1", response_id=None), ())
        host.submit(turn("s.e1.turn2"), ())
        host.feed(fed("s.e0", SampleRef("in", 0, 2), 1), b"ab")
        host.feed(fed("s.e1", SampleRef("in", 0, 2), 1), b"ab")
        host.confirm(ConfirmRequest(request="s.e0"))
        host.abort(AbortRequests(requests=("s.e0", "s.e1.turn2")))
        host.release(ReleaseRequests(requests=("s.e0",)))
        assert await desk.until(StageReleased, 3) == [
            StageReleased(request="s.e0.turn1"),
            StageReleased(request="s.e0"),
            StageReleased(request="s.e0"),
        ]
        with anyio.fail_after(30 + BACKOFF_S):
            while not host.ready:
                await anyio.lowlevel.checkpoint()
        assert host.pid != first
        host.submit(turn("s.e1.turn3"), ())
        await desk.until(StageFinished, 3)
        said = [(type(report), report.request) for report, _ in desk.said]
        assert (StageProduced, "s.e1") in said, "what was fed meanwhile was heard"
        assert (StageReleased, "s.e1.turn2") in said
        assert StageFailed not in desk.kinds


async def test_a_process_ends_when_its_socket_does() -> None:
    host = ProcessHost("antiphon.stages.echo:EchoStage")
    async with started(host):
        pid = host.pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_process_that_cannot_load_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacking_stage.py").write_text(LACKING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    host = ProcessHost("lacking_stage:make", {"what": "voice"})
    async with started(host) as desk:
        assert (host.ready, host.unavailable) == (False, "the voice is missing")
        host.submit(turn(), ())
        await desk.until(StageFailed)


@pytest.mark.parametrize(
    ("factory", "kind"),
    [
        ("no_such_module:make", "ModuleNotFoundError"),
        ("antiphon.stages.echo:NoSuchStage", "AttributeError"),
        ("faulty_stage:Faulty", "RuntimeError"),
    ],
)
async def test_a_process_that_raises_anything_is_not_started_again_and_again(
    factory: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faulty_stage.py").write_text(FAULTY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    host = ProcessHost(factory)
    async with started(host):
        assert (host.ready, host.unavailable) == (False, f"cannot load: {kind}")


async def test_being_ready_is_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_host, "BACKOFF_S", 0.01)
    host = ProcessHost("antiphon.stages.echo:EchoStage")
    assert host.not_ready == "The model is still being loaded."
    async with started(host) as desk:
        assert (host.ready, host.not_ready, host.known.is_set()) == (True, None, True)
        host.submit(turn("s.e0", response_id=None), ())
        assert host.pid is not None
        os.kill(host.pid, signal.SIGKILL)
        await desk.until(StageLost)
        assert (host.ready, host.unavailable, host.known.is_set()) == (False, None, False)
        assert host.not_ready == "The stage's process ended and is being restarted."
        with anyio.fail_after(30):
            await host.wait_ready()
        assert (host.ready, host.not_ready) == (True, None)
    assert not host.ready


async def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_host, "BACKOFF_S", 0.01)
    real = process_host.subprocess.Popen
    failures = [OSError(errno.EAGAIN, "no process"), OSError(errno.ENOMEM, "no memory")]

    def popen(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*arguments, **options)

    monkeypatch.setattr(process_host.subprocess, "Popen", popen)
    host = ProcessHost("antiphon.stages.echo:EchoStage")
    before = set(os.listdir("/proc/self/fd"))
    await host.start(Desk().report)
    assert host.not_ready == "The stage's process cannot be started: no memory."
    assert set(os.listdir("/proc/self/fd")) == before, "no descriptor stays open"
    try:
        with anyio.fail_after(30):
            await host.wait_ready()
        assert (host.ready, failures) == (True, [])
    finally:
        await host.aclose()


FAULTY = """
class Faulty:
    def start(self, report):
        raise RuntimeError("secret detail")

    def close(self):
        pass
"""

LACKING = """
from antiphon.stages.base import StageUnavailable
from antiphon.stages.echo import EchoStage

class Lacking(EchoStage):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def start(self, report):
        raise StageUnavailable(f"the {self.what} is missing")

make = Lacking
"""


async def test_much_at_once_in_both_directions() -> None:
    host = ProcessHost("antiphon.stages.echo:EchoStage")
    async with started(host) as desk:
        host.submit(turn("s.e0", response_id=None), ())
        for seq in range(1, 401):
            data = bytes([seq & 255]) * 20_000
            host.feed(fed("s.e0", SampleRef("in", 0, 20_000), seq), data)
        await desk.until(StageProduced, 400)
        assert [sound[0] for _, sound in desk.said if sound] == [seq & 255 for seq in range(1, 401)]


async def test_a_host_that_is_paused_holds_reports_back_and_then_gives_all(host: PipelineHost) -> None:
    async with started(host) as desk:
        host.pause(True)
        host.submit(turn(pcm=PCM), ((SampleRef("in", 0, len(PCM)), PCM),))
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        # What an inline stage says on being spoken to is there at once.
        assert isinstance(host, InlineHost) == bool(desk.said)
        host.pause(False)
        await desk.until(StageFinished)
        assert b"".join(sound for _, sound in desk.said) == PCM


async def test_a_mailbox_that_is_full_lets_the_stages_thread_wait_until_it_is_emptied_or_closed() -> None:
    desk = Desk()
    mailbox = Mailbox(asyncio.get_running_loop(), desk.report, 2)
    mailbox.pause(True)
    put: list[int] = []
    done = threading.Event()

    def speak() -> None:
        for number in range(6):
            mailbox.put(StageAccepted(request=str(number)), b"")
            put.append(number)
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, speak)
        while len(put) < 2:
            await anyio.lowlevel.checkpoint()
        assert not done.is_set()
        mailbox.put(StageAccepted(request="loop"), b"")  # the loop itself never waits
        mailbox.pause(False)
        await desk.until(StageAccepted, 7)
    assert [report.request for report, _ in desk.said if report.request != "loop"] == list("012345")
    mailbox.pause(True)
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, speak)
        while len(put) < 8:
            await anyio.lowlevel.checkpoint()
        mailbox.close()
