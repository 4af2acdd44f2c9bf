"""What a text frame can turn out to be, and on what its reading depends."""

from collections.abc import Callable

from msgspec import Struct

from antiphon.engine.errors import Refused
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.item_request import ItemRequest
from antiphon.engine.tokens import Veiled
from antiphon.events.commands import ClientCommand, CloseSession, UpdateSession
from antiphon.events.config import Dialect, SessionConfig

from .wire_errors import WireError


class SessionResume(Veiled, Struct, frozen=True, kw_only=True):
    """Take over a session, of which everything up to `last_number` was seen."""

    session: str
    token: str
    last_number: int
    event_id: str | None = None


class EventAck(Struct, frozen=True, kw_only=True):
    """Everything up to `number` was received."""

    number: int
    event_id: str | None = None


class Recorded(Struct, frozen=True):
    """An update, and the samples of the recording that it names."""

    update: UpdateSession
    sound: bytes


Understood = ClientCommand | AppendRequest | ItemRequest | CloseSession | SessionResume | EventAck | Recorded


class Undecided(Struct, frozen=True, kw_only=True):
    """An event that can be understood only under the configuration in force when its turn comes.

    `size` is how many bytes it holds until then; `sound` True: it is an append.
    """

    build: Callable[[SessionConfig], Understood]
    size: int
    sound: bool = False
    event_id: str | None = None
    event_type: str = ""
    client_seq: int | None = None

    def under(self, config: SessionConfig) -> Understood:
        """Return what the event means under this configuration.

        Raises:
            WireError: by the contract's code.
        """
        try:
            return self.build(config)
        except WireError as refusal:
            refusal.about(self.event_id, self.event_type, self.client_seq)
            raise


Decoded = Understood | Undecided


class Reading(Struct, frozen=True, kw_only=True):
    """What the reading of a frame depends on: who sent it. `signals`: the model takes signals about turns.

    `no_recording`: why it takes no reference audio, if it does not.
    """

    dialect: Dialect
    attachment: int
    signals: bool = True
    no_recording: Refused | None = None
