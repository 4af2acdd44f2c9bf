"""Answers out of band and input of their own, over a socket, in dialects that have names for them (WIRE 2.6)."""

from typing import Any

import pytest

from .serving import Wire, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

FORMS = pytest.mark.parametrize("query", ["?model=m", "?duplex=1&model=m"], ids=["ga", "duplex"])


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **more}


def spoken(done: dict[str, Any]) -> str:
    (item,) = done["response"]["output"]
    (part,) = item["content"]
    words: str = part.get("transcript") or part.get("text")
    return words


@rule("G5")
@FORMS
async def test_an_answer_out_of_band_is_nowhere_in_the_conversation(query: str) -> None:
    async with serving() as served, Wire.to(served.url + query) as wire:
        await wire.next()
        await wire.send("response.create", response={"conversation": "none", "input": [said("Sum it up.")]})
        created = await wire.until("response.created")
        assert created["response"]["conversation_id"] is None
        done = await wire.until("response.done")
        assert done["response"]["conversation_id"] is None
        assert spoken(done) == 'You said: "Sum it up."'
        assert not [kind for kind in wire.kinds() if kind.startswith("conversation.item")]
        item_id = done["response"]["output"][0]["id"]
        await wire.send("conversation.item.retrieve", item_id=item_id)
        assert (await wire.until("error"))["error"]["type"] == "invalid_request_error"


@FORMS
async def test_input_of_its_own_may_refer_to_items_and_its_answer_is_remembered(query: str) -> None:
    async with serving() as served, Wire.to(served.url + query) as wire:
        await wire.next()
        for name in ("first", "second"):
            await wire.send("conversation.item.create", item=said(f"The {name}.", id=name))
            await wire.until("conversation.item.done")
        await wire.send("response.create", response={"input": [{"type": "item_reference", "id": "first"}]})
        done = await wire.until("response.done")
        assert spoken(done) == 'You said: "The first."'
        assert done["response"]["conversation_id"] is not None
        await wire.send("conversation.item.retrieve", item_id=done["response"]["output"][0]["id"])
        assert (await wire.until("conversation.item.retrieved"))["item"]["role"] == "assistant"


@FORMS
async def test_a_reference_to_nothing_is_refused(query: str) -> None:
    async with serving() as served, Wire.to(served.url + query) as wire:
        await wire.next()
        await wire.send("response.create", response={"input": [{"type": "item_reference", "id": "none"}]})
        error = await wire.error()
        assert error["param"] == "response.input"
