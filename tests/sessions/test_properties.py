"""Any interleaving of clients, stages, timers and restarts: the rules of BEHAVIOURS P hold at every step."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, TextMark
from antiphon.events.config import ConfigPatch, Dialect, Limits, Modality, PlaybackPolicy, TurnDetection
from antiphon.events.context import ContextTurn
from antiphon.events.items import (
    AudioPart,
    FunctionCall,
    FunctionOutput,
    ImagePart,
    Item,
    ItemReference,
    Message,
    TextPart,
)
from antiphon.sessions import core
from antiphon.sessions.ending import newest_answer
from antiphon.sessions.phases import LIVE
from antiphon.sessions.plugins import Registry
from antiphon.sessions.previewing import asked
from antiphon.sessions.view import next_deadline

from tests import stories
from tests.rules import rule as holds
from tests.sessions.watch import a_deadline_stands
from tests.sessions.world import BESIDE, FRAME, MEMORY, OUT, QUICK_VAD, REMEMBERING, WALL, World, token
from tests.stories import initialize, invariant, precondition, rule

LIMITS = Limits(
    grace_ms=3_000,
    idle_ttl_ms=60_000,
    activation_ms=1_000,
    max_session_ms=600_000,
    input_bytes=96 * FRAME,
    pending_commits=2,
    items=12,
)
DETECTIONS: list[TurnDetection | None] = [
    None,
    QUICK_VAD,
    TurnDetection(silence_duration_ms=96, min_speech_duration_ms=0, interrupt_response=False),
    TurnDetection(silence_duration_ms=0, prefix_padding_ms=0, create_response=False),
    TurnDetection(type="semantic_vad", eagerness="high"),
    TurnDetection(silence_duration_ms=96, min_speech_duration_ms=64, idle_timeout_ms=5_000),
    TurnDetection(type="semantic_vad", eagerness="low", min_speech_duration_ms=32, idle_timeout_ms=5_000),
    TurnDetection(type="semantic_vad", interrupt_response=False, create_response=False),
    TurnDetection(silence_duration_ms=96, min_speech_duration_ms=32, false_interruption=True),
    TurnDetection(type="semantic_vad", eagerness="high", false_interruption=True),
]
OVERLAPS: tuple[cmd.OverlapAction, ...] = ("barge_in", "listen", "continue", "drop")
WORDS = ["", "Well, ", "all is well", ". And you?", " word"]
SIGNALS: tuple[cmd.Signal, ...] = (
    "user_started",
    "user_committed",
    "assistant_started",
    "assistant_done",
    "playback_ack",
)
SENT = st.tuples(st.sampled_from([0] * 15 + [1]), st.sampled_from([None] * 8 + [1] * 4 + [0, 2]))
"""How stale the attachment of a command is, and how far its number is beyond the last one; None: it has none."""
SCORES = st.lists(st.sampled_from([0, 400, 600, 990]), max_size=20).map(tuple)

HELD = (
    *("P1", "P2", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12"),
    *("P13", "P14", "P15", "P16", "P17", "P18", "P19", "P20", "P21", "P22", "P23"),
    *("P24", "P27", "P28", "P29", "P32", "P34", "P36", "P37", "P38", "P39", "P41"),
    *("P42", "P44", "P45", "P46", "P47", "P48", "P50", "P52", "P54", "P55", "P56"),
    *("P58", "G20", "G21"),
)
"""What this test holds, at every step of every session that it draws."""
ANSWERS = (cmd.StageAccepted, cmd.StageFinished, cmd.StageFailed, cmd.StageReleased, cmd.StageLost)

PRIMED: Registry = {
    **REMEMBERING,
    "echo": msgspec.structs.replace(MEMORY, priming_units=2, gate=1),
    "cascade": BESIDE,
}
"""A model with a memory that begins a written turn in silence, and one whose answers may drain."""
IDLE: Registry = {**PRIMED, "cascade": msgspec.structs.replace(BESIDE, draining=frozenset())}
"""No stage of it outlives its turn."""

Pick = Callable[[st.SearchStrategy[Any]], Any]


def alive(machine: "SessionMachine") -> bool:
    return machine.world.session.phase == "open"


def connected(machine: "SessionMachine") -> bool:
    return alive(machine) and machine.world.session.lease.attached


def has_items(machine: "SessionMachine") -> bool:
    return connected(machine) and bool(machine.world.session.conversation.order)


def was_played(machine: "SessionMachine") -> bool:
    return connected(machine) and bool(machine.world.session.playouts)


def has_worked(machine: "SessionMachine") -> bool:
    return bool(machine.requests)


def listens(machine: "SessionMachine") -> bool:
    return alive(machine) and bool(machine.world.session.input.stream.in_flight)


def detects(machine: "SessionMachine") -> bool:
    return connected(machine) and machine.world.session.config.turn_detection is not None


def is_asked(machine: "SessionMachine") -> bool:
    return connected(machine) and asked(machine.world.session) is not None


def works(machine: "SessionMachine") -> bool:
    return alive(machine) and bool(machine.world.session.requests)


def items(pick: Pick, world: World) -> Item:
    """Draw an item, of an id that may be taken, invented, or promised to something else."""
    known = list(world.session.conversation.order)
    promised = [world.session.input.item_id or ""]
    if world.session.response is not None:
        promised.append(world.session.response.head.item_id)
    item_id = pick(st.sampled_from(["", "", "", "mine", "no good id", *known, *promised]))
    made = (entry.item for entry in world.session.conversation.entries.values())
    calls = ["a", "b", *(item.call_id for item in made if isinstance(item, FunctionCall))]
    kind = pick(st.sampled_from(["user", "assistant", "system", "call", "output"]))
    if kind == "call":
        return FunctionCall(id=item_id, call_id=pick(st.sampled_from(calls)), name="f", arguments="{}")
    if kind == "output":
        return FunctionOutput(id=item_id, call_id=pick(st.sampled_from(calls)), output="1")
    parts = [TextPart("Hello."), AudioPart("Hello."), AudioPart(size=320), ImagePart(mime="image/png", size=9)]
    part = pick(st.sampled_from(parts))
    return Message(id=item_id, role=kind, content=(part,))


def item_ids(pick: Pick, world: World) -> str:
    return pick(st.sampled_from(["", "none", *world.session.conversation.order]))


def response_ids(pick: Pick, world: World) -> str | None:
    session = world.session
    opened = [response.head.id for response in session.open_responses]
    known = [*session.playouts, *session.asides, *opened, *list(world.watch.responses)[-3:]]
    return pick(st.sampled_from([None, None, "resp_none", *known]))


def patches(pick: Pick) -> ConfigPatch:
    return pick(
        st.sampled_from(
            [
                ConfigPatch(instructions="Be brief."),
                ConfigPatch(instructions="", tools="[]", metadata=None),
                ConfigPatch(tools='[{"type":"function","name":"f"}]'),
                ConfigPatch(voice=None, speed=9.0),
                ConfigPatch(input_format=AudioFormat("wav", 24_000)),
                ConfigPatch(echo={"tracing": '"auto"'}, unknown={"theme": "1"}),
                ConfigPatch(echo={"tracing": "null"}),
                ConfigPatch(turn_detection=TurnDetection(threshold=-1.0)),
                ConfigPatch(voice="alloy"),
                ConfigPatch(voice="nobody"),
                ConfigPatch(model="another"),
                ConfigPatch(playback_policy="ack_only"),
                ConfigPatch(output_modalities=("text",)),
                ConfigPatch(output_modalities=("audio",)),
                ConfigPatch(output_format=AudioFormat("g711_ulaw", 8_000)),
                ConfigPatch(overlap_policy="barge_in_on_speech"),
                ConfigPatch(auto_response=True),
                ConfigPatch(auto_response=False),
                *(ConfigPatch(turn_detection=detection) for detection in DETECTIONS),
            ]
        )
    )


class SessionMachine(stories.Machine):
    """Commands of every kind against one session; `World` checks the rules after each."""

    @initialize(
        dialect=st.sampled_from(["ga", "beta", "duplex", "duplex"]),
        plugin=st.sampled_from(["cascade", "echo"]),
        vad=st.sampled_from(DETECTIONS),
        auto=st.booleans(),
        modalities=st.sampled_from([("audio",), ("audio",), ("text",), ("audio", "text")]),
        policy=st.sampled_from([None, "ack_only", "commit_all_on_done"]),
        resumable=st.sampled_from([True, True, True, False]),
        reencodes=st.booleans(),
        concurrent=st.booleans(),
        drains=st.booleans(),
        unaligned=st.sampled_from([False, False, True]),
        period_ms=st.sampled_from([None, 80]),
        seed=st.sampled_from([None, None, "Sing."]),
        reads=st.sampled_from([True, True, False]),
        ahead=st.sampled_from([True, True, False]),
    )
    def open(
        self,
        dialect: Dialect,
        plugin: Literal["cascade", "echo"],
        vad: TurnDetection | None,
        auto: bool,
        modalities: tuple[Modality, ...],
        policy: PlaybackPolicy | None,
        resumable: bool,
        reencodes: bool,
        concurrent: bool,
        drains: bool,
        unaligned: bool,
        period_ms: int | None,
        seed: str | None,
        reads: bool,
        ahead: bool,
    ) -> None:
        able = msgspec.structs.replace(
            core.REGISTRY[plugin].capabilities,
            supports_reencode_context=reencodes,
            supports_concurrent_turn_requests=concurrent,
            text_requires_complete_audio=unaligned,
            chunk_period_ms=period_ms if plugin == "echo" else None,
            supports_text_only_turn=reads,
            transcribes_ahead=ahead,
            optional_input_modalities=("text", "video"),
        )
        self.world = World(
            dialect=dialect,
            plugin=plugin,
            vad=vad,
            auto=auto,
            modalities=modalities,
            policy=policy,
            resumable=resumable,
            limits=LIMITS,
            capabilities=able,
            plugins=PRIMED if drains else IDLE,
            alone=True,
        )
        self.seq: int | None = None
        self.requests: list[str] = []
        self.last: cmd.AnyCommand = cmd.Tick()
        self.resumes: list[cmd.ResumeSession] = []
        self.stopped: tuple[bytes, int] | None = None
        if seed is not None:
            patch = ConfigPatch(echo={"initial_user_text": f'"{seed}"'})
            self.give(cmd.UpdateSession(attachment=self.world.attachment, patch=patch))

    # -- how a command is given ------------------------------------------------------------------------------

    def give(self, command: cmd.AnyCommand) -> list[ev.AnyEvent]:
        world = self.world
        self.last = command
        due = next_deadline(world.session)
        try:
            events = world.do(command)
        except core.Refusal:
            assert isinstance(command, cmd.OpenSession | cmd.ResumeSession | cmd.Detach | cmd.CloseSession)
            return []
        for event in events:
            if isinstance(event, ev.RequestSubmitted | ev.PreviewRequested):
                self.requests.append(event.request)
        if isinstance(command, cmd.Tick):
            assert bool(events) == (due is not None and due <= world.now), "a due deadline decides, no other does"
        return events

    def sent(self, pick: Pick) -> dict[str, Any]:
        """Draw whose command it is, and whether it is counted."""
        world = self.world
        stale, counts = pick(SENT)
        number = None if counts is None else world.session.lease.client_seq + counts
        return {"attachment": world.attachment - stale, "client_seq": number, "event_id": "e"}

    # -- clients ---------------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        scores=SCORES,
        speech=st.booleans(),
        quick=st.booleans(),
        overlap=st.sampled_from([None] * 8 + list(OVERLAPS)),
        hints=st.sampled_from([0] * 6 + [1, 2, 3]),
        transcript=st.sampled_from([None, None, None, "Yes.", "No, wait.", " "]),
        scored=st.sampled_from([True] * 7 + [False]),
        pictures=st.sampled_from([()] * 6 + [(50,), (70, 30)]),
    )
    @precondition(connected)
    def append(
        self,
        data: st.DataObject,
        scores: tuple[int, ...],
        speech: bool,
        quick: bool,
        overlap: cmd.OverlapAction | None,
        hints: int,
        transcript: str | None,
        scored: bool,
        pictures: tuple[int, ...],
    ) -> None:
        frames = max(len(scores), 1)
        lead = 0 if self.world.session.input.position < 100 else data.draw(st.sampled_from([0, 100]))
        if not quick:
            self.world.wait(frames * 32)
        self.give(
            cmd.AppendAudio(
                **self.sent(data.draw),
                size=frames * FRAME,
                wire_bytes=frames * FRAME,
                scores=scores if self.world.session.config.turn_detection else (),
                lead=lead,
                scored=scored,
                speech=speech,
                transcript=transcript,
                overlap=overlap,
                force_listen=bool(hints & 1),
                force_barge_in=bool(hints & 2),
                frames=pictures,
            )
        )

    @rule(data=st.data(), wanted=st.sampled_from([None, True, False]), speech=st.sampled_from([None, True, False]))
    @precondition(connected)
    def commit(self, data: st.DataObject, wanted: bool | None, speech: bool | None) -> None:
        self.give(cmd.CommitInput(**self.sent(data.draw), create_response=wanted, is_speech=speech))

    @rule(data=st.data(), kind=st.sampled_from([cmd.ClearInput, cmd.CancelInput, cmd.BargeIn, cmd.Heartbeat]))
    def signal(self, data: st.DataObject, kind: type[cmd.ClientCommand]) -> None:
        self.give(kind(**self.sent(data.draw)))  # type: ignore[arg-type]

    @rule(data=st.data())
    @precondition(connected)
    def create_item(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from([None, None, "root", "none", *self.world.session.conversation.order]))
        item = items(data.draw, self.world)
        self.give(cmd.CreateItem(**self.sent(data.draw), item=item, previous_item_id=place))

    @rule(data=st.data(), kind=st.sampled_from([cmd.DeleteItem, cmd.RetrieveItem]))
    @precondition(has_items)
    def touch_item(self, data: st.DataObject, kind: type[cmd.DeleteItem] | type[cmd.RetrieveItem]) -> None:
        self.give(kind(**self.sent(data.draw), item_id=item_ids(data.draw, self.world)))

    @rule(data=st.data(), ms=st.sampled_from([-1, 0, 100, 400, 1_000, 10**9]), index=st.sampled_from([0, 0, 0, 1]))
    @precondition(has_items)
    def truncate(self, data: st.DataObject, ms: int, index: int) -> None:
        item_id = item_ids(data.draw, self.world)
        self.give(cmd.TruncateItem(**self.sent(data.draw), item_id=item_id, audio_end_ms=ms, content_index=index))

    @rule(
        data=st.data(),
        text=st.sampled_from([None, "Say hello."]),
        words=st.booleans(),
        remember=st.sampled_from([True, True, False]),
        read=st.sampled_from([None, None, 0, 1]),
    )
    @precondition(connected)
    def respond(self, data: st.DataObject, text: str | None, words: bool, remember: bool, read: int | None) -> None:
        named = None if read is None else (ItemReference(item_ids(data.draw, self.world)),) * read
        modalities: tuple[Modality, ...] | None = ("text",) if words else None
        options = cmd.ResponseOptions(
            instructions=text, output_modalities=modalities, input=named, remember=remember
        )
        self.give(cmd.CreateResponse(**self.sent(data.draw), options=options))

    @rule(data=st.data(), kind=st.sampled_from([cmd.CancelResponse, cmd.ClearOutput]))
    @precondition(connected)
    def stop(self, data: st.DataObject, kind: type[cmd.CancelResponse] | type[cmd.ClearOutput]) -> None:
        self.give(kind(**self.sent(data.draw), response_id=response_ids(data.draw, self.world)))

    @rule(
        data=st.data(),
        ms=st.sampled_from([-5, 0, 100, 300, 500, 800, 1_000, 10**9]),
        committed=st.sampled_from([None, 0, 200, 10**9]),
        truncate=st.sampled_from([False, False, True]),
    )
    @precondition(was_played)
    def ack(self, data: st.DataObject, ms: int, committed: int | None, truncate: bool) -> None:
        named = response_ids(data.draw, self.world)
        item_id = data.draw(st.sampled_from([None, None, f"item_{named}", "item_none"]))
        self.give(
            cmd.AckPlayback(
                **self.sent(data.draw),
                played_ms=ms,
                committed_ms=committed,
                response_id=named,
                item_id=item_id,
                truncate=truncate,
            )
        )

    @rule(data=st.data())
    @precondition(connected)
    def update(self, data: st.DataObject) -> None:
        self.give(cmd.UpdateSession(**self.sent(data.draw), patch=patches(data.draw)))

    @rule(data=st.data(), text=st.sampled_from(["", "And this.", "x" * 60_000]))
    @precondition(connected)
    def write(self, data: st.DataObject, text: str) -> None:
        self.give(cmd.AppendText(**self.sent(data.draw), text=text))

    @rule(
        data=st.data(),
        signal=st.sampled_from([*SIGNALS, *SIGNALS, *get_args(cmd.Signal)]),
        ms=st.sampled_from([0, 400]),
    )
    @precondition(connected)
    def tell(self, data: st.DataObject, signal: cmd.Signal, ms: int) -> None:
        """Say what the client sees of the turn; seldom, that it is over."""
        played = (
            cmd.AckPlayback(attachment=self.world.attachment, played_ms=ms) if signal == "playback_ack" else None
        )
        self.give(cmd.SignalTurn(**self.sent(data.draw), signal=signal, playback=played))

    # -- stories, so that most sessions get somewhere --------------------------------------------------------

    @rule(answer=st.booleans(), pieces=st.integers(0, 4), ms=st.sampled_from([0, 300, 3_000]), ends=st.booleans())
    @precondition(connected)
    def talk(self, answer: bool, pieces: int, ms: int, ends: bool) -> None:
        """Ask in writing, and perhaps hear something."""
        world = self.world
        attachment = world.attachment
        self.give(cmd.CreateItem(attachment=attachment, item=Message(id="", role="user", content=(TextPart("?"),))))
        if answer:
            self.give(cmd.CreateResponse(attachment=attachment))
        self.hear(pieces, ms, ends)

    @rule(frames=st.integers(1, 12), silence=st.integers(0, 20), pieces=st.integers(0, 3), ends=st.booleans())
    @precondition(connected)
    def speak(self, frames: int, silence: int, pieces: int, ends: bool) -> None:
        """Say something and fall silent; without a detector, commit it."""
        world = self.world
        detected = world.session.config.turn_detection is not None
        for score in (990,) * frames + (0,) * silence:
            world.wait(32)
            scores = (score,) if detected else ()
            size = FRAME
            self.give(
                cmd.AppendAudio(
                    attachment=world.attachment, size=size, wire_bytes=size, scores=scores, speech=score > 500
                )
            )
        if not detected:
            self.give(cmd.CommitInput(attachment=world.attachment, create_response=True))
        self.hear(pieces, 300, ends)

    @rule(
        frames=st.integers(1, 30),
        wanted=st.sampled_from([None, True, True, False]),
        pause=st.booleans(),
        quick=st.booleans(),
        ms=st.sampled_from([0, 0, 500, 5_000]),
    )
    @precondition(connected)
    def talk_over(self, frames: int, wanted: bool | None, pause: bool, quick: bool, ms: int) -> None:
        """Speak while an answer may be running or playing, and commit; then let time pass."""
        world = self.world
        detected = world.session.config.turn_detection is not None
        for speech in (True, not pause, True):
            world.wait(0 if quick else frames * 32)
            scores = (990 if speech else 0,) * frames if detected else ()
            size = frames * FRAME
            self.give(
                cmd.AppendAudio(
                    attachment=world.attachment, size=size, wire_bytes=size, scores=scores, speech=speech
                )
            )
        self.give(cmd.CommitInput(attachment=world.attachment, create_response=wanted))
        world.wait(ms)
        self.give(cmd.Tick())

    @rule(
        data=st.data(),
        pieces=st.integers(0, 2),
        ends=st.booleans(),
        frames=st.sampled_from([1, 4, 4, 10, 20, 20]),
        words=st.sampled_from([None, None, None, "Mhm.", "No, ", " "]),
        said=st.integers(0, 3),
        silence=st.sampled_from([0, 8, 8, 20]),
        acked=st.sampled_from([None, None, 200, 10**9]),
        waits=st.booleans(),
    )
    @precondition(connected)
    def say_something_short(
        self,
        data: st.DataObject,
        pieces: int,
        ends: bool,
        frames: int,
        words: str | None,
        said: int,
        silence: int,
        acked: int | None,
        waits: bool,
    ) -> None:
        """Make a sound over an answer that may be a turn, or none, while the stages go on (DESIGN 5.13)."""
        world = self.world
        careful = data.draw(st.sampled_from([found for found in DETECTIONS if found and found.false_interruption]))
        patch = ConfigPatch(turn_detection=careful)
        self.give(cmd.UpdateSession(attachment=world.attachment, patch=patch))
        self.talk(True, pieces, 700, ends)
        hint = words
        for score, length in ((990, 2), (990, frames), (0, silence)):
            if world.session.config.turn_detection is None or not length:
                continue
            world.wait(length * 32)
            size = length * FRAME
            self.give(
                cmd.AppendAudio(
                    attachment=world.attachment,
                    size=size,
                    wire_bytes=size,
                    scores=(score,) * length,
                    transcript=hint,
                )
            )
            hint = None
            if data.draw(st.booleans()):
                self.hear(said, 200, data.draw(st.booleans()))
            self.be_told(data.draw)
        if acked is not None:
            self.give(cmd.AckPlayback(attachment=world.attachment, played_ms=acked))
        known = world.session.suspicion
        if waits and known is not None and known.due is not None:
            world.now = max(world.now, known.due)
        self.give(cmd.Tick())
        self.hear(said, 200, ends)
        self.be_told(data.draw)

    def be_told(self, pick: Pick) -> None:
        """Let the stage answer a question about the open utterance, or not."""
        request = asked(self.world.session)
        fate = pick(st.sampled_from(["Mhm.", "What about tea?", "", "finish", "fail", "lose", "wait", "wait"]))
        if request is None or fate == "wait":
            return
        fates: dict[str, cmd.AnyCommand] = {
            "finish": cmd.StageFinished(request=request),
            "fail": cmd.StageFailed(request=request, code="engine_error", message="It broke."),
            "lose": cmd.StageLost(request=request),
        }
        item_id = self.world.session.input.item_id or ""
        words = cmd.StageTranscribed(request=request, item_id=item_id, text=fate, final=False)
        self.give(fates.get(fate, words))

    @rule(ms=st.sampled_from([1_000, 5_000]), acked=st.sampled_from([None, 0, 500]), jumps=st.booleans())
    @precondition(connected)
    def wait_behind_playback(self, ms: int, acked: int | None, jumps: bool) -> None:
        """Speak over an answer that is only played any more, and perhaps let the time come that ends it."""
        world = self.world
        self.talk(True, 2, ms, True)
        detected = world.session.config.turn_detection is not None
        size = 30 * FRAME
        scores = (990,) * 30 if detected else ()
        self.give(cmd.AppendAudio(attachment=world.attachment, size=size, wire_bytes=size, scores=scores))
        self.give(cmd.CommitInput(attachment=world.attachment, create_response=True))
        if acked is not None:
            self.give(cmd.AckPlayback(attachment=world.attachment, played_ms=acked))
        due = next_deadline(world.session)
        if jumps and due is not None and world.session.turn.deferred:
            world.now = max(world.now, due)
            self.give(cmd.Tick())

    @rule(count=st.sampled_from([1, 4, 20]), first_ends=st.booleans(), ms=st.sampled_from([0, 20]))
    @precondition(connected)
    def ask_beside(self, count: int, first_ends: bool, ms: int) -> None:
        """Ask for answers out of band, more than are followed; the first may outlive the others."""
        world = self.world
        options = cmd.ResponseOptions(remember=False, instructions="x")
        made: list[str] = []
        for number in range(count):
            created = self.give(cmd.CreateResponse(attachment=world.attachment, options=options))
            made += [event.request for event in created if isinstance(event, ev.ResponseCreated)]
            if made:
                self.give(cmd.StageProduced(request=made[-1], text="x", size=OUT.bytes_for(ms)))
            if made and (number > 0 or first_ends):
                self.give(cmd.StageFinished(request=made[-1]))
                self.give(cmd.StageReleased(request=made[-1]))
        if made:
            self.give(cmd.StageProduced(request=made[0], text="y", size=OUT.bytes_for(ms)))

    @rule(
        data=st.data(),
        count=st.integers(1, 3),
        ms=st.sampled_from([0, 3_000]),
        kind=st.sampled_from([None, cmd.ClearInput, cmd.CancelInput, cmd.BargeIn, cmd.ClearOutput, cmd.DeleteItem]),
        late=st.booleans(),
        early=st.booleans(),
    )
    @precondition(connected)
    def use_tools(
        self,
        data: st.DataObject,
        count: int,
        ms: int,
        kind: type[cmd.ClientCommand] | None,
        late: bool,
        early: bool,
    ) -> None:
        """Let an answer call for something, give the outputs, and stop or forget something in between."""
        world = self.world
        self.talk(True, 1, ms, False)
        request = None if world.session.response is None else world.session.response.request
        if request is None:
            return
        for index in range(count):
            self.give(cmd.StageCalled(request=request, index=index, name="look", arguments="{}", final=True))
        made = world.session.response.calls[:1] if early and world.session.response is not None else ()
        for call in made:
            output = FunctionOutput(id="", call_id=call.call_id, output="0")
            self.give(cmd.CreateItem(attachment=world.attachment, item=output))
        self.give(cmd.StageFinished(request=request))
        calls = list(world.session.turn.awaited)
        for call_id in calls[1:] if kind is cmd.DeleteItem else calls:
            output = FunctionOutput(id="", call_id=call_id, output="1")
            self.give(cmd.CreateItem(attachment=world.attachment, item=output))
        if kind is cmd.DeleteItem:
            entries = world.session.conversation.entries.values()
            named = [e.item.id for e in entries if isinstance(e.item, FunctionCall) and e.item.call_id in calls[:1]]
            for item_id in named:
                self.give(cmd.DeleteItem(attachment=world.attachment, item_id=item_id))
        elif kind is not None:
            self.give(kind(attachment=world.attachment))  # type: ignore[arg-type]
        if late:
            world.wait(ms)
        self.give(cmd.CreateResponse(**self.sent(data.draw)))

    @rule(data=st.data(), listens=st.booleans(), forgets=st.booleans())
    @precondition(has_items)
    def refer_and_forget(self, data: st.DataObject, listens: bool, forgets: bool) -> None:
        """Ask for an answer to an item, delete it, and perhaps change who decides when to answer."""
        world = self.world
        attachment = world.attachment
        item_id = data.draw(st.sampled_from(world.session.conversation.order))
        options = cmd.ResponseOptions(input=(ItemReference(item_id),))
        self.give(cmd.CreateResponse(attachment=attachment, options=options))
        if forgets:
            self.give(cmd.DeleteItem(attachment=attachment, item_id=item_id))
        self.give(cmd.UpdateSession(attachment=attachment, patch=ConfigPatch(auto_response=listens)))
        self.talk(True, 1, 300, data.draw(st.booleans()))

    def hear(self, pieces: int, ms: int, ends: bool) -> None:
        """Let the stage work on what it was given last."""
        live = [name for name, known in self.world.session.requests.items() if known.phase != "leaving"]
        if not live:
            return
        for n in range(pieces):
            self.world.wait(100)
            self.give(cmd.StageProduced(request=live[-1], text=f"word {n} ", size=OUT.bytes_for(ms)))
        if ends:
            self.give(cmd.StageFinished(request=live[-1]))

    # -- stages ----------------------------------------------------------------------------------------------

    def a_request(self, pick: Pick) -> str:
        """Draw a request: mostly one that is live, else one of another time, another epoch, or nobody's."""
        live = list(self.world.session.requests)
        known = live * 4 or self.requests
        return pick(st.sampled_from([*known, *self.requests[-3:], "nobody.e0"]))

    @rule(
        data=st.data(),
        text=st.sampled_from(WORDS),
        ms=st.sampled_from([0, 20, 200, 1_000]),
        ahead=st.sampled_from([None, None, -1, 0, 0, 1]),
    )
    @precondition(works)
    def produce(self, data: st.DataObject, text: str, ms: int, ahead: int | None) -> None:
        marks = (TextMark(len(text), 100),) if text and ms and data.draw(st.booleans()) else ()
        request = self.a_request(data.draw)
        size = OUT.bytes_for(ms)
        turn = None if ahead is None else max(self.world.session.turn.turn + ahead, 0)
        last = self.world.session.input.stream.operation
        operation = data.draw(st.sampled_from([None, last - 1, last]))
        self.give(
            cmd.StageProduced(
                request=request, text=text, size=size, marks=marks, model_turn=turn, operation=operation
            )
        )

    @rule(
        data=st.data(),
        decision=st.sampled_from(["listen", "speak", "end_of_turn"]),
        ahead=st.sampled_from([None, None, 0, 1]),
        buffering=st.sampled_from([False, False, True]),
        takes=st.booleans(),
    )
    @precondition(works)
    def decide(
        self, data: st.DataObject, decision: cmd.Decision, ahead: int | None, buffering: bool, takes: bool
    ) -> None:
        """A model that listens has worked off its units (G14)."""
        turn = None if ahead is None else self.world.session.turn.turn + ahead
        request = self.a_request(data.draw)
        segment = cmd.StageSegmentFinished(
            request=request,
            decision=decision,
            operation=self.world.session.input.stream.operation if takes else None,
            model_turn=turn,
            buffering=buffering,
            abort=buffering,
        )
        self.give(segment)

    @rule(
        data=st.data(),
        index=st.sampled_from([0, 0, 0, 1, 2]),
        name=st.sampled_from(["look", "look", "call", ""]),
        call_id=st.sampled_from(["", "", "call_1", "call_2"]),
        final=st.booleans(),
        ends=st.sampled_from([False, False, True]),
    )
    @precondition(works)
    def call(self, data: st.DataObject, index: int, name: str, call_id: str, final: bool, ends: bool) -> None:
        self.give(
            cmd.StageCalled(
                request=self.a_request(data.draw),
                index=index,
                name=name,
                call_id=call_id,
                arguments=data.draw(st.sampled_from(["", "{}", '{"a":'])),
                final=final,
                ends=ends,
            )
        )

    @rule(
        data=st.data(),
        stop=st.sampled_from(["stop", "stop", "max_output_tokens"]),
        silent=st.sampled_from([False, False, True]),
    )
    @precondition(works)
    def finish(self, data: st.DataObject, stop: Literal["stop", "max_output_tokens"], silent: bool) -> None:
        self.give(cmd.StageFinished(request=self.a_request(data.draw), stop=stop, silent=silent, abort=silent))

    @rule(
        data=st.data(),
        kind=st.sampled_from([cmd.StageAccepted, cmd.StageReleased, cmd.StageReleased, cmd.StageAbortFailed]),
        hasty=st.sampled_from([False] * 9 + [True]),
    )
    @precondition(has_worked)
    def report(
        self,
        data: st.DataObject,
        kind: type[cmd.StageAccepted] | type[cmd.StageReleased] | type[cmd.StageAbortFailed],
        hasty: bool,
    ) -> None:
        request = self.a_request(data.draw)
        known = self.world.session.requests.get(request)
        if kind is cmd.StageReleased and known is not None and known.phase in LIVE and not hasty:
            return  # few stages give up what they were not told to forget
        self.give(kind(request=request))

    @rule(data=st.data(), kind=st.sampled_from(["inner", "inner", "context", "costs"]))
    @precondition(works)
    def report_beside(self, data: st.DataObject, kind: str) -> None:
        """What a stage says beside its outputs (H2, H15, K24)."""
        request = self.a_request(data.draw)
        told: dict[str, cmd.AnyCommand] = {
            "inner": cmd.StageInnerFinished(request=request, stage=data.draw(st.sampled_from([1, 1, 1, 0]))),
            "context": cmd.StageContext(request=request, turn=ContextTurn(user="?", assistant="!")),
            "costs": cmd.StageMeasured(request=request, costs=(cmd.StageCost(stage="llm", outputs=1),)),
        }
        self.give(told[kind])

    @rule(data=st.data(), refused=st.sampled_from([False, False, True]), late=st.sampled_from([0, 0, 0, 1]))
    @precondition(listens)
    def answer_units(self, data: st.DataObject, refused: bool, late: int) -> None:
        """The stage takes some of the units that are under way, or refuses one and all behind it."""
        flying = [unit.taken for unit in self.world.session.input.stream.in_flight]
        unit = data.draw(st.sampled_from(flying))
        operation = unit.operation - late
        if refused:
            self.give(cmd.StageRefused(request=unit.request, operation=operation, message="No."))
        else:
            self.give(cmd.StageAccepted(request=unit.request, operation=operation))

    @rule(data=st.data(), lost=st.booleans(), unlikely=st.sampled_from([False, False, True]))
    @precondition(has_worked)
    def break_down(self, data: st.DataObject, lost: bool, unlikely: bool) -> None:
        if not unlikely:
            return
        request = self.a_request(data.draw)
        goes_on = data.draw(st.booleans())
        failed = cmd.StageFailed(request=request, code="engine_error", message="It broke.", goes_on=goes_on)
        self.give(cmd.StageLost(request=request) if lost else failed)

    @rule(data=st.data(), final=st.booleans(), text=st.sampled_from(["Words.", "Words and", "words", ""]))
    @precondition(has_worked)
    def transcribe(self, data: st.DataObject, final: bool, text: str) -> None:
        item_id = item_ids(data.draw, self.world)
        request = self.a_request(data.draw)
        self.give(cmd.StageTranscribed(request=request, item_id=item_id, text=text, final=final))

    @rule(
        data=st.data(),
        spoken=st.sampled_from([0, 0, 4]),
        silent=st.sampled_from([7, 8, 16, 30]),
        text=st.sampled_from([None, "Words.", "Words and", "words"]),
    )
    @precondition(detects)
    def pause(self, data: st.DataObject, spoken: int, silent: int, text: str | None) -> None:
        """Speak and pause, or pause on: the words so far may be asked for, and told at once (WIRE 4.4)."""
        spoken = spoken if self.world.session.input.vad.speaking else 4
        scores = (990,) * spoken + (0,) * silent
        size = len(scores) * FRAME
        self.world.wait(len(scores) * 32)
        self.give(cmd.AppendAudio(**self.sent(data.draw), size=size, wire_bytes=size, scores=scores))
        question = asked(self.world.session)
        if question is not None and text is not None:
            self.give(cmd.StageTranscribed(request=question, item_id="", text=text, final=False))

    @rule(
        data=st.data(),
        text=st.sampled_from(["Words.", "Words and", "words", ""]),
        then=st.sampled_from(["more", "more", "done", "fails", "lost", "late"]),
    )
    @precondition(is_asked)
    def hear_ahead(self, data: st.DataObject, text: str, then: str) -> None:
        """A stage tells words of the open utterance; it goes on, ends, fails, or does so when it is too late."""
        request = asked(self.world.session) or ""
        if then == "late":
            self.give(cmd.ClearInput(**self.sent(data.draw)))
        self.give(cmd.StageTranscribed(request=request, item_id="", text=text, final=data.draw(st.booleans())))
        ends: dict[str, cmd.AnyCommand] = {
            "done": cmd.StageFinished(request=request),
            "fails": cmd.StageFailed(request=request, code="engine_error", message="It broke."),
            "lost": cmd.StageLost(request=request),
        }
        if then in ends:
            self.give(ends[then])

    # -- connections, time, the engine -----------------------------------------------------------------------

    @rule(stale=st.sampled_from([0, 0, 0, 1]))
    @precondition(alive)
    def detach(self, stale: int) -> None:
        self.give(cmd.Detach(generation=self.world.session.lease.generation - stale))

    @rule(name=st.sampled_from(["one", "two"]), fenced=st.booleans(), why=st.sampled_from(["operator", "shutdown"]))
    @precondition(alive)
    def detach_by_an_operator(self, name: str, fenced: bool, why: Literal["operator", "shutdown"]) -> None:
        generation = self.world.session.lease.generation if fenced else None
        self.give(cmd.Detach(generation=generation, reason=why, control_id=name))

    @rule(data=st.data(), seen=st.sampled_from([0, 0, 1, 10**6]))
    def resume(self, data: st.DataObject, seen: int) -> None:
        lease = self.world.session.lease
        tokens = [lease.token or token(0), lease.token or token(0), (*lease.earlier_tokens, token(0))[0], token(0)]
        command = self.world.resumption(data.draw(st.sampled_from(tokens)), seen)
        if self.give(command):
            self.resumes.append(command)

    @rule(data=st.data())
    @precondition(lambda self: alive(self) and bool(self.resumes))
    def resume_again(self, data: st.DataObject) -> None:
        """A lost answer: the same control id changes nothing (P45)."""
        command = data.draw(st.sampled_from(self.resumes))
        latest = self.world.session.lease.controls[command.control_id].generation
        before = self.world.session.lease.generation
        assert not self.give(command)
        assert self.world.session.lease.generation == before >= latest

    @rule(stale=st.sampled_from([0, 0, 1]))
    @precondition(alive)
    def confirm(self, stale: int) -> None:
        self.give(cmd.ConfirmAttachment(attachment=self.world.attachment - stale))

    @rule(ms=st.sampled_from([0, 1, 100, 300, 500, 1_000, 3_000]))
    def pass_time(self, ms: int) -> None:
        self.world.wait(ms)
        self.give(cmd.Tick())

    @rule(early_us=st.sampled_from([0, 0, 1]), unlikely=st.sampled_from([False, False, False, True]))
    def reach_the_deadline(self, early_us: int, unlikely: bool) -> None:
        due = next_deadline(self.world.session)
        if due is not None and (unlikely or not connected(self)):
            self.world.now = max(self.world.now, due - early_us)
        self.give(cmd.Tick())

    @rule(back_us=st.sampled_from([0, 50_000]))
    def clock_jumps_back(self, back_us: int) -> None:
        """The runner never stamps backwards; `decide` does not rely on it."""
        world = self.world
        core.decide(world.session, cmd.Tick(), max(world.session.now - back_us, 0))

    @rule()
    def again(self) -> None:
        """Whatever came last comes twice; a stage's answer about a request says nothing the second time (P5)."""
        goes_on = isinstance(self.last, cmd.StageFailed) and self.last.goes_on  # it may break again
        answer = isinstance(self.last, ANSWERS) and not goes_on
        assert not self.give(self.last) or not answer, "P5"

    @rule(unlikely=st.sampled_from([False, False, False, True]))
    def restart(self, unlikely: bool) -> None:
        if unlikely:
            self.give(cmd.StartRunner(term=2, wall_us=WALL + self.world.now, grace_ms=5_000))

    @rule(data=st.data(), unlikely=st.sampled_from([False, False, False, False, True]))
    def close(self, data: st.DataObject, unlikely: bool) -> None:
        if unlikely:
            attachment = data.draw(st.sampled_from([None, self.world.attachment, self.world.attachment - 1]))
            self.give(cmd.CloseSession(control_id="close", attachment=attachment))

    @rule(stale=st.sampled_from([0, 1]), numbered=st.booleans())
    def report_refusal(self, stale: int, numbered: bool) -> None:
        attachment = self.world.attachment - stale
        self.give(cmd.ReportRefusal(attachment=attachment, code="bad_audio", message="No.", numbered=numbered))

    @rule(
        data=st.data(),
        append=st.booleans(),
        stale=st.sampled_from([0, 0, 1]),
        unlikely=st.sampled_from([False] * 5 + [True]),
    )
    @precondition(has_worked)
    def report_fault(self, data: st.DataObject, append: bool, stale: int, unlikely: bool) -> None:
        """An error of ours that no rule covers (M10)."""
        if unlikely:
            request = data.draw(st.sampled_from([None, self.a_request(data.draw)]))
            attachment = self.world.attachment - stale if request is None else None
            self.give(cmd.ReportFault(attachment=attachment, append=append, event_id="e", request=request))

    @rule()
    def open_again(self) -> None:
        assert not self.give(self.world.opening)

    # -- at every step ---------------------------------------------------------------------------------------

    @invariant()
    def a_deadline_stands(self) -> None:
        a_deadline_stands(self.world.session)

    @invariant()
    def cancels_are_decided_at_once(self) -> None:
        """Whatever waits for a stage, what stops it is one decision, and leaves nothing at work (P58)."""
        world = self.world
        if not connected(self):
            return
        made: list[cmd.AnyCommand] = [
            cmd.CancelInput(attachment=world.attachment),
            cmd.BargeIn(attachment=world.attachment),
            cmd.CloseSession(control_id="now", attachment=world.attachment),
        ]
        if world.session.response is not None:
            made.append(cmd.CancelResponse(attachment=world.attachment))
        if (world.data, world.now) == self.stopped:
            return  # nothing has changed since it was tried
        self.stopped = world.data, world.now
        silent = newest_answer(world.session) is None
        for command in made:
            events = core.decide(world.session, command, world.now, world.plugins)
            if silent and not any(isinstance(event, ev.ResponseCreated) for event in events):
                continue
            after = core.load(world.data)
            for event in events:
                core.evolve(after, event, world.now)
            assert newest_answer(after) is None, f"P58: {type(command).__name__}"

    def come_to_rest(self) -> None:
        """Input stops, answers end, what was sent is played: no turn stays deferred (P37)."""
        world = self.world
        for _ in range(12):
            session = world.session
            if not connected(self) or not session.turn.deferred:
                return
            if session.suspicion is not None and session.suspicion.due is not None:
                world.now = max(world.now, session.suspicion.due)
                world.tick()
            if session.response is not None:
                world.finish()
                continue
            world.accept()
            due = next_deadline(session)
            assert due is not None, "P37"
            world.now = max(world.now, due)
            world.tick()
        raise AssertionError("P37: a turn is still deferred")

    def teardown(self) -> None:
        """The whole log folds to the live state; and every session ends when nobody comes back (P37, P56)."""
        if not hasattr(self, "world"):
            return
        world = self.world
        self.come_to_rest()
        assert core.dump(core.fold(world.log)) == core.dump(world.session)
        half = len(world.log) // 2
        resumed = core.load(core.dump(core.fold(world.log[:half])))
        assert core.dump(core.fold(world.log[half:], resumed)) == core.dump(world.session)
        self.give(cmd.Detach(generation=world.session.lease.generation))
        for _ in range(40):
            due = next_deadline(world.session)
            if due is not None and world.session.phase != "closed":
                world.now = max(world.now, due)
                world.tick()
        assert world.session.phase == "closed"
        self.be_cleaned()

    def be_cleaned(self) -> None:
        """What was ever submitted is confirmed clean when its stage can do it at last (P13, M12)."""
        world = self.world
        for _ in range(2):
            left = core.outstanding(world.session)
            due = next_deadline(world.session)
            assert (due is not None) == bool(left)
            if due is not None:
                world.now = max(world.now, due)
                assert world.effects(world.tick()) == [fx.AbortRequests(requests=tuple(left))]
                world.jam()
        world.release()
        assert core.outstanding(world.session) == []
        assert next_deadline(world.session) is None


@pytest.mark.timeout(900)  # it takes many times as long on a machine that is busy with other things
@holds(*HELD)
@settings(max_examples=8 * settings().max_examples)
@given(data=st.data())
def test_any_story_of_a_session(data: st.DataObject) -> None:
    stories.tell(SessionMachine, data, steps=54)
