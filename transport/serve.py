"""A whole server: log, stages, hub and port put together. The one module that knows concrete stages."""

import gc
import inspect
import resource
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Literal, cast

import anyio
import anyio.to_thread
import structlog
from msgspec import Struct

from antiphon.engine.clock import SystemClock
from antiphon.engine.datadir import DataDirectory
from antiphon.engine.errors import UnknownPlugin
from antiphon.engine.host import PipelineHost
from antiphon.engine.hosts import InlineHost, ThreadHost
from antiphon.engine.hub import Hub
from antiphon.engine.keeper import Keeper, Retention
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.plugins import Misfit, SessionPlugin, check_plugin, check_stage, plugin_named
from antiphon.engine.process_host import ProcessHost
from antiphon.engine.restart import Restart
from antiphon.engine.scoring import LevelScorer, ScoringService
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.config import Dialect
from antiphon.events.log import EventLog, Samples
from antiphon.stages.base import Scorer, Stage, StageUnavailable

from .access import Access
from .keys import FILE_NAME, ApiKey, Keys
from .keys import load as load_keys
from .pipelines import Factory, Pipeline, PipelineError, VoiceActivity, load, with_models
from .server import Listening, Server
from .tls import server_context

_log = structlog.get_logger()

DEFAULTS = HubSettings()
TELL_US = 2_000_000
"""How often it is told how far the taking over of sessions is."""
MEMORY_REPLAY_BYTES, MEMORY_REPLAY_MS = 8 * 1024 * 1024, 60_000
"""What may be asked for again of a session that is only kept in memory (D16, D17)."""


class ServeSettings(Struct, frozen=True, kw_only=True):
    """What an operator chooses. `data` None keeps the sessions in memory; None elsewhere: the pipeline's own.

    `pipeline` is a name or a file; `models` puts other models into its places (`asr`, `llm`, `tts`, `vad`).
    """

    pipeline: str = "echo"
    models: dict[str, str] = {}
    host: str = "127.0.0.1"
    port: int = 8000
    data: Path | None = None
    durability: Literal["normal", "full"] = "normal"
    retain: Retention = Retention()
    """How long sound is kept; the log of a session is kept until it is removed."""
    keys: tuple[ApiKey, ...] = ()
    key_file: Path | None = None
    """None: that of the data directory, if there is one or as soon as there is."""
    key_in_query: bool = False
    origins: tuple[str, ...] = ()
    """Whose pages may connect; none: everybody's."""
    tls: tuple[Path, Path] | None = None
    """The certificate and its key."""
    insecure: bool = False
    max_sessions: int | None = None
    model: str | None = None
    strict_model: bool = False
    """Refuse clients that name a model which is not served; else any name will do."""
    default_dialect: Dialect = "ga"

    @property
    def by_name(self) -> bool:
        """Whether the operator named models or a pipeline of their own: these are served, or nothing is (F9)."""
        return bool(self.models) or self.pipeline.endswith(".toml")


def _nothing(*_: object) -> None:
    pass


class Told(Struct, frozen=True, kw_only=True):
    """Whom the server tells how it is doing.

    Its address; that the models are loaded, or why they cannot be; why there is no voice detector; how far it is
    with the sessions of a former process, now and then and at last; that it is asked to stop; and, when it has, how
    many sessions its log keeps for a resume.
    """

    listening: Callable[[str], None]
    ready: Callable[[], None]
    unavailable: Callable[[str], None]
    undetected: Callable[[str], None] = _nothing
    recovering: Callable[[Restart], None] = _nothing
    recovered: Callable[[Restart], None] = _nothing
    stopping: Callable[[], None] = _nothing
    stopped: Callable[[int], None] = _nothing


def run(settings: ServeSettings, told: Told) -> None:
    """Serve until SIGINT or SIGTERM; then end in order.

    Raises:
        PipelineError, Insecure, KeyFileError, TlsError, DataDirectoryError, OSError: what was chosen cannot be
            served.
    """
    anyio.run(serve, settings, told, backend_options={"use_uvloop": True})


async def serve(settings: ServeSettings, told: Told) -> None:
    """Serve until a signal comes; raises as `run` does."""
    allow_many_files()
    pipeline = chosen(settings)
    access = access_for(settings)
    tls = None if settings.tls is None else server_context(*settings.tls)
    scorer = LateScorer(pipeline.voice_activity)
    left: list[int] = []
    # From the first moment on: a signal that comes while things are put together ends them in order too.
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with hub_for(pipeline, settings, scorer=scorer, left=left.append) as hub:
            server = Server(
                hub,
                Listening(
                    host=settings.host,
                    port=settings.port,
                    access=access,
                    insecure=settings.insecure,
                    tls=tls,
                    data=settings.data,
                ),
            )
            async with anyio.create_task_group() as group:
                group.start_soon(_stop_on_signal, signals, server, told)
                group.start_soon(_tell_readiness, hub, server, scorer, settings, told)
                group.start_soon(tell_recovery, hub, told)
                await server.serve(told.listening)
                group.cancel_scope.cancel()
            unavailable = hub.unavailable
    if unavailable is not None and settings.by_name:
        raise PipelineError(f"the models cannot be loaded: {unavailable}")
    told.stopped(sum(left))


def access_for(settings: ServeSettings) -> Access:
    """Return who may come: with the keys given at the start, and those in the file of keys.

    Raises:
        KeyFileError: the file cannot be used, or the one that was named is not there.
    """
    file = settings.key_file
    if file is not None:
        load_keys(file)
    elif settings.data is not None:
        file = settings.data / FILE_NAME
    return Access(
        keys=Keys(settings.keys, file),
        key_in_query=settings.key_in_query,
        origins=settings.origins or None,
    )


def chosen(settings: ServeSettings) -> Pipeline:
    """Return the pipeline that is to be served.

    Raises:
        PipelineError: there is none of this name, its file cannot be used, or it has no such model.
    """
    return with_models(load(settings.pipeline), settings.models)


@asynccontextmanager
async def hub_for(
    pipeline: Pipeline,
    settings: ServeSettings,
    *,
    scorer: "LateScorer | None" = None,
    left: Callable[[int], None] = _nothing,
) -> AsyncGenerator[Hub]:
    """Put a hub together and run it; its stages load while it already takes calls.

    When it has ended in order, `left` is told how many sessions its log keeps for a resume.
    """
    async with AsyncExitStack() as stack:
        plugin = session_half(pipeline)
        host = stage_host(pipeline, plugin)
        log, samples, secret = await _store(settings, stack)
        scorer = scorer or LateScorer(pipeline.voice_activity)
        if pipeline.voice_activity.arguments:
            await anyio.to_thread.run_sync(scorer.require)
        scoring = await stack.enter_async_context(ScoringService(scorer))
        served = settings.model or pipeline.model
        hub = Hub(
            log,
            samples,
            host,
            plugin,
            HubSettings(
                max_sessions=settings.max_sessions or pipeline.max_sessions,
                served_model=served,
                aliases=() if pipeline.name == served else (pipeline.name,),
                wildcard=not settings.strict_model,
                default_dialect=settings.default_dialect,
                warm_up_units=pipeline.warm_up,
                retention=settings.retain,
                replay_bytes=MEMORY_REPLAY_BYTES if settings.data is None else DEFAULTS.replay_bytes,
                replay_ms=MEMORY_REPLAY_MS if settings.data is None else DEFAULTS.replay_ms,
            ),
            SystemClock(),
            secret,
            scoring,
        )
        async with hub:
            if isinstance(log, SqliteLog):
                hub.accompany(Keeper(hub.settings.retention, log, log.samples, hub, hub.clock).run)
            yield hub
        left(len(await log.sessions("open")))


async def _store(settings: ServeSettings, stack: AsyncExitStack) -> tuple[EventLog, Samples, bytes]:
    if settings.data is None:
        memory = MemoryLog()
        stack.push_async_callback(memory.aclose)
        return memory, memory.samples, secrets.token_bytes(32)
    directory = stack.enter_context(DataDirectory(settings.data))
    log = await SqliteLog.open(directory, durability=settings.durability)
    stack.push_async_callback(log.aclose)
    # What is damaged is told at the start, not by every session; those that have ended would take a while to read.
    await log.sessions("open")
    return log, log.samples, directory.secret


def session_half(pipeline: Pipeline) -> SessionPlugin:
    """Return the session half, looked at before anything is started (B26).

    Raises:
        PipelineError: there is none of this name, or it cannot serve any session.
    """
    try:
        plugin = plugin_named(pipeline.plugin)
        check_plugin(plugin)
    except UnknownPlugin:
        raise PipelineError(f"the pipeline {pipeline.name!r} names no plugin: {pipeline.plugin!r}") from None
    except Misfit as misfit:
        raise PipelineError(str(misfit)) from None
    return plugin


def stage_host(pipeline: Pipeline, plugin: SessionPlugin) -> PipelineHost:
    """Return the host of a pipeline's stage, which is not started.

    Raises:
        PipelineError: the stage cannot be made, or does not fit the session half.
    """
    choice = pipeline.stage
    if choice.hosting == "process":
        return ProcessHost(choice.factory, choice.arguments)
    stage = cast("Stage", made(choice.factory, **choice.arguments))
    try:
        check_stage(plugin, stage.input_format)
    except Misfit as misfit:
        raise PipelineError(str(misfit)) from None
    return ThreadHost(stage) if choice.hosting == "thread" else InlineHost(stage)


def made(factory: Factory, **arguments: object) -> object:
    """Import what a dotted name says, and call it.

    Raises:
        PipelineError: there is none of this name, or it takes other arguments.
    """
    module, _, name = factory.partition(":")
    try:
        # The name comes out of a pipeline's description, so its type is not known here.
        make = cast("Callable[..., object]", getattr(import_module(module), name))
        inspect.signature(make).bind(**arguments)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise PipelineError(f"the factory {factory!r} cannot be called: {error}") from None
    return make(**arguments)


class LateScorer:
    """A scorer that is loaded when it is first needed, in the thread that scores.

    If it cannot be loaded, loudness takes its place, and the log says so.
    """

    def __init__(self, choice: VoiceActivity) -> None:
        self._choice = choice
        self._scorer: Scorer | None = None
        self._missing: str | None = None

    def new_stream(self) -> object:
        """Return a stream whose state is made when its first frame comes."""
        return _LateStream()

    def score(self, streams: list[object], frames: list[bytes]) -> list[float]:
        """Score a frame of each stream."""
        scorer = self._scorer or self._load()
        states: list[object] = []
        for stream in streams:
            assert isinstance(stream, _LateStream)
            if stream.state is None:
                stream.state = (scorer.new_stream(),)
            states.append(stream.state[0])
        return scorer.score(states, frames)

    def require(self) -> None:
        """Load it now: a detector that was chosen by name is never silently replaced (F9).

        Raises:
            PipelineError: it cannot be loaded.
        """
        missing = self.prepare()
        if missing is not None:
            raise PipelineError(f"the voice detector cannot be loaded: {missing}")

    def prepare(self) -> str | None:
        """Load it if it is not loaded; return why it cannot be. Loudness has taken its place then."""
        if self._scorer is None:
            try:
                self._scorer = cast("Scorer", made(self._choice.factory, **self._choice.arguments))
            except (StageUnavailable, ImportError, PipelineError) as error:
                self._missing = str(error)
                self._scorer = LevelScorer()
        return self._missing

    def _load(self) -> Scorer:
        missing = self.prepare()
        if missing is not None:
            _log.warning("the voice detector cannot be loaded; loudness takes its place", reason=missing)
        assert self._scorer is not None
        return self._scorer


class _LateStream(Struct):
    """What a stream remembers; a tuple, because a state may itself be None."""

    state: tuple[object] | None = None


def calm_collector() -> None:
    """Let the garbage collector pass over what is loaded by now, and look through everything only rarely.

    With some hundred sessions a full collection stops everything for 50 to 250 ms, and finds next to nothing:
    what a session leaves behind is freed by counting. Young objects are looked through in about a millisecond, and
    those that have outlived that soon: a hundred thousand of them would take 30.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 3, 150)


def allow_many_files() -> None:
    """Raise the soft limit of open files to the hard one: a session has a socket and two files of sound."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _stop_on_signal(signals: AsyncIterator[signal.Signals], server: Server, told: Told) -> None:
    async for _ in signals:
        told.stopping()
        server.stop()


async def _tell_readiness(
    hub: Hub, server: Server, scorer: LateScorer, settings: ServeSettings, told: Told
) -> None:
    await hub.ready.wait()
    calm_collector()
    if hub.unavailable is not None and settings.by_name:
        server.stop()  # `serve` says why
        return
    undetected = await anyio.to_thread.run_sync(scorer.prepare)
    if undetected is not None:
        told.undetected(undetected)
    if hub.unavailable is not None:
        told.unavailable(hub.unavailable)
    else:
        told.ready()


async def tell_recovery(hub: Hub, told: Told) -> None:
    """Tell how far the sessions of a former process are, if there are any."""
    await hub.counted.wait()
    if not hub.restart.left:
        return
    async with anyio.create_task_group() as group:
        group.start_soon(_tell_progress, hub, told)
        await hub.recovered.wait()
        group.cancel_scope.cancel()
    told.recovered(hub.restart)


async def _tell_progress(hub: Hub, told: Told) -> None:
    while True:
        await hub.clock.sleep_until(hub.clock.monotonic_us() + TELL_US)
        told.recovering(hub.restart)
