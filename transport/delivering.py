"""From messages to a socket, as it accepts them: sound that is void by then leaves no more (DESIGN 5.11)."""

from collections.abc import Callable, Sequence

from antiphon.engine.published import Published

from .websocket import Socket
from .wire_out import Message, Reader, project


async def deliver(
    socket: Socket, entry: Published, reader: Reader, messages: Sequence[Message], epoch: Callable[[], int]
) -> None:
    """Write the last `messages` of a transaction, as the socket accepts them; `epoch` is the latest durable one.

    Sound that an interruption voids while they wait leaves no more: where messages have numbers they come without,
    elsewhere they do not come.
    """
    at, known = 0, epoch()
    while at < len(messages):
        if not socket.has_room:
            await socket.room()
        if epoch() != known:
            known = epoch()
            messages, at = _unvoiced(messages[at:], project(entry, reader, known)), 0
        at += socket.fill(message.data for message in messages[at:])


def _unvoiced(left: Sequence[Message], anew: Sequence[Message]) -> Sequence[Message]:
    """Return what is left to send of a transaction; `anew` is all of it, without the sound that is void."""
    numbered = {message.number: message for message in anew if message.number}
    silent = [numbered.get(message.number, message) for message in left]
    return [message for message in silent if message.number or not message.sounds]
