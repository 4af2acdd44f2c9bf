"""The roster: one runner a session."""

import pytest
from msgspec.structs import replace

from antiphon.engine.errors import Refused
from antiphon.engine.roster import KEPT_FENCED
from antiphon.events.commands import Heartbeat, StartRunner
from antiphon.events.log import Transaction, Unavailable

from .worlds import opening, resumption, settle, world

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
        with pytest.raises(Refused) as refused:
            await here.hub.resume(resumption(attachment, "again"))
        assert (refused.value.code, refused.value.retryable) == ("storage_unavailable", True), "it has not ended"


async def test_a_runner_that_was_overtaken_refuses_nobody_for_good() -> None:
    """P51: what it knows is of the past; the token of a client that has been elsewhere is none of it."""
    async with world() as here:
        attachment = await here.hub.open(opening())
        wrong = replace(resumption(attachment, "wrong"), token="x" * 43)
        with pytest.raises(Refused, match="invalid_resume_token"):
            await here.hub.resume(wrong)
        term = await here.log.acquire(attachment.session)
        started = StartRunner(term=term, wall_us=0)
        head = (await here.recorded(attachment.session))[-1]
        here.log.append(
            attachment.session,
            Transaction(seq=head.seq + 1, term=term, at=head.at, command=started, events=()),
            (),
            lambda error: None,
        )
        await settle()
        with pytest.raises(Refused) as refused:
            await here.hub.resume(replace(wrong, control_id="later"))
        assert (refused.value.code, refused.value.retryable) == ("storage_unavailable", True)

        async def broken(*_: object) -> list[Transaction]:
            raise Unavailable("the disk is gone")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(here.log, "read", broken)
            with pytest.raises(Refused, match="storage_unavailable"):
                await here.hub.resume(replace(wrong, control_id="latest"))


async def test_only_the_last_sessions_that_others_took_are_remembered() -> None:
    async with world() as here:
        roster = here.hub._roster  # pyright: ignore[reportPrivateUsage]
        for number in range(KEPT_FENCED + 1):
            roster._give_away(str(number))  # pyright: ignore[reportPrivateUsage]
        assert len(roster._fenced) == KEPT_FENCED  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(Refused, match="session_resume_expired"):
            await roster.find("0")
        with pytest.raises(Refused, match="storage_unavailable"):
            await roster.find("1")
