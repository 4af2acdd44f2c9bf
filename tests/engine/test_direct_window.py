"""The replay window in the process: an overflow is told like over a socket, and ends (BEHAVIOURS D17, D18)."""

import pytest

from antiphon.engine.direct import DirectClient, ResyncRequired
from antiphon.engine.errors import Resync
from antiphon.engine.published import OVERHEAD
from antiphon.engine.settings import HubSettings
from antiphon.events.config import Dialect
from antiphon.events.events import SessionTouched

from .worlds import settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

SMALL = HubSettings(shutdown_ms=200, replay_bytes=8 * OVERHEAD)
"""Room for the opening, which has many words, and for three heartbeats; or for eight."""


async def beat(client: DirectClient, times: int) -> list[int | str]:
    """Send heartbeats one by one; return the numbers of what came, and the reason of what is in no log."""
    heard: list[int | str] = []
    for _ in range(times):
        client.heartbeat()
        async for one in client.events():
            heard.append(one.event.reason if isinstance(one.event, ResyncRequired) else one.event.number)
            if isinstance(one.event, SessionTouched):
                break
        await settle()
    return heard


@rule("D17", "D18", "P50")
async def test_an_overflow_is_told_once_and_what_follows_has_no_number_until_all_is_acknowledged() -> None:
    async with world(settings=SMALL) as here, DirectClient(here.hub) as client:
        assert await beat(client, 3) == [0, 1, 2, 3]
        over = await beat(client, 3)
        assert over[:2] == ["journal_overflow", 0]
        assert set(over[2:]) == {0}
        assert client.last_number == 3, "what has no number is not seen by one"
        client.acknowledge()
        assert await beat(client, 2) == [7, 8], "the numbering goes on"
        assert client.last_number == 8


@rule("D17")
async def test_each_overflow_is_told() -> None:
    async with world(settings=SMALL) as here, DirectClient(here.hub) as client:
        for _ in range(2):
            heard = await beat(client, 9)
            assert heard.count("journal_overflow") == 1
            assert heard[-1] == 0
            client.acknowledge()


@rule("D17", "D22")
async def test_while_it_has_overflowed_the_client_cannot_come_back() -> None:
    async with world(settings=SMALL) as here, DirectClient(here.hub) as client:
        await beat(client, 8)
        with pytest.raises(Resync, match="journal_gap"):
            await client.resume()
        assert (await beat(client, 1))[-1] == 0, "and its connection is left alone"


@rule("D17")
@pytest.mark.parametrize("dialect", ["ga", "beta"])
async def test_a_dialect_without_numbers_hears_nothing_of_it(dialect: Dialect) -> None:
    async with world(settings=SMALL) as here, DirectClient(here.hub, dialect=dialect) as client:
        assert "journal_overflow" not in await beat(client, 8)
