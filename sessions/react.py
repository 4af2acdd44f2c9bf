"""What the shell must do because of an event. Called live, never in replay."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import AudioPart, Message

from .options import with_options
from .plugins import REGISTRY, Registry
from .rebuilding import rebuilt
from .state import Response, Session, size_of
from .view import begun, news, prompt, without_units


def react(session: Session, event: ev.AnyEvent, plugins: Registry = REGISTRY) -> list[fx.AnyEffect]:
    """Return the effects of `event`; `session` is the state behind the whole transaction."""
    reaction = REACTIONS.get(type(event))
    return [] if reaction is None else reaction(session, event, plugins)


def _feed(session: Session, event: ev.UnitTaken, plugins: Registry) -> list[fx.AnyEffect]:
    response = session.open_response(event.response_id or "") if event.final else None
    plugin = plugins[session.plugin]
    samples = session.capabilities.input_format.samples(event.pad + size_of(event.refs))
    feed = fx.FeedStage(
        request=event.request,
        operation=event.operation,
        seq=event.seq,
        turn_seq=event.turn_seq,
        refs=event.refs,
        pad=event.pad,
        kind=event.kind,
        speech=event.speech,
        force_listen=event.force_listen or plugin.only_listens(session.config, event.turn_seq),
        final=event.final,
        frames=event.frames,
        model_turn=event.turn,
        batches=session.batches.pending,
        generation=session.batches.generation,
        tokens=plugin.budget(session.config, samples=samples, frames=len(event.frames), first=event.seq == 1),
        format=session.input.stream.delivers(event.operation) or session.config.output_format,
        sampling=None if event.configuration is None else plugin.sampling(session.config),
        turn=_asked(session, response, event.turn, plugins) if response is not None else None,
        items=news(session, event.told) if event.told else (),
    )
    return [feed]


def _asked(session: Session, response: Response, turn: int, plugins: Registry) -> fx.TurnInput:
    """Return what the last unit of a turn asks for; the request has its voice, and heard its sound in units.

    Input that stands in place of the conversation is given whole: it may be of a turn long ago.
    """
    asked = replace(_turn(session, response.head.id, turn, plugins), ref_audio=None)
    return asked if response.options.input is not None else replace(asked, items=without_units(asked.items))


def _submit(session: Session, event: ev.RequestSubmitted, plugins: Registry) -> list[fx.AnyEffect]:
    payload = _turn(session, event.response_id, event.turn, plugins, event.frames)
    if event.response_id is None:
        memory = rebuilt(session, plugins)
        payload = replace(payload, items=begun(session, payload.items if memory is None else memory))
    return [fx.SubmitToStage(request=event.request, payload=payload)]


def _preview(session: Session, event: ev.PreviewRequested, _plugins: Registry) -> list[fx.AnyEffect]:
    """Ask for the words of the sound; the rest of the turn is not known yet, and does not matter."""
    config, format_ = session.config, session.capabilities.input_format
    sound = AudioPart(None, event.ref, format_.rate, format_.ms(event.ref.size))
    payload = fx.TurnInput(
        session=session.id,
        response_id=None,
        items=(Message(id=event.item_id, role="user", content=(sound,)),),
        instructions=config.instructions,
        speaks=False,
        format=config.output_format,
        voice=config.voice,
        purpose="transcribe",
    )
    return [fx.SubmitToStage(request=event.request, payload=payload)]


def _abort_preview(_session: Session, event: ev.PreviewDropped, _plugins: Registry) -> list[fx.AnyEffect]:
    return [fx.AbortRequests(requests=(event.request,))]


def _abort(
    _session: Session,
    event: ev.Interrupted | ev.SessionClosing | ev.AsideCancelled | ev.CleanupRetried,
    _plugins: Registry,
) -> list[fx.AnyEffect]:
    return [fx.AbortRequests(requests=event.requests)] if event.requests else []


def _abort_lost(_session: Session, event: ev.EngineRestarted, _plugins: Registry) -> list[fx.AnyEffect]:
    return [fx.AbortRequests(requests=event.lost)] if event.lost else []


def _forget(_session: Session, event: ev.RequestFinished, _plugins: Registry) -> list[fx.AnyEffect]:
    requests = (event.request,)
    return [fx.AbortRequests(requests=requests) if event.abort else fx.ReleaseRequests(requests=requests)]


def _turn(
    session: Session,
    response_id: str | None,
    turn: int,
    plugins: Registry,
    frames: tuple[SampleRef, ...] = (),
) -> fx.TurnInput:
    config, plugin = session.config, plugins[session.plugin]
    response = session.open_response(response_id) if response_id is not None else None
    if response is not None:
        config = with_options(config, response.options)
    items = plugin.prompt(config, prompt(session, response.options.input if response else None))
    return fx.TurnInput(
        session=session.id,
        response_id=response_id,
        items=items,
        instructions=config.instructions,
        speaks=config.speaks,
        format=config.output_format,
        voice=config.voice,
        speed=config.speed,
        max_output_tokens=config.max_output_tokens,
        temperature=config.temperature,
        seed=session.epoch * 1000 + turn,
        sampling=plugin.sampling(config),
        extras=config.extras,
        frames=frames,
        ref_audio=config.ref_audio.ref if config.ref_audio is not None else None,
        context=session.context,
        tools=config.tools,
        tool_choice=config.tool_choice,
        idle=bool(items) and items[-1].id == session.input.prompted,
    )


# A reaction takes the one event type of its key, which no type of this table can say; `tests` hold the pairs.
REACTIONS: Mapping[type[ev.Event], Callable[[Session, Any, Registry], list[fx.AnyEffect]]] = {
    ev.UnitTaken: _feed,
    ev.RequestSubmitted: _submit,
    ev.PreviewRequested: _preview,
    ev.PreviewDropped: _abort_preview,
    ev.Interrupted: _abort,
    ev.SessionClosing: _abort,
    ev.AsideCancelled: _abort,
    ev.CleanupRetried: _abort,
    ev.EngineRestarted: _abort_lost,
    ev.RequestFinished: _forget,
}
"""What follows from which event; from all others nothing does."""
