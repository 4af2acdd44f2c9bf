"""The warm-up: one session of the server's own, before the first client is let in (B27)."""

from typing import Protocol

import anyio
import structlog

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import CommitInput
from antiphon.events.config import Capabilities, ConfigPatch
from antiphon.events.events import AudioDelta, ListenDecided, ResponseEnded, TextDelta

from .attachment import Attachment
from .boundary import contained
from .clock import Clock
from .errors import Refused
from .host import PipelineHost
from .ingress import AppendRequest
from .opening import Opening

_log = structlog.get_logger()

HELD_US = 180_000_000
"""Clients are held no longer than this, whatever becomes of the warm-up."""

ANSWER_US = 150_000_000
"""How long the model may take to say something."""

UNIT_MS = 1_000
"""Length of a unit of a model that has none of its own."""


class Opener(Protocol):
    """What the warm-up needs of a hub."""

    async def open_held(self, opening: Opening) -> Attachment:
        """Open a session although clients are held."""
        ...

    async def close(self, session: str, control_id: str, words: str | None = None) -> None:
        """Close a session, whoever serves it."""
        ...

    async def free(self, session: str) -> None:
        """Wait until its slot is free."""
        ...


class WarmUp:
    """Lets the model work once on `units` units, and then lets the clients in.

    `over` is set when it has ended, could not be, or has taken too long; without units it is over at once.
    """

    def __init__(self, units: int, pipeline: PipelineHost, capabilities: Capabilities, clock: Clock) -> None:
        self.over = anyio.Event()
        self._units = units
        self._pipeline = pipeline
        self._capabilities = capabilities
        self._clock = clock
        if not units:
            self.over.set()

    async def run(self, hub: Opener) -> None:
        """Warm the model up once its stages are loaded. An error in it lets the clients in, and nothing else."""
        latest = self._clock.call_at(self._clock.monotonic_us() + HELD_US, self.over.set)
        try:
            await self._pipeline.wait_ready()
            if self._pipeline.ready:
                await contained("the warm-up failed", lambda: "warm-up", lambda: self._converse(hub))
        finally:
            latest.cancel()
            self.over.set()

    async def _converse(self, hub: Opener) -> None:
        listens = self._capabilities.core_resumable_request and self._capabilities.supports_auto_response
        opening = Opening(
            dialect="duplex",
            control_id="warm-up",
            patch=ConfigPatch(auto_response=True) if listens else ConfigPatch(),
            wants_resume=False,
        )
        try:
            attachment = await hub.open_held(opening)
        except Refused as refused:
            _log.warning("the model cannot be warmed up", code=refused.code, why=refused.message)
            return
        try:
            self._speak(attachment, listens=listens)
            with anyio.CancelScope() as waiting:
                timer = self._clock.call_at(self._clock.monotonic_us() + ANSWER_US, waiting.cancel)
                try:
                    await _answered(attachment)
                finally:
                    timer.cancel()
        finally:
            # Explicitly: a session that only loses its connection would wait, and hold its slot (B27).
            with anyio.CancelScope(shield=True):
                await _close(hub, attachment.session)
        await hub.free(attachment.session)

    def _speak(self, attachment: Attachment, *, listens: bool) -> None:
        heard: AudioFormat = self._capabilities.input_format
        unit = murmur(heard.bytes_for(self._capabilities.chunk_period_ms or UNIT_MS))
        for _ in range(self._units):
            attachment.append(AppendRequest(data=unit, format=heard, speech=True))
        if not listens and self._capabilities.supports_client_commit:
            attachment.send(CommitInput(attachment=attachment.generation, create_response=True))


async def _close(hub: Opener, session: str) -> None:
    try:
        await hub.close(session, "warm-up:close", "warm-up")
    except Refused as refused:
        _log.warning("the warm-up's session is not closed", session=session, code=refused.code)


async def _answered(attachment: Attachment) -> None:
    """Wait until the model has said something, or has chosen not to."""
    with attachment.cursor() as cursor:
        async for entry in cursor:
            said = (ResponseEnded, AudioDelta, TextDelta, ListenDecided)
            if any(isinstance(event, said) for event in entry.transaction.events):
                return


def murmur(size: int) -> bytes:
    """Return `size` bytes of quiet pcm16 that is not silence."""
    return (b"\x00\x02\x00\xfe" * (size // 4 + 1))[:size]
