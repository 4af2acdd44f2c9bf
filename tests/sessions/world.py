"""A session without an engine: given events, when a command, then events; and the live state beside the fold."""

from typing import TypeVar

import msgspec

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, Recording, TextMark
from antiphon.events.config import (
    Capabilities,
    Dialect,
    Limits,
    Modality,
    PlaybackPolicy,
    Sampling,
    SessionConfig,
    TurnDetection,
)
from antiphon.events.items import FunctionOutput, Item, Message, TextPart, text_of
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.models.base import Baked, TurnModel, locked_instructions, locked_tools
from antiphon.sessions.phases import LEFT, LIVE
from antiphon.sessions.plugins import CASCADE, ECHO, REGISTRY, Registry
from antiphon.sessions.view import prompt

from tests.sessions import watch_models
from tests.sessions.watch import Watch, look

E = TypeVar("E", bound=ev.Event)

MS = 1000
"""Microseconds of a millisecond."""
FRAME = 1024
"""Bytes of one 512-sample frame of pcm16."""
FRAME_MS = 32
OUT = AudioFormat("pcm16", 24_000)
WALL = 1_800_000_000_000_000

QUICK_VAD = TurnDetection(silence_duration_ms=320, min_speech_duration_ms=64)
"""Starts after two frames, stops after ten."""


class Remembering(TurnModel, frozen=True, kw_only=True):
    """A model that has instructions, tools and voice in its memory once it listens."""

    def baked(self, config: SessionConfig) -> tuple[Baked, ...]:
        voice = Baked("voice", config.voice, "voice_update_unsupported", "session.audio.output.voice")
        return locked_instructions(config), locked_tools(config), voice


MEMORY = Remembering(name=ECHO.name, version=ECHO.version, capabilities=ECHO.capabilities)
REMEMBERING: Registry = {**REGISTRY, "echo": MEMORY}
"""The shipped models, but the echo has a memory."""


BESIDE = TurnModel(
    name="cascade",
    version=CASCADE.version,
    capabilities=msgspec.structs.replace(CASCADE.capabilities, supports_concurrent_turn_requests=True),
    stages=("recogniser", "language", "voice"),
    defaults=(Sampling(),) * 3,
    gate=1,
    draining=frozenset({2}),
)
OVERLAPPING: Registry = {
    **REGISTRY,
    "cascade": BESIDE,
    "echo": msgspec.structs.replace(ECHO, gate=1, draining=frozenset({2})),
}
"""The shipped models, but the cascade takes the next turn while the last one is still spoken; and an odd echo."""


def token(generation: int) -> str:
    """The digest of the token of an attachment."""
    return f"{generation:064x}"


class World:
    """One session, its transactions, and time that the test moves. `Watch` checks the rules at every step."""

    def __init__(
        self,
        *,
        dialect: Dialect = "duplex",
        plugin: str = "cascade",
        vad: TurnDetection | None = None,
        auto: bool = False,
        limits: Limits | None = None,
        modalities: tuple[Modality, ...] = ("audio",),
        policy: PlaybackPolicy | None = None,
        resumable: bool | None = None,
        by_update: bool = False,
        capabilities: Capabilities | None = None,
        native: bool = False,
        plugins: Registry = REGISTRY,
        extras: dict[str, str] | None = None,
        ref_audio: Recording | None = None,
        alone: bool = False,
    ) -> None:
        """Open a session. `alone`: nobody else touches it, so it need not be looked at before each command."""
        model = plugins[plugin]
        duplex = dialect == "duplex"
        able = capabilities or model.capabilities
        if native:
            able = msgspec.structs.replace(able, implementation_level="model_native_duplex")
        self.plugins = plugins
        self.session = core.new()
        self.log: list[Transaction] = []
        self.watch = Watch(plugins)
        self.alone = alone
        self.now = 0
        self.controls = 0
        self.opening = cmd.OpenSession(
            session="duplex-1" if duplex else "sess_1",
            control_id="open-1",
            dialect=dialect,
            plugin=plugin,
            plugin_version=model.version,
            capabilities=able,
            config=SessionConfig(
                model="voice-1",
                output_modalities=modalities,
                input_format=AudioFormat("pcm16", 16_000 if duplex else 24_000),
                output_format=OUT,
                turn_detection=vad,
                playback_policy=policy or ("ack_only" if duplex else "commit_all_on_done"),
                auto_response=auto,
                extras=extras or {},
                ref_audio=ref_audio,
            ),
            limits=limits or Limits(min_commit_ms=0 if duplex else 100),
            wall_us=WALL,
            token_digest=token(1) if (duplex if resumable is None else resumable) else None,
            by_update=by_update,
        )
        self.opened = self.do(self.opening)

    @property
    def attachment(self) -> int:
        return self.session.lease.attachment

    @property
    def data(self) -> bytes:
        """The session as bytes."""
        return self.watch.seen if self.alone and self.watch.seen else core.dump(self.session)

    def do(self, command: cmd.AnyCommand) -> list[ev.AnyEvent]:
        """Decide, check that nothing was touched, record, fold and check the rules; return the events."""
        before, memory = look(self.session, self.data), watch_models.known(self.session)
        events = core.decide(self.session, command, self.now, self.plugins)
        assert core.dump(self.session) == before.data, "decide changed the session"
        assert core.decide(before.state, command, self.now, self.plugins) == events, "P2"
        if events:
            seq = len(self.log) + 1
            self.log.append(Transaction(seq=seq, term=1, at=self.now, command=command, events=tuple(events)))
            for event in events:
                core.evolve(self.session, event, self.now)
            self.watch.step(before, self.session, self.log[-1])
            watch_models.step(memory, self.session, self.plugins[self.session.plugin])
        return events

    def refused(self, command: cmd.AnyCommand) -> core.Refusal:
        """Return the refusal that only the caller hears."""
        before = core.dump(self.session)
        try:
            events = core.decide(self.session, command, self.now, self.plugins)
        except core.Refusal as refusal:
            assert core.dump(self.session) == before
            return refusal
        raise AssertionError(f"not refused: {kinds(events)}")

    def wait(self, ms: int) -> None:
        self.now += ms * MS

    def effects(self, events: list[ev.AnyEvent]) -> list[fx.AnyEffect]:
        return [effect for event in events for effect in core.react(self.session, event, self.plugins)]

    # -- the life of the session -----------------------------------------------------------------------------

    def tick(self) -> list[ev.AnyEvent]:
        return self.do(cmd.Tick())

    def detach(self, generation: int | None = None) -> list[ev.AnyEvent]:
        known = self.session.lease.generation if generation is None else generation
        return self.do(cmd.Detach(generation=known))

    def resumption(self, presented: str | None = None, last_number: int = 0) -> cmd.ResumeSession:
        self.controls += 1
        return cmd.ResumeSession(
            control_id=f"resume-{self.controls}",
            presented=presented or self.session.lease.token or "",
            next_digest=token(self.attachment + 1),
            last_number=last_number,
        )

    def resume(self) -> list[ev.AnyEvent]:
        return self.do(self.resumption())

    def close(self) -> list[ev.AnyEvent]:
        return self.do(cmd.CloseSession(control_id="close-1", attachment=self.attachment))

    def restart(self) -> list[ev.AnyEvent]:
        return self.do(cmd.StartRunner(term=2, wall_us=WALL + self.now))

    # -- what clients do -------------------------------------------------------------------------------------

    def append(
        self,
        frames: int = 1,
        *,
        score: int | None = None,
        scores: tuple[int, ...] | None = None,
        speech: bool = True,
        transcript: str | None = None,
        client_seq: int | None = None,
        force_listen: bool = False,
        pictures: tuple[int, ...] = (),
    ) -> list[ev.AnyEvent]:
        """Send sound that lasts `frames` frames of 32 ms, and pictures of these sizes."""
        given = scores if scores is not None else () if score is None else (score,) * frames
        size = frames * FRAME
        self.wait(frames * FRAME_MS)
        return self.do(
            cmd.AppendAudio(
                attachment=self.attachment,
                size=size,
                wire_bytes=size + sum(pictures),
                scores=given,
                speech=speech,
                transcript=transcript,
                client_seq=client_seq,
                force_listen=force_listen,
                frames=pictures,
            )
        )

    def commit(self, create_response: bool | None = None, is_speech: bool | None = None) -> list[ev.AnyEvent]:
        return self.do(
            cmd.CommitInput(attachment=self.attachment, create_response=create_response, is_speech=is_speech)
        )

    def clear(self) -> list[ev.AnyEvent]:
        return self.do(cmd.ClearInput(attachment=self.attachment))

    def item(self, item: Item, previous_item_id: str | None = None) -> list[ev.AnyEvent]:
        return self.do(cmd.CreateItem(attachment=self.attachment, item=item, previous_item_id=previous_item_id))

    def say(self, text: str, item_id: str = "", previous_item_id: str | None = None) -> list[ev.AnyEvent]:
        return self.item(Message(id=item_id, role="user", content=(TextPart(text),)), previous_item_id)

    def respond(self, options: cmd.ResponseOptions | None = None) -> list[ev.AnyEvent]:
        chosen = options or cmd.ResponseOptions()
        return self.do(cmd.CreateResponse(attachment=self.attachment, options=chosen))

    def cancel(self, response_id: str | None = None) -> list[ev.AnyEvent]:
        return self.do(cmd.CancelResponse(attachment=self.attachment, response_id=response_id))

    def barge_in(self) -> list[ev.AnyEvent]:
        return self.do(cmd.BargeIn(attachment=self.attachment))

    def ack(
        self,
        played_ms: int,
        committed_ms: int | None = None,
        response_id: str | None = None,
        item_id: str | None = None,
        truncate: bool = False,
    ) -> list[ev.AnyEvent]:
        return self.do(
            cmd.AckPlayback(
                attachment=self.attachment,
                played_ms=played_ms,
                committed_ms=committed_ms,
                response_id=response_id,
                item_id=item_id,
                truncate=truncate,
            )
        )

    def truncate(self, item_id: str, audio_end_ms: int, content_index: int = 0) -> list[ev.AnyEvent]:
        return self.do(
            cmd.TruncateItem(
                attachment=self.attachment,
                item_id=item_id,
                audio_end_ms=audio_end_ms,
                content_index=content_index,
            )
        )

    # -- what stages do --------------------------------------------------------------------------------------

    @property
    def request(self) -> str:
        """The request of the active response."""
        assert self.session.response is not None
        return self.session.response.request

    @property
    def resident(self) -> str:
        """The one request that listens."""
        requests = self.session.requests.items()
        (name,) = [name for name, known in requests if known.response_id is None and known.phase in LIVE]
        return name

    def produce(
        self,
        text: str = "",
        ms: int = 0,
        request: str | None = None,
        marks: tuple[TextMark, ...] = (),
        *,
        takes: bool = False,
    ) -> list[ev.AnyEvent]:
        """Let the stage say something. `takes`: because of the last unit, which is thereby accepted."""
        size = OUT.bytes_for(ms)
        operation = self.session.input.stream.operation if takes else None
        return self.do(
            cmd.StageProduced(
                request=request or self.request, text=text, size=size, marks=marks, operation=operation
            )
        )

    def call(
        self,
        name: str = "look",
        arguments: str = "{}",
        *,
        index: int = 0,
        call_id: str = "",
        final: bool = True,
        ends: bool = False,
        request: str | None = None,
    ) -> list[ev.AnyEvent]:
        return self.do(
            cmd.StageCalled(
                request=request or self.request,
                index=index,
                name=name,
                call_id=call_id,
                arguments=arguments,
                final=final,
                ends=ends,
            )
        )

    def give_output(self, call_id: str, output: str = "42") -> list[ev.AnyEvent]:
        """Send the output of a call."""
        return self.item(FunctionOutput(id="", call_id=call_id, output=output))

    def accept(self) -> list[ev.AnyEvent]:
        """Let the stage take every unit that is under way."""
        flying = self.session.input.stream.in_flight
        if not flying:
            return []
        last = flying[-1].taken
        return self.do(cmd.StageAccepted(request=last.request, operation=last.operation))

    def take(self, request: str | None = None) -> list[ev.AnyEvent]:
        """Let the stage take a request."""
        return self.do(cmd.StageAccepted(request=request or self.request))

    def refuse(self, operation: int | None = None) -> list[ev.AnyEvent]:
        """Let the stage refuse a unit, by default the oldest that is under way."""
        first = self.session.input.stream.in_flight[0].taken
        return self.do(
            cmd.StageRefused(
                request=first.request, operation=operation or first.operation, message="There is no room."
            )
        )

    def decide(self, decision: cmd.Decision, operation: int | None = None) -> list[ev.AnyEvent]:
        """Let a resident model wait for more."""
        return self.do(cmd.StageSegmentFinished(request=self.resident, decision=decision, operation=operation))

    def end_inner(self, stage: int = 1, request: str | None = None) -> list[ev.AnyEvent]:
        """Let an inner stage end; of the model that overlaps, the second one opens the gate."""
        return self.do(cmd.StageInnerFinished(request=request or self.request, stage=stage))

    def finish(self, request: str | None = None) -> list[ev.AnyEvent]:
        return self.do(cmd.StageFinished(request=request or self.request))

    def fail(self, request: str | None = None, code: str = "engine_error") -> list[ev.AnyEvent]:
        return self.do(cmd.StageFailed(request=request or self.request, code=code, message="It broke."))

    def lose(self, request: str | None = None) -> list[ev.AnyEvent]:
        return self.do(cmd.StageLost(request=request or self.request))

    def jam(self, request: str | None = None) -> list[ev.AnyEvent]:
        """Let the stage fail to forget: one request, or whatever it was told to forget."""
        names = [name for name, known in self.session.requests.items() if known.phase in LEFT]
        events: list[ev.AnyEvent] = []
        for name in names if request is None else [request]:
            events += self.do(cmd.StageAbortFailed(request=name, message="It does not stop."))
        return events

    def release(self) -> list[ev.AnyEvent]:
        """Let the stage forget whatever it was told to forget."""
        events: list[ev.AnyEvent] = []
        for name, known in list(self.session.requests.items()):
            if known.phase in LEFT:
                events += self.do(cmd.StageReleased(request=name))
        return events

    def logged(self, kind: type[E]) -> list[E]:
        """Return all events of a kind."""
        return [event for entry in self.log for event in entry.events if isinstance(event, kind)]

    # -- short stories ---------------------------------------------------------------------------------------

    def begin(self, text: str = "How are you?") -> str:
        """Ask by text and let the model begin to answer; return the response id."""
        self.say(text)
        return only(self.respond(), ev.ResponseCreated).head.id

    def answer(self, text: str = "All is well.", ms: int = 1000) -> str:
        """Ask by text and let the model answer as a whole; return the response id."""
        response_id = self.begin()
        self.produce(text, ms)
        self.finish()
        return response_id

    def heard(self) -> list[str]:
        """Return the words of the assistant that a model would be shown."""
        return [text_of(i) for i in prompt(self.session) if isinstance(i, Message) and i.role == "assistant"]

    def shown(self, item_id: str) -> str:
        """Return the words of an item as the conversation has it."""
        return text_of(self.session.conversation.entries[item_id].item)


def kinds(events: list[ev.AnyEvent]) -> list[str]:
    """Return the names of events."""
    return [type(event).__name__ for event in events]


def only(events: list[ev.AnyEvent], kind: type[E]) -> E:
    """Return the one event of a kind."""
    (event,) = [event for event in events if isinstance(event, kind)]
    return event


def error(events: list[ev.AnyEvent]) -> str:
    """Return the code of a command that was refused and did nothing else."""
    assert isinstance(events[-1], ev.ErrorReported), kinds(events)
    assert len(events) == 1, kinds(events)
    return events[-1].code


def capable(base: Capabilities, **changes: bool) -> Capabilities:
    """Return capabilities with some flags changed."""
    return msgspec.structs.replace(base, **changes)
