"""Conversation items and the parts they are made of."""

from typing import Literal

import msgspec
from msgspec import Struct

from .audio import SampleRef

Role = Literal["user", "assistant", "system"]
Detail = Literal["auto", "low", "high"]
"""How closely a model shall look at a picture."""
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class TextPart(Struct, frozen=True, tag="text"):
    """Written text: `input_text` of a user or system item, `output_text` of an assistant's."""

    text: str


class AudioPart(Struct, frozen=True, tag="audio", omit_defaults=True):
    """Sound and what was said in it. `ref` None: only the words are known. `rate` in Hz; pcm16 unless the
    response's format said otherwise. `size`: in a command, how many bytes beside it are this part's sound."""

    transcript: str | None = None
    ref: SampleRef | None = None
    rate: int = 16_000
    ms: int = 0
    size: int = 0


class ImagePart(Struct, frozen=True, tag="image", omit_defaults=True):
    """A picture of a user's message; `size` counts the bytes of its file. `ref` None: in a command, where the bytes
    travel beside it."""

    mime: Literal["image/jpeg", "image/png"]
    size: int
    ref: SampleRef | None = None
    detail: Detail = "auto"


Part = TextPart | AudioPart | ImagePart


class Message(Struct, frozen=True, tag="message", kw_only=True):
    """One message of the conversation."""

    id: str
    role: Role
    status: ItemStatus = "completed"
    content: tuple[Part, ...] = ()


class FunctionCall(Struct, frozen=True, tag="function_call", kw_only=True):
    """A call that the model asked for; `arguments` is the model's raw JSON text."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"


class FunctionOutput(Struct, frozen=True, tag="function_call_output", kw_only=True):
    """The client's answer to a call."""

    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"


Item = Message | FunctionCall | FunctionOutput


class ItemReference(Struct, frozen=True, tag="item_reference"):
    """An item of the conversation, named where an item may stand (WIRE 2.6)."""

    id: str


def is_user(item: Item) -> bool:
    """Return whether an item is something that the user said."""
    return isinstance(item, Message) and item.role == "user"


def counts(item: Item) -> bool:
    """Return whether an item is something to answer: whatever the user said, and calls and their outputs."""
    return not isinstance(item, Message) or item.role == "user"


def pieces(item: Item) -> list[AudioPart | ImagePart]:
    """Return the parts of an item whose bytes travel beside it, in order."""
    if not isinstance(item, Message):
        return []
    return [part for part in item.content if not isinstance(part, TextPart) and part.size]


def places(item: Item) -> list[SampleRef]:
    """Return where the sound and the pictures of an item lie, in order."""
    if not isinstance(item, Message):
        return []
    return [part.ref for part in item.content if not isinstance(part, TextPart) and part.ref is not None]


def sound_index(item: Item) -> int:
    """Return which part of an item is its sound; 0 if there is none."""
    content = item.content if isinstance(item, Message) else ()
    return next((index for index, part in enumerate(content) if isinstance(part, AudioPart)), 0)


MOST_WORDS = 500_000
"""Bytes of the words of one item, at most: messages that show them, even twice, stay below 1 MiB (WIRE 1.3)."""

_ITEM, _PART = 256, 64
"""Bytes that an item or a part weighs although there is nothing in it."""


def json_size(text: str) -> int:
    """Return how many bytes a text has as JSON, escapes included: what it takes on the wire."""
    return len(_json(text)) - len('""') if text else 0


_json = msgspec.json.Encoder().encode


def written(item: Item) -> int:
    """Return how many bytes of words stand in an item; each of its parts counts a little."""
    if isinstance(item, Message):
        return sum(_PART + json_size(_words(part)) for part in item.content)
    if isinstance(item, FunctionCall):
        return json_size(item.call_id) + json_size(item.name) + json_size(item.arguments)
    return json_size(item.call_id) + json_size(item.output)


def weight(item: Item) -> int:
    """Return what an item weighs that a client wrote: its words, and the bytes that came with it."""
    return _ITEM + written(item) + sum(part.size for part in pieces(item))


def _words(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    return (part.transcript or "") if isinstance(part, AudioPart) else ""


def text_of(item: Item) -> str:
    """Return the words of an item: texts and transcripts of a message, joined by a space; else its payload."""
    if isinstance(item, Message):
        return " ".join(word for word in map(_words, item.content) if word)
    return item.arguments if isinstance(item, FunctionCall) else item.output
