"""Lost sessions: taken over once, whoever waits for it and whoever stops waiting."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from antiphon.engine.attachment import Attachment
from antiphon.engine.errors import Refused
from antiphon.events.commands import Heartbeat, StageLost, StartRunner
from antiphon.events.log import Unavailable
from antiphon.stages.scripted import Hang, Say, ScriptedStage

from .worlds import ONE, World, ask, opening, resumption, settle, world

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def lost(stage: ScriptedStage | None = None) -> AsyncIterator[tuple[World, Attachment]]:
    """A session whose runner could not record: it has none, and the store works again."""
    async with world(stage, settings=ONE) as here:
        attachment = await here.hub.open(opening())
        if stage is not None:
            ask(attachment)
            await settle()
        here.log.broken = Unavailable("disk full")
        attachment.send(Heartbeat(attachment=1))
        await settle()
        here.log.broken = None
        assert attachment.ended == "failed"
        assert (here.hub.statistics().live, here.hub.statistics().admitted) == (0, 1), "it keeps its slot"
        yield here, attachment


async def terms(here: World, session: str) -> list[int]:
    return [entry.term for entry in await here.recorded(session) if isinstance(entry.command, StartRunner)]


async def test_a_lost_session_is_taken_over_after_a_second() -> None:
    async with lost() as (here, attachment):
        await here.advance(999)
        assert here.hub.statistics().live == 0
        await here.advance(1)
        assert here.hub.statistics().live == 1
        assert await terms(here, attachment.session) == [2]


async def test_a_resume_that_is_cancelled_in_the_taking_over_only_stops_waiting() -> None:
    async with lost() as (here, attachment):
        here.log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(here.hub.resume, resumption(attachment, "gone"))
            await settle()
            group.cancel_scope.cancel()
        here.log.release()
        await settle()
        new = await here.hub.resume(resumption(attachment, "here"))
        new.heard()
        await here.advance(61_000)
        assert new.current, "nobody takes it over a second time"
        assert await terms(here, attachment.session) == [2]
        new.send(Heartbeat(attachment=new.generation))
        await settle()
        assert new.current
        assert (here.hub.statistics().live, here.hub.statistics().admitted) == (1, 1)


async def test_those_who_want_a_lost_session_at_once_wait_for_the_same_taking_over() -> None:
    async with lost() as (here, attachment), anyio.create_task_group() as group:
        here.log.acquiring = anyio.Event()
        attachments: list[Attachment] = []

        async def resume(control_id: str) -> None:
            attachments.append(await here.hub.resume(resumption(attachment, control_id)))

        group.start_soon(resume, "same")
        group.start_soon(resume, "same")
        await here.advance(1_000)
        here.log.acquiring.set()
        await settle()
        assert [found.generation for found in attachments] == [2, 2]
        assert await terms(here, attachment.session) == [2]


async def test_a_store_that_still_fails_is_tried_again_later() -> None:
    async with lost() as (here, _):
        here.log.broken = Unavailable("disk full")
        await here.advance(1_000)
        assert (here.hub.statistics().live, here.hub.statistics().admitted) == (0, 1)
        here.log.broken = None
        await here.advance(1_999)
        assert here.hub.statistics().live == 0
        await here.advance(1)
        assert here.hub.statistics().live == 1


async def test_nobody_takes_a_lost_session_over_when_the_server_stops() -> None:
    async with lost() as (here, attachment):
        await here.hub.shutdown()
        for asked in (here.hub.close(attachment.session, "end"), here.hub.detach(attachment.session, "part")):
            with pytest.raises(Refused) as refused:
                await asked
            assert (refused.value.code, refused.value.retryable) == ("going_away", True)
    with pytest.raises(Refused, match="going_away"):
        await here.hub.close(attachment.session, "later")
    assert await terms(here, attachment.session) == []


async def test_the_requests_of_the_last_runner_are_failed_by_the_restart_alone() -> None:
    async with lost(ScriptedStage(default=(Say("One.", 80), Hang()))) as (here, attachment):
        await here.advance(1_000)
        session = here.hub.session(attachment.session)
        assert session is not None
        assert not session.requests
        assert await here.commands(attachment.session, StageLost) == []
