"""A voice client in real time: an open microphone, a speaker, and the conversation between them."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import anyio

from .client import SessionLost
from .client_events import Received
from .client_link import SessionOptions
from .talk_dialogue import Dialogue, Truncate
from .talk_mic import RATE, Microphone

ACK_S = 0.04
"""How often it is looked whether more was played; `talk_dialogue.MIN_STEP_MS` says what is worth telling."""

ENDPOINT_MS = 320
"""Silence that ends a turn."""

QUIET_S = 3.0
"""After all has been said, a turn must have begun within this."""


class Unanswered(Exception):
    """What was waited for did not happen. The message says what, and how long it was waited for."""


class Unheard(Unanswered):
    """The server noticed no speech in what was said."""


class Line(Protocol):
    """What a conversation needs of a client; `RealtimeClient` has it. Sending never waits."""

    def append_audio(self, sound: bytes, *, rate: int | None = None) -> None:
        """Send sound of the user."""
        ...

    def ack_playback(self, response_id: str, played_ms: int) -> None:
        """Tell how much of a response was played."""
        ...

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """Tell how much of an answer was heard, for good."""
        ...

    def events(self) -> AsyncIterator[Received]:
        """Yield what the server says, until the session is over."""
        ...


def spoken(*, instructions: str | None = None, max_output_tokens: int | None = None) -> SessionOptions:
    """Return the options of a session in which the server hears by itself when the user speaks and stops."""
    return SessionOptions(
        instructions=instructions,
        max_output_tokens=max_output_tokens,
        sample_rate_hz=RATE,
        turn_detection={"type": "server_vad", "silence_duration_ms": ENDPOINT_MS},
        input_audio_transcription={"language": "en"},
    )


def now_us() -> int:
    """Return the time of this machine's monotonic clock, in microseconds."""
    return time.monotonic_ns() // 1000


class Talk:
    """A conversation over a line. `run` keeps microphone, speaker and acknowledgements going."""

    def __init__(self, line: Line, dialogue: Dialogue) -> None:
        """Take an open line; the microphone opens now."""
        self.dialogue = dialogue
        self.mic = Microphone(now_us())
        self._line = line
        self._pulse = anyio.Event()
        self._lost: SessionLost | None = None

    async def run(self, script: Callable[[], Awaitable[None]]) -> None:
        """Converse for as long as `script` runs.

        Raises:
            Unanswered: by `until`, out of the script.
        """
        failure: Unanswered | None = None
        async with anyio.create_task_group() as group:
            for task in (self._listen, self._speak, self._acknowledge):
                group.start_soon(self._while_connected, task)
            try:
                await script()
            except Unanswered as unanswered:  # on its own, not inside the group of errors that a task group raises
                failure = unanswered
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def until(self, what: str, condition: Callable[[int], bool], seconds: float) -> None:
        """Wait until `condition(now_us)` holds; it is looked at behind every event and piece of sound.

        Raises:
            Unanswered: it did not hold in time, or the session ended before it did.
        """
        with anyio.move_on_after(seconds):
            while not condition(now_us()):
                if self._lost is not None:
                    raise Unanswered(f"the session was lost before {what} ({self._lost})")
                if self.dialogue.closed is not None:
                    raise Unanswered(f"the server ended the session before {what} ({self.dialogue.closed})")
                await self._pulse.wait()
            return
        complaint = f"; the server said: {self.dialogue.errors[-1]}" if self.dialogue.errors else ""
        raise Unanswered(f"waited {seconds:.0f} s for {what}{complaint}")

    async def _while_connected(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except SessionLost as lost:
            self._lost = lost
            self._beat()

    async def _listen(self) -> None:
        async for event in self._line.events():
            self._tell(self.dialogue.handle(event, now_us()))
            self._beat()

    async def _speak(self) -> None:
        """Send each piece when its last sample has been recorded; late ones at once, so that none is lost."""
        while True:
            await anyio.sleep(max(0.0, (self.mic.due_us - now_us()) / 1e6))
            self._line.append_audio(self.mic.take(), rate=RATE)
            self._beat()

    async def _acknowledge(self) -> None:
        while True:
            await anyio.sleep(ACK_S)
            for ack in self.dialogue.acks(now_us()):
                self._line.ack_playback(ack.response_id, ack.played_ms)

    def _tell(self, truncations: list[Truncate]) -> None:
        for truncation in truncations:
            self._line.truncate(truncation.item_id, truncation.heard_ms)

    def _beat(self) -> None:
        pulse, self._pulse = self._pulse, anyio.Event()
        pulse.set()
