"""The part of a conversation that Qwen3-Omni is prompted with (N42). Pure.

A turn is a stretch of user messages and what answered them. The last turn, if nothing answered it, is the current
one: its sound is the sound that is answered now, and it is always kept.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.audio import SampleRef
from antiphon.events.items import AudioPart, ImagePart, Item, Message, Part, TextPart, is_user

MESSAGES = 16
CLIPS = 4
CLIP_BYTES = 8 * 1024 * 1024
"""As base64."""
IMAGES = 8
"""Their thumbnails are the stage's to make."""


class Turn(Struct, frozen=True):
    """The user's messages and what followed them, oldest first. `answered`: the model has spoken since."""

    asked: tuple[Message, ...]
    rest: tuple[Item, ...] = ()
    answered: bool = False

    @property
    def clips(self) -> list[AudioPart]:
        """The user's sound, as far as it is kept."""
        parts = [part for message in self.asked for part in message.content]
        return [part for part in parts if isinstance(part, AudioPart) and part.ref is not None]

    @property
    def gone(self) -> bool:
        """Whether something was said of which neither sound nor words are left."""
        parts = [part for message in self.asked for part in message.content]
        return any(isinstance(part, AudioPart) and part.ref is None and not part.transcript for part in parts)


def window(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return what the model is shown of the heard conversation: whole turns, each with one user message.

    System messages ahead of the first turn stay: they are no answer whose question fell out.
    """
    inside = items[_start(items) :]
    first = next((index for index, item in enumerate(inside) if is_user(item)), len(inside))
    ahead = [item for item in inside[:first] if isinstance(item, Message) and item.role == "system"]
    turns = _seen(_within(list(_turns(inside[first:]))))
    return (*ahead, *(item for turn in turns for item in (_merged(turn.asked), *turn.rest)))


def _start(items: Sequence[Item]) -> int:
    """Return where the window begins: 16 messages from the end, rounded outward to the begin of a user's turn."""
    start = max(len(items) - MESSAGES, 0)
    while start > 0 and not is_user(items[start]):
        start -= 1
    while start > 0 and is_user(items[start - 1]):
        start -= 1
    return start


def _turns(items: Sequence[Item]) -> Iterator[Turn]:
    """Cut a conversation that begins with the user into turns."""
    asked: list[Message] = []
    rest: list[Item] = []
    for item in items:
        if isinstance(item, Message) and item.role == "user":
            if rest:
                yield _turn(asked, rest)
                asked, rest = [], []
            asked.append(item)
        else:
            rest.append(item)
    if asked:
        yield _turn(asked, rest)


def _turn(asked: list[Message], rest: list[Item]) -> Turn:
    answered = any(not isinstance(item, Message) or item.role == "assistant" for item in rest)
    return Turn(tuple(asked), tuple(rest), answered)


def _within(turns: list[Turn]) -> list[Turn]:
    """Return the turns whose sound fits: the oldest is dropped first, and a turn without its sound as a whole.

    The current turn is always kept; only its oldest clips may go.
    """
    kept: list[Turn] = []
    clips = size = 0
    for turn in reversed(turns):
        if turn is turns[-1] and not turn.answered:
            turn = _trimmed(turn)
        elif turn.gone or _over(clips + len(turn.clips), size + _base64(turn.clips)):
            if turn.clips:
                clips = CLIPS  # whatever sound is older is dropped before this
            continue
        clips, size = clips + len(turn.clips), size + _base64(turn.clips)
        kept.append(turn)
    return kept[::-1]


def _over(clips: int, size: int) -> bool:
    return clips > CLIPS or size > CLIP_BYTES


def _trimmed(turn: Turn) -> Turn:
    """Return the current turn with the newest of its clips that fit; the last one stays in any case."""
    clips = turn.clips
    most = len(clips)
    while most > 1 and _over(most, _base64(clips[-most:])):
        most -= 1
    dropped = {part.ref for part in clips[: len(clips) - most]}
    return Turn(_without(turn.asked, dropped), turn.rest, turn.answered)


def _seen(turns: list[Turn]) -> list[Turn]:
    """Return the turns without the oldest pictures; a picture goes together with its place among the parts."""
    pictures = [
        part.ref
        for turn in turns
        for message in turn.asked
        for part in message.content
        if isinstance(part, ImagePart)
    ]
    dropped = set(pictures[:-IMAGES])
    return [replace(turn, asked=_without(turn.asked, dropped)) for turn in turns] if dropped else turns


def _without(asked: tuple[Message, ...], dropped: set[SampleRef | None]) -> tuple[Message, ...]:
    return tuple(
        replace(message, content=tuple(part for part in message.content if not _is_among(part, dropped)))
        for message in asked
    )


def _is_among(part: Part, refs: set[SampleRef | None]) -> bool:
    return not isinstance(part, TextPart) and part.ref is not None and part.ref in refs


def _base64(clips: list[AudioPart]) -> int:
    return sum(-(-part.ref.size // 3) * 4 for part in clips if part.ref is not None)


def _merged(messages: tuple[Message, ...]) -> Message:
    """Return one message of a turn: media before text, under the id of the last one."""
    parts = [part for message in messages for part in message.content]
    media = tuple(part for part in parts if not isinstance(part, TextPart))
    words = tuple(part for part in parts if isinstance(part, TextPart))
    return replace(messages[-1], content=(*media, *words))
