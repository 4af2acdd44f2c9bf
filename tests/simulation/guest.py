"""A client of a world in the server's own process, and everything that cancels its calls."""

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import msgspec

from antiphon.engine.direct import DirectClient, Heard, NotConnected, ResyncRequired
from antiphon.engine.errors import Refused, Resync
from antiphon.events.commands import ResponseOptions
from antiphon.events.config import ConfigPatch, TurnDetection
from antiphon.events.events import ItemCreated, ResponseCreated

from .peer import LOUD, QUIET
from .script import Step

if TYPE_CHECKING:
    from .world import Process, World

PATCHES = (
    ConfigPatch(instructions="Be brief."),
    ConfigPatch(turn_detection=None),
    ConfigPatch(turn_detection=TurnDetection(silence_duration_ms=320, min_speech_duration_ms=64)),
    ConfigPatch(output_modalities=("text",)),
    ConfigPatch(voice="nobody"),
    ConfigPatch(auto_response=True),
)


class Guest:
    """A client that opens its session in process."""

    def __init__(self, world: "World", who: int) -> None:
        self.world = world
        self.who = who
        self.client: DirectClient | None = None
        self.process: Process | None = None
        self.responses: list[str] = []
        self.items: list[str] = []
        self.last = 0
        self.busy = False
        self.reading = 0
        self.forgiven = False

    # -- connecting ------------------------------------------------------------------------------------------

    def connect(self, step: Step) -> None:
        """Open a session, or resume the one that there is."""
        if self.busy:
            return
        process = self.world.process
        if self.client is None or self.process is not process:
            self.client, self.process, self.last, self.busy = None, process, 0, True
            self.world.spawn(lambda: self._open(process, step), step)
        elif self.client._attachment is None or self.client._attachment.ended is not None:
            self.world.spawn(self._resume, step)

    async def _open(self, process: "Process", step: Step) -> None:
        vads = (None, None, TurnDetection(silence_duration_ms=320, min_speech_duration_ms=64))
        vads = (*vads, msgspec.structs.replace(vads[2], false_interruption=True))
        patch = ConfigPatch(turn_detection=vads[step.a % 4], auto_response=step.b % 3 == 0)
        client = DirectClient(process.hub, patch=patch)
        try:
            await client.__aenter__()
            self.client, self.forgiven = client, False
            self.responses, self.items = [], []
            self._read()
        except Refused as refused:
            self.world.saw(f"error: {refused.code}")
        finally:
            self.busy = False

    async def _resume(self) -> None:
        client = self.client
        if client is None or self.busy:
            return
        self.busy = True
        try:
            await client.resume()
            if client is self.client:
                self._read()
        except (NotConnected, Resync):
            self.client = None
        except Refused as refused:
            self.world.saw(f"error: {refused.code}")
            if refused.code in ("session_resume_expired", "session_closed"):
                self.client = None
        finally:
            self.busy = False

    def race(self, step: Step) -> None:
        """Resume although it is connected."""
        if self.client is not None and not self.busy and self.process is self.world.process:
            self.world.spawn(self._resume, step)
            self.world.saw("two resumes race")

    again = race

    def cancel_call(self, step: Step) -> None:
        """Resume, and be cancelled."""
        self.race(Step(0, step.who, step.what, step.a, step.b, step.c * 3))

    # -- reading ---------------------------------------------------------------------------------------------

    def _read(self) -> None:
        self.reading += 1
        turn, client = self.reading, self.client
        assert client is not None

        async def read() -> None:
            try:
                async for heard in client.events():
                    if client is not self.client:
                        return
                    self._take(heard)
                    if turn != self.reading:
                        return  # what it took is seen; another reader goes on
            except (NotConnected, Refused):
                pass

        self.world.spawn(read, Step(0, 0, "read", 0, 0, 1))

    def _take(self, heard: Heard) -> None:
        event = heard.event
        if isinstance(event, ResyncRequired):
            self.forgiven = True
            self.world.saw("resync: journal_overflow")
            return
        try:
            if event.number and event.count:
                good = event.number == self.last + 1 or self.forgiven
                assert good, f"P49: {event.number} behind {self.last} in process"
                self.last = event.number + event.count - 1
        except AssertionError as error:
            self.world.blame(error)
        if isinstance(event, ResponseCreated):
            self.responses.append(event.head.id)
        elif isinstance(event, ItemCreated):
            self.items.append(event.item.id)

    # -- what it says ----------------------------------------------------------------------------------------

    def _say(self, say: str, *args: object, **options: object) -> None:
        client = self.client
        if client is None:
            return
        with suppress(NotConnected):
            getattr(client, say)(*args, **options)

    def append(self, step: Step, *, loud: bool = False) -> None:
        data = (LOUD if loud or step.b % 3 == 0 else QUIET) * (1, 2, 4, 12)[step.a % 4]
        self._say("append_audio", data, transcript="mhm" if step.b % 17 == 0 else None)

    def speak(self, step: Step) -> None:
        self.append(step, loud=True)
        if step.c % 2:
            self._say("append_audio", QUIET * 12)

    def cough(self, step: Step) -> None:
        self._say("append_audio", LOUD * (2 + step.a % 6))
        self._say("append_audio", QUIET * 12)

    def drone(self, step: Step) -> None:
        for _ in range(2 + step.a % 2):
            self._say("append_audio", LOUD * 40)

    def stutter(self, step: Step) -> None:
        self._say("append_audio", LOUD * 4 + QUIET * 14 + LOUD * (1 + step.a % 5))

    def ask(self, step: Step) -> None:
        self.text(step)
        self.respond(step)

    def commit(self, step: Step) -> None:
        self._say("commit", create_response=(None, None, True, False)[step.a % 4])

    def clear(self, _step: Step) -> None:
        self._say("clear_input")

    def text(self, step: Step) -> None:
        self._say("send_text", "Hello." * (1 + step.a % 3))

    def respond(self, step: Step) -> None:
        self._say("create_response", ResponseOptions(instructions="Hi.") if step.a % 4 == 0 else None)

    def aside(self, _step: Step) -> None:
        self._say("create_response", ResponseOptions(remember=False))

    def cancel(self, step: Step) -> None:
        self._say("cancel_response", None if step.a % 2 else self._response(step))

    def barge_in(self, _step: Step) -> None:
        self._say("barge_in")

    def clear_output(self, step: Step) -> None:
        self._say("clear_output", None if step.a % 2 else self._response(step))

    def truncate(self, step: Step) -> None:
        self._say("truncate", f"item_{self._response(step)}", step.b % 1500)

    def delete(self, step: Step) -> None:
        self._say("delete_item", self.items[-1 - step.a % min(len(self.items), 6)] if self.items else "none")

    def ack(self, step: Step) -> None:
        self._say("ack_playback", (0, 100, 500, 10**7)[step.b % 4], self._response(step) if step.c % 3 else None)

    def event_ack(self, _step: Step) -> None:
        try:
            self._say("acknowledge")
        except Refused as error:
            self.world.blame(error)

    def update(self, step: Step) -> None:
        self._say("update_session", PATCHES[step.a % len(PATCHES)])

    def write(self, _step: Step) -> None:
        self._say("append_text", "And this. ")

    def signal(self, step: Step) -> None:
        self._say("signal_turn", ("user_started", "user_committed", "assistant_done")[step.a % 3])

    def heartbeat(self, _step: Step) -> None:
        self._say("heartbeat")

    def drop(self, step: Step) -> None:
        """Lose the connection."""
        client = self.client
        if client is None or self.busy or client._attachment is None:
            return
        self.world.fault("connection lost")
        self.world.spawn(lambda: self._drop(client), step)

    async def _drop(self, client: DirectClient) -> None:
        with suppress(NotConnected):
            await client.drop()

    def close(self, step: Step) -> None:
        """End the session."""
        client, self.client = self.client, None
        if client is not None:
            self.world.spawn(client.close, step)

    async def leave(self) -> None:
        client, self.client = self.client, None
        if client is not None and self.process is self.world.process:
            with anyio.move_on_after(20):
                await client.close()

    def _response(self, step: Step) -> str:
        return self.responses[-1 - step.a % min(len(self.responses), 3)] if self.responses else "resp_none"
