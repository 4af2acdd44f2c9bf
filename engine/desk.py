"""A session's desk at the stages: turns effects into messages, with the sound they speak of."""

from collections import deque
from collections.abc import Callable
from typing import assert_never

from anyio.abc import TaskGroup

from antiphon.events.audio import SampleRef
from antiphon.events.commands import AnyCommand, StageFailed
from antiphon.events.effects import (
    AbortRequests,
    AnyEffect,
    ConfirmRequest,
    FeedStage,
    ReleaseRequests,
    SubmitToStage,
)
from antiphon.events.items import AudioPart, ImagePart, Message, TextPart
from antiphon.events.log import LogError, Samples

from .host import PipelineHost, Sound
from .window import SoundWindow


def wanted(effect: AnyEffect) -> list[SampleRef]:
    """Return the samples that an effect needs.

    For a turn: those of every audio part which nobody has transcribed, of the pictures that came with it, and of
    the recording whose voice it is spoken with.
    """
    match effect:
        case SubmitToStage(payload=payload):
            parts = [
                part.ref
                for item in payload.items
                if isinstance(item, Message)
                for part in item.content
                if not isinstance(part, TextPart) and part.ref is not None and _needed(part)
            ]
            voice = [] if payload.ref_audio is None else [payload.ref_audio]
            return [*parts, *payload.frames, *voice]
        case FeedStage():
            return [*effect.refs, *effect.frames]
        case _:
            return []


def _needed(part: AudioPart | ImagePart) -> bool:
    return isinstance(part, ImagePart) or part.transcript is None


class Desk:
    """Executes one session's effects in the order they were decided (K23).

    Sound comes from memory. When it is older than the window (after a restart), it is read from the store in
    a task of `tasks`, and later effects of the session wait behind it.
    """

    def __init__(
        self,
        session: str,
        host: PipelineHost,
        samples: Samples,
        window: SoundWindow,
        tasks: TaskGroup,
        post: Callable[[AnyCommand], object],
    ) -> None:
        self._session = session
        self._host = host
        self._samples = samples
        self._window = window
        self._tasks = tasks
        self._post = post
        self._waiting: deque[tuple[AnyEffect, dict[SampleRef, bytes]]] = deque()
        """What waits for its turn, with the samples that were in memory when it was decided."""
        self._closed = False

    def execute(self, effects: list[AnyEffect]) -> None:
        """Carry the effects out, now if possible."""
        for effect in effects:
            if self._waiting:
                self._waiting.append((effect, self._in_memory(effect)))
            elif not self._at_once(effect, {}):
                self._waiting.append((effect, self._in_memory(effect)))
                self._tasks.start_soon(self._catch_up)

    def abandon(self, requests: list[str]) -> None:
        """Abort these requests and do nothing that was still waiting."""
        self._closed = True
        self._waiting.clear()
        if requests:
            self._host.abort(AbortRequests(requests=tuple(requests)))

    def _in_memory(self, effect: AnyEffect) -> dict[SampleRef, bytes]:
        """Return what is there now of the samples that an effect needs: it may be trimmed before its turn."""
        found = {ref: self._window.get(ref) for ref in wanted(effect)}
        return {ref: data for ref, data in found.items() if data is not None}

    def _at_once(self, effect: AnyEffect, known: dict[SampleRef, bytes]) -> bool:
        """Carry one effect out; False if samples that it needs are not in memory."""
        sound: list[tuple[SampleRef, bytes]] = []
        for ref in wanted(effect):
            data = known.get(ref)
            if data is None:
                data = self._window.get(ref)
            if data is None:
                return False
            sound.append((ref, data))
        self._tell(effect, tuple(sound))
        return True

    def _tell(self, effect: AnyEffect, sound: Sound) -> None:
        match effect:
            case SubmitToStage():
                self._host.submit(effect, sound)
            case FeedStage(refs=refs):
                data = sound[0][1] if len(refs) == 1 else b"".join(data for _, data in sound[: len(refs)])
                self._host.feed(effect, data, tuple(data for _, data in sound[len(refs) :]))
            case ConfirmRequest():
                self._host.confirm(effect)
            case AbortRequests():
                self._host.abort(effect)
            case ReleaseRequests():
                self._host.release(effect)
            case _:
                assert_never(effect)

    async def _catch_up(self) -> None:
        """Carry out what waits, reading from the store what memory no longer has."""
        while self._waiting and not self._closed:
            effect, known = self._waiting[0]
            if not self._at_once(effect, known):
                await self._from_store(effect, known)
            if self._waiting:
                self._waiting.popleft()

    async def _from_store(self, effect: AnyEffect, known: dict[SampleRef, bytes]) -> None:
        try:
            sound: Sound = tuple([(ref, known.get(ref) or await self._read(ref)) for ref in wanted(effect)])
        except LogError as error:
            request = effect.request if isinstance(effect, SubmitToStage | FeedStage) else ""
            self._post(StageFailed(request=request, code="storage_unavailable", message=str(error)))
            return
        if not self._closed and not self._called_off(effect):
            self._tell(effect, sound)

    def _called_off(self, effect: AnyEffect) -> bool:
        """Return whether a turn was aborted while it was prepared: then nobody is given it (K6)."""
        if not isinstance(effect, SubmitToStage):
            return False
        request = effect.request
        return any(isinstance(later, AbortRequests) and request in later.requests for later, _ in self._waiting)

    async def _read(self, ref: SampleRef) -> bytes:
        return self._window.get(ref) or await self._samples.read(self._session, ref)
