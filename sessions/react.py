"""What the shell must do because of an event. Called live, never in replay."""

from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef

from .options import with_options
from .plugins import REGISTRY, Registry
from .state import Session
from .view import prompt


def react(session: Session, event: ev.AnyEvent, plugins: Registry = REGISTRY) -> list[fx.AnyEffect]:
    """Return the effects of `event`; `session` is the state behind the whole transaction."""
    match event:
        case ev.AudioReceived(feed=str() as request, ref=ref):
            return [_fed(session, request, ref, plugins)]
        case ev.RequestSubmitted():
            return [_submit(session, event, plugins)]
        case (
            ev.Interrupted(requests=requests)
            | ev.SessionClosing(requests=requests)
            | ev.AsideCancelled(requests=requests)
        ) if requests:
            return [fx.AbortRequests(requests=requests)]
        case ev.CleanupRetried(requests=requests) | ev.EngineRestarted(lost=requests) if requests:
            return [fx.AbortRequests(requests=requests)]
        case ev.RequestFinished(request=request, abort=True):
            return [fx.AbortRequests(requests=(request,))]
        case ev.RequestFinished(request=request):
            return [fx.ReleaseRequests(requests=(request,))]
        case _:
            return []


def _fed(session: Session, request: str, ref: SampleRef, plugins: Registry) -> fx.FeedStage:
    count = session.input.fed
    samples = session.capabilities.input_format.samples(ref.size)
    return fx.FeedStage(
        request=request,
        operation=count,
        seq=count,
        turn_seq=count,
        refs=(ref,),
        batches=session.batches.pending,
        generation=session.batches.generation,
        tokens=plugins[session.plugin].budget(session.config, samples=samples, frames=0, first=count == 1),
        format=session.config.output_format,
    )


def _submit(session: Session, event: ev.RequestSubmitted, plugins: Registry) -> fx.SubmitToStage:
    config, plugin = session.config, plugins[session.plugin]
    response = session.open_response(event.response_id) if event.response_id is not None else None
    if response is not None:
        config = with_options(config, response.options)
    return fx.SubmitToStage(
        request=event.request,
        payload=fx.TurnInput(
            session=session.id,
            response_id=event.response_id,
            items=plugin.prompt(config, prompt(session, response.options.input if response else None)),
            instructions=config.instructions,
            speaks=config.speaks,
            format=config.output_format,
            voice=config.voice,
            speed=config.speed,
            max_output_tokens=config.max_output_tokens,
            temperature=config.temperature,
            seed=event.epoch * 1000 + event.turn,
            sampling=plugin.sampling(config),
            extras=config.extras,
            ref_audio=config.ref_audio.ref if config.ref_audio is not None else None,
            context=session.context,
            tools=config.tools,
            tool_choice=config.tool_choice,
        ),
    )
