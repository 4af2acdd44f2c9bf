"""A fork whose unanswered questions a pipeline answers now."""

from secrets import token_hex

import anyio
from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from antiphon.engine.clock import SystemClock
from antiphon.engine.fork import Fork
from antiphon.engine.fork_live import LiveFork, Pace
from antiphon.engine.fork_patch import PatchError
from antiphon.engine.fork_samples import ForkSamples
from antiphon.engine.forked import Circling

from .cli_errors import UNUSABLE, Stop
from .cli_fork import Made, Wish, begun, finished
from .cli_logs import LoadedLog
from .pipelines import Pipeline, PipelineError, load
from .serve import session_half, stage_host


class Stages(Struct, frozen=True):
    """What answers live: a pipeline by its name or file, and what time does meanwhile."""

    pipeline: str
    pace: Pace


def make(log: LoadedLog, wanted: Wish, stages: Stages, console: Console) -> Made:
    """Make a fork; `console` is told what is asked of the pipeline. Must not be called on an event loop.

    Raises:
        Stop: the log cannot be decided again, what is wanted cannot be done, or the pipeline cannot answer.
    """
    try:
        pipeline = load(stages.pipeline)
        plugin = session_half(pipeline)
    except PipelineError as error:
        raise Stop(str(error), UNUSABLE) from error
    header = log.header
    if (plugin.name, plugin.version) != (header.plugin, header.plugin_version):
        raise Stop(
            f"the pipeline {pipeline.name!r} answers for {plugin.name} {plugin.version}, and the log is of "
            f"{header.plugin} {header.plugin_version}",
            UNUSABLE,
        )
    fork = begun(log, wanted, salt=token_hex(16), live=True)
    try:
        samples = ForkSamples(fork.sounds, log.read)
        anyio.run(_run, fork, samples, pipeline, stages, console)
    except (PipelineError, PatchError, Circling) as error:
        raise Stop(str(error), UNUSABLE) from error
    return finished(log, wanted, fork, samples, pipeline.name)


async def _run(fork: Fork, samples: ForkSamples, pipeline: Pipeline, stages: Stages, console: Console) -> None:
    def told(request: str, at: int) -> None:
        console.print(f"[dim]{at / 1e6:9.3f} s  {escape(pipeline.name)} answers {escape(request)}[/]")

    host = stage_host(pipeline, session_half(pipeline))
    live = LiveFork(fork, host, samples, SystemClock(), stages.pace, told)
    try:
        await host.start(live.on_report)
        await host.wait_ready()
        if host.unavailable is not None:
            raise PipelineError(f"the pipeline {pipeline.name!r} cannot be loaded: {host.unavailable}")
        await live.run()
    finally:
        with anyio.CancelScope(shield=True):
            await host.aclose()
