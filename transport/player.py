"""A loudspeaker for a client: it sounds answers, tells honestly what was heard, and is silent at once."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import anyio
from anyio.abc import TaskGroup

from .client import SessionClient
from .client_errors import SessionLost
from .client_events import Received
from .devices import NoDevice
from .playback import Ack, Playback, Truncate
from .speaker import Speaker

TICK_US = 20_000
"""How often sound is handed on, and it is looked whether more was played; `playback.STEP_MS` is what is told."""

AHEAD_US = 60_000
"""How far ahead of its time sound is handed to a device. An interruption takes it back, if the device can."""


class Sink(Protocol):
    """Whatever makes sound audible."""

    @property
    def latency_us(self) -> int:
        """How long after it was handed over and due, sound leaves the device."""
        ...

    def write(self, sound: bytes, rate: int) -> None:
        """Sound these samples (pcm16, little-endian) behind those before. Must not wait."""
        ...

    def flush(self) -> None:
        """Be silent now: what was handed over and is not sounded yet is void."""
        ...

    def close(self) -> None:
        """Free the device."""
        ...


class FunctionSink:
    """A function in a sink's place: it is called with the samples that are due, and their rate."""

    latency_us = 0

    def __init__(self, function: Callable[[bytes, int], None]) -> None:
        self._function = function

    def write(self, sound: bytes, rate: int) -> None:
        """Call it."""
        self._function(sound, rate)

    def flush(self) -> None:
        """What was handed over is the function's."""

    def close(self) -> None:
        """Nothing to free."""


class Plays(Protocol):
    """What a player plays by: `Playback`, or something that looks at more."""

    @property
    def speaker(self) -> Speaker: ...

    def handle(self, event: Received, now_us: int) -> list[Truncate]:
        """Take an event in; return what to send because of it."""
        ...

    def acks(self, now_us: int) -> list[Ack]:
        """Return what to acknowledge now."""
        ...

    def stop(self, now_us: int) -> list[Truncate]:
        """Fall silent; return what was heard."""
        ...


class Player:
    """Plays what a client hears, from `async with` to its end.

    Every 200 ms and at the end of an answer it acknowledges what was played, to the millisecond. It stands still
    and plays on when the server says so (`output_audio_buffer.paused`, `resumed`), and falls silent in the moment
    in which an interruption arrives; where it stopped is told by `conversation.item.truncate`. `sink` is a device
    (`devices.loudspeaker`), a function, or None: then nothing sounds, and the times are those of a real one.

    A device that fails (`devices.NoDevice`) ends the block with that error. Every event reaches the player by
    `hear`; `listen` False leaves that to whoever reads the client's events.
    """

    def __init__(
        self,
        client: SessionClient,
        sink: Sink | Callable[[bytes, int], None] | None = None,
        *,
        playback: Plays | None = None,
        listen: bool = True,
    ) -> None:
        self.playback: Plays = playback or Playback()
        self._client = client
        self._clock = client.clock
        self._sink: Sink | None = FunctionSink(sink) if callable(sink) else sink
        self._group: TaskGroup = anyio.create_task_group()
        self._silent = anyio.Event()
        self._failure: NoDevice | None = None
        self._unlisten = client.listen(self.hear) if listen else _nothing

    @property
    def now_us(self) -> int:
        """The time at the listener's ear."""
        late = 0 if self._sink is None else self._sink.latency_us
        return self._clock.monotonic_us() - late

    async def __aenter__(self) -> Self:
        if self._sink is not None:
            self.playback.speaker.hand_over(self.now_us)
        await self._group.__aenter__()
        self._group.start_soon(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unlisten()
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            if self._sink is not None:
                self._sink.flush()
                self._sink.close()
        if self._failure is not None:
            raise self._failure

    async def wait_silent(self) -> None:
        """Wait until everything that has come was played, or was stopped."""
        while self.playback.speaker.playing(self.now_us) is not None:
            self._silent = anyio.Event()
            await self._silent.wait()

    def stop(self) -> None:
        """Fall silent, as when the user cuts in, and tell the server where."""
        truncations = self.playback.stop(self.now_us)
        if self._sink is not None:
            self._sink.flush()
        self._tell(truncations)

    def hear(self, event: Received) -> None:
        """Take an event of the client's in."""
        speaker, now = self.playback.speaker, self.now_us
        sounding = speaker.sounding(now)
        truncations = self.playback.handle(event, now)
        if self._sink is not None and sounding and not speaker.sounding(now):
            self._sink.flush()
        self._tell(truncations)

    def _tell(self, truncations: list[Truncate]) -> None:
        for truncation in truncations:
            self._client.truncate(truncation.item_id, truncation.heard_ms)

    async def _run(self) -> None:
        try:
            while True:
                await self._clock.sleep_until(self._clock.monotonic_us() + TICK_US)
                self._tick(self.now_us)
        except SessionLost:
            return  # there is nobody to tell any more
        except NoDevice as failure:
            self._failure = failure
            self._group.cancel_scope.cancel()

    def _tick(self, now_us: int) -> None:
        speaker = self.playback.speaker
        if self._sink is not None:
            for piece in speaker.due(now_us, now_us + AHEAD_US):
                self._sink.write(piece.samples.astype("<i2").tobytes(), piece.rate)
        for ack in self.playback.acks(now_us):
            self._client.ack_playback(ack.response_id, ack.played_ms)
        if speaker.playing(now_us) is None:
            self._silent.set()


def _nothing() -> None:
    pass
