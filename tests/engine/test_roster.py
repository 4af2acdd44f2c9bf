"""The roster: one runner a session."""

import pytest

from antiphon.events.commands import Heartbeat

from .worlds import opening, settle, world

pytestmark = pytest.mark.anyio


async def test_a_runner_that_is_replaced_stops_at_once_and_the_session_goes_on() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        roster = here.hub._roster  # pyright: ignore[reportPrivateUsage]
        old = roster.live[attachment.session]
        new = await roster._take_over(attachment.session)  # pyright: ignore[reportPrivateUsage]
        await settle()
        assert old.over.is_set(), "it does not wait for an append to be told that it is fenced"
        assert attachment.ended == "failed"
        assert roster.live == {attachment.session: new}
        await here.advance(61_000)
        assert roster.live == {attachment.session: new}
        assert here.hub.statistics().admitted == 1


async def test_a_runner_that_finds_itself_fenced_stops_and_leaves_the_session_to_the_other_writer() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        await here.log.acquire(attachment.session)
        attachment.send(Heartbeat(attachment=1))
        await settle()
        assert attachment.ended == "failed"
        await here.advance(61_000)
        statistics = here.hub.statistics()
        assert (statistics.live, statistics.admitted, statistics.crashed) == (0, 0, 0)
