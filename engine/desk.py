"""A session's desk at the stages: turns effects into messages, with the sound they speak of."""

from collections import deque
from collections.abc import Callable
from typing import assert_never

from anyio.abc import TaskGroup

from antiphon.events.audio import SampleRef
from antiphon.events.commands import AnyCommand, StageFailed, StageRefused
from antiphon.events.effects import (
    AbortRequests,
    AnyEffect,
    ConfirmRequest,
    FeedStage,
    ReleaseRequests,
    SubmitToStage,
    TurnInput,
)
from antiphon.events.items import Item, places
from antiphon.events.log import LogError, Samples

from .host import PipelineHost, Sound
from .window import SoundWindow


def wanted(effect: AnyEffect) -> list[SampleRef]:
    """Return every sample that an effect speaks of; of a unit its own sound and pictures come first."""
    match effect:
        case SubmitToStage(payload=payload):
            return list(dict.fromkeys(_of_turn(payload)))
        case FeedStage(turn=None, items=()):
            return [*effect.refs, *effect.frames]
        case FeedStage(turn=turn, items=items):
            beside = [] if turn is None else _of_turn(turn)
            return [*effect.refs, *effect.frames, *dict.fromkeys([*beside, *_of_items(items)])]
        case _:
            return []


def _of_turn(turn: TurnInput) -> list[SampleRef]:
    voice = [] if turn.ref_audio is None else [turn.ref_audio]
    return [*_of_items(turn.items), *turn.frames, *voice, *(ref for known in turn.context for ref in known.clip)]


def _of_items(items: tuple[Item, ...]) -> list[SampleRef]:
    return [ref for item in items for ref in places(item)]


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
        self._unread: dict[str, int] = {}
        """Requests of which a unit could not be read, and its number: what was under way behind it is lost too."""
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
        if self._unread and self._is_lost(effect):
            return True
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
            case FeedStage(refs=refs, frames=frames):
                data = sound[0][1] if len(refs) == 1 else b"".join(data for _, data in sound[: len(refs)])
                beside = len(refs) + len(frames)
                pictures = tuple([data for _, data in sound[len(refs) : beside]])
                self._host.feed(effect, data, pictures, sound[beside:])
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
            self._give_up(effect, str(error))
            return
        if not self._closed and not self._called_off(effect):
            self._tell(effect, sound)

    def _give_up(self, effect: AnyEffect, why: str) -> None:
        """Say that what an effect speaks of cannot be read: its answer fails, or its unit is refused (G22)."""
        match effect:
            case SubmitToStage(request=request):
                self._post(StageFailed(request=request, code="runtime_append_failed", message=why))
            case FeedStage(request=request, operation=operation):
                self._unread[request] = effect.seq
                self._post(StageRefused(request=request, operation=operation, message=why))
            case _:
                raise AssertionError("it speaks of nothing")

    def _is_lost(self, effect: AnyEffect) -> bool:
        """Return whether an effect is a unit that was under way behind one that could not be read (E25)."""
        match effect:
            case FeedStage(request=request, seq=seq) if request in self._unread:
                if self._unread[request] != seq:
                    return True
                del self._unread[request]
            case AbortRequests(requests=requests) | ReleaseRequests(requests=requests):
                for request in requests:
                    self._unread.pop(request, None)
            case _:
                pass
        return False

    def _called_off(self, effect: AnyEffect) -> bool:
        """Return whether a request was aborted while this was prepared for it: then nobody is given it (K6)."""
        if not isinstance(effect, SubmitToStage | FeedStage):
            return False
        request = effect.request
        return any(isinstance(later, AbortRequests) and request in later.requests for later, _ in self._waiting)

    async def _read(self, ref: SampleRef) -> bytes:
        return self._window.get(ref) or await self._samples.read(self._session, ref)
