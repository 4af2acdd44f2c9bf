"""What arrives before there is a session is kept in order, and counted; opening itself: test_connection."""

import anyio
import pytest

from antiphon.transport.handshake import Early

pytestmark = pytest.mark.anyio


async def test_the_first_message_is_waited_for_and_stays() -> None:
    early = Early()
    with anyio.move_on_after(0) as waiting:
        await early.first()
    assert waiting.cancelled_caught
    early.keep(b"a")
    early.keep(None)
    assert await early.first() == b"a"
    assert list(early.take()) == [b"a", None]
    assert list(early.take()) == []


async def test_empty_messages_are_not_free() -> None:
    early = Early()
    for _ in range(1000):
        early.keep(None)
    assert early.size > 10_000
