"""Openings that are repeated: who is answered, and whose entry it is."""

import anyio
import pytest

from antiphon.engine.errors import Refused
from antiphon.engine.openings import KEPT, Openings

from .worlds import opening, settle

pytestmark = pytest.mark.anyio


async def test_a_waiter_is_answered_although_the_entry_was_pushed_out() -> None:
    openings, found = Openings(), list[str | None]()
    begun = openings.begin(opening("first"))

    async def repeat() -> None:
        found.append(await openings.repeated(opening("first")))

    async with anyio.create_task_group() as group:
        group.start_soon(repeat)
        await settle()
        for number in range(KEPT):
            openings.begin(opening(f"other {number}"))
        assert await openings.repeated(opening("first")) is None, "it is forgotten"
        openings.end("first", begun, "s")
    assert found == ["s"]


async def test_an_opening_that_fails_frees_its_own_control_id_only() -> None:
    openings = Openings()
    first = openings.begin(opening("same"))
    openings.end("same", first, None)
    second = openings.begin(opening("same"))
    openings.end("same", first, None)
    openings.end("same", second, "s")
    assert await openings.repeated(opening("same")) == "s"


async def test_who_waits_for_an_opening_that_fails_hears_that() -> None:
    openings, codes = Openings(), list[str]()
    begun = openings.begin(opening("same"))

    async def repeat() -> None:
        try:
            await openings.repeated(opening("same"))
        except Refused as refused:
            codes.append(refused.code)

    async with anyio.create_task_group() as group:
        group.start_soon(repeat)
        await settle()
        openings.end("same", begun, None)
    assert codes == ["unknown_session"]
    assert await openings.repeated(opening("same")) is None
