"""What one client was told and what it said, over all connections of one session."""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from antiphon.events.config import Dialect

Ending = Literal["", "heard", "unheard"]
"""How the session ended for its client: not, with its last message, or while nobody was connected."""


class Contact(Struct):
    """One connection: where its client said that it was, and every frame that it read, as it came."""

    asked: str = ""
    """The last event that it had, in a dialect whose address says so."""
    behind: int = 0
    """The number behind which it went on, in the dialect that has numbers."""
    frames: list[bytes] = field(default_factory=list[bytes])


class Journal(Struct):
    """One session, as its client saw it."""

    client: str
    dialect: Dialect
    session: str = ""
    contacts: list[Contact] = field(default_factory=list[Contact])
    sent: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """The counted commands that were handed to a socket, by their number."""
    changed: list[int] = field(default_factory=list[int])
    """Numbers under which another command was sent than before."""
    given: list[int] = field(default_factory=list[int])
    """The numbers of the events that the application was given, in their order."""
    ending: Ending = ""
    lost: str = ""
    """Why the client gave the session up."""

    def said(self, number: int, data: bytes) -> None:
        """A counted command is handed to a socket, perhaps again."""
        if self.sent.setdefault(number, data) != data:
            self.changed.append(number)

    @property
    def resumes(self) -> int:
        """How often its client came back."""
        return max(sum(bool(contact.frames) for contact in self.contacts) - 1, 0)

    @property
    def messages(self) -> int:
        """How many messages were read."""
        return sum(len(contact.frames) for contact in self.contacts)


def save(journals: list[Journal], path: Path) -> None:
    """Write them down."""
    path.write_bytes(_encode(journals))


def load(path: Path) -> list[Journal]:
    """Read what `save` wrote."""
    return _decode(path.read_bytes())


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Journal]).decode
