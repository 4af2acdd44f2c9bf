"""What clients are told of a log: all messages in the dialect of its session, of each in the others a digest."""

import zlib
from collections.abc import Iterator, Sequence

from antiphon.engine.published import published
from antiphon.events.config import Dialect
from antiphon.events.events import AudioDelta, SessionOpened, SessionResumed
from antiphon.events.log import Transaction
from antiphon.transport.wire_out import Reader, project

DIALECTS: tuple[Dialect, ...] = ("duplex", "ga", "beta")
TOKEN = "t" * 43


def told(log: Sequence[Transaction]) -> str:
    """Return the messages of a log as text: a line for each, with the transaction that it is of.

    Sound is not in a log: every delta is empty. In a dialect that is not the session's, a message is its type and
    the crc32 of its bytes.
    """
    opened = next(event for event in log[0].events if isinstance(event, SessionOpened))
    own = opened.view.dialect
    lines = [f"{seq} {data.decode()}" for seq, data in messages(log, own)]
    for dialect in DIALECTS:
        if dialect != own:
            lines += [
                f"{seq} {dialect} {_kind(data)} {zlib.crc32(data):08x}" for seq, data in messages(log, dialect)
            ]
    return "".join(f"{line}\n" for line in lines)


def messages(log: Sequence[Transaction], dialect: Dialect) -> Iterator[tuple[int, bytes]]:
    """Give the messages of a log in a dialect, each with its transaction, as the client reads it that serves it."""
    opened = next(event for event in log[0].events if isinstance(event, SessionOpened))
    attachment = 1
    for transaction in log:
        for event in transaction.events:
            if isinstance(event, SessionResumed):
                attachment = event.attachment
        sound = {event.ref: b"" for event in transaction.events if isinstance(event, AudioDelta)}
        reader = Reader(
            session=opened.session,
            form=dialect,
            attachment=attachment,
            token=TOKEN if opened.view.resumable else None,
        )
        for message in project(published(transaction, sound), reader, 0):
            yield transaction.seq, message.data


def _kind(data: bytes) -> str:
    return data[9 : data.index(b'"', 9)].decode()
