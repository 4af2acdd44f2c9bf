"""Transactions that look like those of a session, and appends whose outcome can be awaited."""

from collections.abc import Sequence

import anyio

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import AppendAudio, CloseSession, StageProduced, Tick
from antiphon.events.config import Capabilities, Limits, SessionConfig
from antiphon.events.events import (
    AnyEvent,
    AudioDelta,
    AudioReceived,
    SessionClosed,
    SessionOpened,
    SessionView,
)
from antiphon.events.log import EventLog, LogError, SampleWrite, Transaction

SESSION = "sess_" + "0" * 32


def opened(
    seq: int = 1, term: int = 1, *, session: str = SESSION, number: int = 1, wall_us: int = 1_000
) -> Transaction:
    """The first transaction of a session; its one message has `number`."""
    view = SessionView(
        id=session,
        dialect="duplex",
        config=SessionConfig(model="echo"),
        capabilities=Capabilities(),
        resumable=True,
        expires_at=0,
        state="open",
        turn_state="idle",
        epoch=0,
        turn=0,
    )
    event = SessionOpened(
        number=number,
        count=1,
        session=session,
        control_id="open",
        plugin="echo",
        plugin_version="1",
        limits=Limits(),
        wall_us=wall_us,
        token_digest=None,
        view=view,
    )
    return Transaction(seq=seq, term=term, at=0, command=Tick(), events=(event,))


def closed(seq: int, term: int = 1, *, session: str = SESSION, number: int = 2, at: int = 0) -> Transaction:
    """The last transaction of a session."""
    event = SessionClosed(number=number, count=1, session=session, reason="client_close", expired=False)
    return Transaction(seq=seq, term=term, at=at, command=CloseSession(control_id="close"), events=(event,))


def heard(seq: int, term: int = 1, *, start: int = 0, size: int = 640) -> Transaction:
    """Sound that was received: private, without a number."""
    event = AudioReceived(ref=SampleRef("in", start, size), wire_bytes=size)
    command = AppendAudio(attachment=1, size=size)
    return Transaction(seq=seq, term=term, at=seq * 20_000, command=command, events=(event,))


def spoken(seq: int, term: int = 1, *, number: int, count: int = 1, start: int = 0) -> Transaction:
    """Sound of an answer: `count` messages from `number` on."""
    event = AudioDelta(
        number=number,
        count=count,
        session=SESSION,
        response_id="resp_1",
        item_id="item_1",
        ref=SampleRef("out", start, 3840),
        format=AudioFormat("pcm16", 24_000),
        audio_ms=80,
        text="word",
        epoch=1,
    )
    events: tuple[AnyEvent, ...] = (event,)
    command = StageProduced(request="r", text="word", size=3840)
    return Transaction(seq=seq, term=term, at=seq * 20_000, command=command, events=events)


class Outcomes:
    """Collects what appends were told, in the order of the telling."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.told: list[tuple[int, LogError | None]] = []
        self._asked = 0
        self._changed = anyio.Event()

    def append(
        self, transaction: Transaction, samples: Sequence[SampleWrite] = (), *, session: str = SESSION
    ) -> None:
        """Append, and remember the outcome under the transaction's seq."""
        self._asked += 1

        def settled(error: LogError | None) -> None:
            self.told.append((transaction.seq, error))
            self._changed.set()

        self.log.append(session, transaction, samples, settled)

    async def all(self) -> list[tuple[int, type[LogError] | None]]:
        """Wait for every outcome; return seq and kind of each."""
        while len(self.told) < self._asked:
            self._changed = anyio.Event()
            await self._changed.wait()
        return [(seq, None if error is None else type(error)) for seq, error in self.told]
