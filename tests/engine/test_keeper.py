"""How long sound is kept: what is needed stays, what is old goes, and what is gone says so."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from antiphon.engine import keeper, sample_store
from antiphon.engine.clock import VirtualClock
from antiphon.engine.datadir import DataDirectory
from antiphon.engine.direct import DirectClient
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.keeper import SETTLED_US, SWEEP_US, Keeper, Retention, retention
from antiphon.engine.replay import replay
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.audio import SampleRef
from antiphon.events.events import AudioDelta, InputCommitted, ResponseEnded
from antiphon.events.log import SoundGone, Unavailable
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage

from .worlds import KILLED, SECRET, settle

pytestmark = pytest.mark.anyio

SEGMENT = 2_000
PCM = b"\x00\x20" * 4_000
"""Half a second at 8,000 bytes: four segments of input, six of the echo at 24 kHz."""

WINDOW = Retention("window")
DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("text", "kind", "seconds"),
    [
        ("session", "session", 0),
        ("window", "window", 0),
        ("90s", "ttl", 90),
        ("7d", "ttl", 604_800),
        ("2w", "ttl", 1_209_600),
    ],
)
def test_what_an_operator_may_say(text: str, kind: str, seconds: int) -> None:
    assert retention(text) == Retention(kind, seconds * 1_000_000)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "forever", "0d", "-1d", "7", "7 d", "d", "1.5h", "window ", "7D"])
def test_anything_else_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="`session`, `window`, or a time"):
        retention(text)


class Kept:
    """A server with a store of small segments, and its keeper."""

    def __init__(self, hub: Hub, log: SqliteLog, clock: VirtualClock, keep: Retention) -> None:
        self.hub = hub
        self.log = log
        self.clock = clock
        self.keeper = Keeper(keep, log, log.samples, hub, clock)

    def segments(self, session: str, stream: str) -> list[int]:
        return sorted(self.log.samples.kept().get(session, {}).get(stream, {}))

    async def sweep(self, after_us: int = SETTLED_US) -> int:
        """Sweep as if everything had been written so long ago."""
        for path in self.log.samples.files().values():
            for file in path:
                then = (self.clock.wall_us() - after_us) * 1000
                os.utime(file, ns=(then, then))
        return await self.keeper.sweep()


@asynccontextmanager
async def kept(tmp_path: Path, keep: Retention = WINDOW) -> AsyncIterator[Kept]:
    clock = VirtualClock()
    with DataDirectory(tmp_path) as data:
        log = await SqliteLog.open(data, writer="inline")
        async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, KILLED, clock, SECRET) as hub:
            await settle()
            yield Kept(hub, log, clock, keep)
        await log.aclose()


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_store, "SEGMENT", SEGMENT)
    monkeypatch.setattr(keeper, "SEGMENT", SEGMENT)


async def turn(client: DirectClient, sound: bytes = PCM) -> tuple[str, bytes]:
    """Say something and play the echo; return the item that was said, and what was heard."""
    client.append_audio(sound, speech=True)
    client.commit(create_response=True)
    item, heard = "", b""
    with anyio.fail_after(20):
        async for event in client.events():
            heard += event.sound
            if isinstance(event.event, InputCommitted):
                item = event.event.item_id
            elif isinstance(event.event, ResponseEnded):
                break
    client.ack_playback(len(heard) // 48)
    await settle()
    return item, heard


async def test_what_is_unacknowledged_or_in_the_conversation_stays(tmp_path: Path) -> None:
    async with kept(tmp_path) as here, DirectClient(here.hub) as client:
        _, first = await turn(client)
        _, second = await turn(client)
        session = client.session
        said, spoken = here.segments(session, "in"), here.segments(session, "out")
        assert len(said) == 8
        assert len(spoken) > 8
        assert await here.sweep(DAY_US) == 0, "nothing is acknowledged, and both items are there"
        assert (here.segments(session, "in"), here.segments(session, "out")) == (said, spoken)
        await client.drop()
        client.last_number = 0
        await client.resume()
        with anyio.fail_after(20):
            heard = b""
            async for event in client.events():
                heard += event.sound
                if len(heard) == len(first + second):
                    break
        assert heard == first + second


async def test_what_was_acknowledged_and_deleted_goes_and_says_so(tmp_path: Path) -> None:
    async with kept(tmp_path) as here, DirectClient(here.hub) as client:
        item, _ = await turn(client)
        await turn(client)
        session = client.session
        client.acknowledge()
        await settle()
        assert await here.sweep(SETTLED_US - 1) == 0, "somebody may be about to read it"
        assert await here.sweep() > 0
        assert len(here.segments(session, "in")) == 8, "the items are still there"
        assert len(here.segments(session, "out")) == 1, "the last one is being written"
        client.delete_item(item)
        await settle()
        assert await here.sweep() > 0
        assert here.segments(session, "in") == [4, 5, 6, 7]
        for ref in (SampleRef("in", 0, 10), SampleRef("out", 0, 10)):
            with pytest.raises(SoundGone, match="past its retention"):
                await here.log.samples.read(session, ref)
        assert await here.log.samples.read(session, SampleRef("in", 8_000, 8_000)) == PCM
        _, heard = await turn(client)
        assert heard, "the session goes on"
        assert replay(await here.log.read(session, 0, 10_000)).identical, "without the sound"


@pytest.mark.parametrize(
    ("keep", "after", "gone"),
    [
        (WINDOW, SETTLED_US - 1, False),
        (WINDOW, SETTLED_US, True),
        (Retention("ttl", DAY_US), DAY_US - 1, False),
        (Retention("ttl", DAY_US), DAY_US, True),
    ],
)
async def test_the_sound_of_a_session_that_has_ended(
    tmp_path: Path, keep: Retention, after: int, gone: bool
) -> None:
    async with kept(tmp_path, keep) as here:
        async with DirectClient(here.hub) as client:
            await turn(client)
        await settle()
        here.clock.advance(after)
        session = client.session
        assert [row.state for row in await here.log.sessions()] == ["closed"]
        recorded = await here.log.read(session, 0, 10_000)
        assert (await here.sweep(after) > 0) == gone
        assert (here.segments(session, "in") == []) == gone
        assert await here.log.read(session, 0, 10_000) == recorded, "the log stays"
        if gone:
            (delta, *_) = [event for entry in recorded for event in entry.events if isinstance(event, AudioDelta)]
            with pytest.raises(SoundGone, match="past its retention"):
                await here.log.samples.read(session, delta.ref)
            assert await here.sweep() == 0
            await here.log.delete(session)
            assert here.log.samples.files() == {}, "the mark goes with the session"


async def test_by_itself_every_minute_and_again_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path) as here:
        passes: list[int] = []

        async def sweep() -> int:
            passes.append(here.clock.monotonic_us())
            if len(passes) == 1:
                raise Unavailable("the disk is gone")
            return 0

        monkeypatch.setattr(here.keeper, "sweep", sweep)
        here.hub.accompany(here.keeper.run)
        here.hub.accompany(Keeper(Retention(), here.log, here.log.samples, here.hub, here.clock).run)
        await settle()
        with capture_logs() as lines:
            for _ in range(3):
                here.clock.advance(SWEEP_US)
                await settle()
        assert passes == [SWEEP_US, 2 * SWEEP_US, 3 * SWEEP_US]
        assert [line["why"] for line in lines] == ["the disk is gone"]


async def test_what_is_not_known_to_go_on_is_left_alone(tmp_path: Path) -> None:
    """A session of another pipeline, or one whose log is damaged: open in the index, and not live here."""
    async with kept(tmp_path) as here, DirectClient(here.hub) as client:
        await turn(client)
        live = here.hub._live.pop(client.session)  # pyright: ignore[reportPrivateUsage]
        client.acknowledge()
        assert await here.sweep(DAY_US) == 0
        here.hub._live[client.session] = live  # pyright: ignore[reportPrivateUsage]
        assert await here.sweep(DAY_US) > 0
