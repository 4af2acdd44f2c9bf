"""Decisions about conversation items: create, delete, retrieve."""

import re

import msgspec

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import (
    FunctionCall,
    FunctionOutput,
    ImagePart,
    Item,
    Message,
    Part,
    TextPart,
    pieces,
    weight,
)

from . import batches
from .answering import answer
from .continuing import wake
from .draft import Draft
from .refusal import refuse
from .state import Session, answered_calls, call_ids, next_call_id
from .weighing import check_room

_ITEM_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def create_item(draft: Draft, command: cmd.CreateItem) -> None:
    """Add an item; all checks come before anything is stored (WIRE 7.2)."""
    session = draft.session
    item = placed(session, _checked(draft, command.item))
    previous = _place(session, command.previous_item_id)
    check_room(session, weight(item), "item")
    most = draft.plugins[session.plugin].tool_batches if session.auto else 0
    batched = isinstance(item, FunctionOutput) and most > 0
    if batched:
        batches.check(session.batches, most)
    draft.emit(ev.ItemCreated(number=draft.number, count=3, item=item, previous_item_id=previous))
    if not isinstance(item, FunctionOutput):
        return
    if batched:
        draft.emit(ev.FunctionBatched(batch=batches.numbered(session.batches, item)))
    if session.auto:
        wake(draft)
    elif item.call_id in session.turn.awaited and draft.session.turn.absorbs:
        answer(draft)


def _checked(draft: Draft, item: Item) -> Item:
    session = draft.session
    entries = session.conversation.entries
    if not item.id:
        item = msgspec.structs.replace(item, id=draft.new_item_id())
    if not _ITEM_ID.fullmatch(item.id):
        refuse("bad_event", "An item id is 1 to 64 of A-Z a-z 0-9 _ -.", "item.id", "value")
    if item.id in entries or item.id in _promised(session):
        refuse("item_already_exists", f"There is already an item {item.id!r}.", "item.id")
    if isinstance(item, FunctionCall) and not item.call_id:
        item = msgspec.structs.replace(item, call_id=next_call_id(session))
    if isinstance(item, FunctionCall) and item.call_id in call_ids(session):
        refuse("bad_event", "There is already a call of this id.", "item.call_id", "value")
    if isinstance(item, FunctionOutput):
        _check_output(session, item)
    elif isinstance(item, Message):
        _check_images(session, item)
    return item


def _check_images(session: Session, item: Message) -> None:
    """Accept the pictures of an item: of a user, for a model that sees, within the session's limits (J5)."""
    if not any(isinstance(part, ImagePart) for part in item.content):
        return
    if item.role != "user" or not session.capabilities.supports_image_input:
        refuse("unsupported", "This model takes no images.", "item.content")
    limits = session.limits
    known = [entry.item for entry in session.conversation.entries.values()]
    images = [part for it in (*known, item) for part in pieces(it) if isinstance(part, ImagePart)]
    if len(images) > limits.images or sum(part.size for part in images) > limits.image_bytes:
        refuse(
            "input_backpressure",
            f"A conversation holds at most {limits.images} images of {limits.image_bytes} bytes together; "
            "delete old items.",
            "item.content",
        )


def placed(session: Session, item: Item) -> Item:
    """Return the item with the places that the bytes of its parts get in the `item` stream; it may have them."""
    if not isinstance(item, Message) or not pieces(item):
        return item
    at = session.conversation.attached
    content: list[Part] = []
    for part in item.content:
        if not isinstance(part, TextPart) and part.size and part.ref is None:
            part = msgspec.structs.replace(part, ref=SampleRef("item", at, part.size))
            at += part.size
        content.append(part)
    return msgspec.structs.replace(item, content=tuple(content))


def _promised(session: Session) -> set[str | None]:
    """Return the ids that clients were told and that are not items yet: of an open utterance and of answers."""
    return {session.input.item_id, *(item for response in session.open_responses for item in response.items)}


def _check_output(session: Session, output: FunctionOutput) -> None:
    items = (entry.item for entry in session.conversation.entries.values())
    complete = {item.call_id for item in items if isinstance(item, FunctionCall) and item.status == "completed"}
    if output.call_id not in complete:
        refuse("invalid_function_call_output", "There is no complete call of this id.", "item.call_id")
    if output.call_id in answered_calls(session) or output.call_id in session.batches.answered:
        refuse("invalid_function_call_output", "The call has an output already.", "item.output")


def _place(session: Session, previous: str | None) -> str | None:
    order = session.conversation.order
    if not previous:
        return order[-1] if order else None
    if previous == "root":
        return None
    if previous not in session.conversation.entries:
        refuse("item_not_found", f"There is no item {previous[:64]!r}.", "previous_item_id")
    return previous


def _known(session: Session, item_id: str, verb: str) -> Item:
    if not item_id:
        refuse("missing_item_id", "An item_id is needed.", "item_id", "missing")
    entry = session.conversation.entries.get(item_id)
    if entry is None:
        refuse(
            "item_not_found",
            f"Error {verb} item: the item with id '{item_id[:64]}' does not exist.",
            "item_id",
        )
    return entry.item


def delete_item(draft: Draft, command: cmd.DeleteItem) -> None:
    """Take an item out, unless it is being spoken (WIRE 2.9)."""
    session = draft.session
    item = _known(session, command.item_id, "deleting")
    if any(item.id in response.items for response in session.open_responses):
        refuse("item_in_progress", "The item belongs to a response that is running.", "item_id")
    draft.emit(ev.ItemDeleted(number=draft.number, count=1, item_id=item.id))
    awaited = isinstance(item, FunctionCall) and item.call_id in session.turn.awaited
    if awaited and not session.auto and draft.session.turn.absorbs:
        answer(draft)  # the outputs of the other calls are all there (WIRE 7.4)


def retrieve_item(draft: Draft, command: cmd.RetrieveItem) -> None:
    """Show an item as it is now."""
    item = _known(draft.session, command.item_id, "retrieving")
    draft.emit(ev.ItemRetrieved(number=draft.number, count=1, item=item))
