"""A voice client in real time: an open microphone, a speaker, and the conversation between them."""

import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from .client import SessionClient, SessionLost, SessionOptions
from .player import Player
from .talk_dialogue import Dialogue
from .talk_mic import RATE, Microphone

ENDPOINT_MS = 320
"""Silence that ends a turn."""

QUIET_S = 3.0
"""After all has been said, a turn must have begun within this."""


class Unanswered(Exception):
    """What was waited for did not happen. The message says what, and how long it was waited for."""


class Unheard(Unanswered):
    """The server noticed no speech in what was said."""


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
    """A conversation of a client. `run` keeps microphone and speaker going."""

    def __init__(self, client: SessionClient, dialogue: Dialogue) -> None:
        """Take an open client; the microphone opens now."""
        self.dialogue = dialogue
        self.mic = Microphone(now_us())
        self._client = client
        self._pulse = anyio.Event()
        self._lost: SessionLost | None = None

    async def run(self, script: Callable[[], Awaitable[None]]) -> None:
        """Converse for as long as `script` runs.

        Raises:
            Unanswered: by `until`, out of the script.
        """
        failure: Unanswered | None = None
        player = Player(self._client, playback=self.dialogue, listen=False)
        async with player, anyio.create_task_group() as group:
            for task in (partial(self._listen, player), self._speak):
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

    async def _listen(self, player: Player) -> None:
        async for event in self._client.events():
            player.hear(event)
            self._beat()

    async def _speak(self) -> None:
        """Send each piece when its last sample has been recorded; late ones at once, so that none is lost."""
        while True:
            await anyio.sleep(max(0.0, (self.mic.due_us - now_us()) / 1e6))
            self._client.append_audio(self.mic.take(), rate=RATE)
            self._beat()

    def _beat(self) -> None:
        pulse, self._pulse = self._pulse, anyio.Event()
        pulse.set()
