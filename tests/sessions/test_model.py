"""The session beside a small model of the contract: whatever a client and a stage do, both tell the same."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.config import Limits
from antiphon.events.items import Item, Message, TextPart, text_of
from antiphon.sessions import core
from antiphon.sessions.phases import LEFT
from antiphon.sessions.view import next_deadline, prompt

from tests.rules import rule as holds
from tests.sessions.model import MS, Model
from tests.sessions.world import FRAME, OUT, QUICK_VAD, World, token

GRACE_MS, ACTIVATION_MS, PENDING = 20_000, 10_000, 2
LIMITS = Limits(grace_ms=GRACE_MS, activation_ms=ACTIVATION_MS, pending_commits=PENDING, idle_ttl_ms=0)

WORDS = ("well ", "all is well ", "and you ")
SOUNDS_MS = (0, 400, 1_000)
NOWHERE = "nowhere"


class Names:
    """What the session's ids stand for: `answer 1`, `sound 1`, and the names that the client gave."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.answers = 0
        self.sounds = 0

    def learn(self, event: ev.AnyEvent) -> None:
        if isinstance(event, ev.ResponseCreated):
            self.answers += 1
            self.known[event.head.id] = self.known[event.head.item_id] = f"answer {self.answers}"
        elif isinstance(event, ev.InputCommitted) and not event.empty:
            self.sounds += 1
            self.known[event.item_id] = f"sound {self.sounds}"

    def __call__(self, key: str | None) -> str:
        return self.known.get(key or "", key or "")

    def id(self, name: str) -> str:
        """Return the id of an item."""
        ids = [key for key, known in self.known.items() if known == name and key.startswith("item")]
        return ids[0] if ids else name


def told(names: Names, event: ev.AnyEvent) -> str | None:
    """Say in the model's words what a client is told; None: the model does not speak of it."""
    match event:
        case ev.ErrorReported(code=code):
            return f"error {code}"
        case ev.ResponseCreated():
            return "created"
        case ev.ResponseEnded(head=head, status=status):
            return f"{names(head.id)} {status}"
        case ev.ItemCreated(item=item):
            return f"item {names(item.id)}"
        case ev.OutputStarted(item=item):
            return f"item {names(item.id)}"
        case ev.ItemDeleted(item_id=item_id):
            return f"deleted {names(item_id)}"
        case ev.ItemTruncated(item_id=item_id, audio_end_ms=ms):
            return f"truncated {names(item_id)} {ms}"
        case ev.PlaybackAcknowledged(response_id=response_id, playback=playback):
            return f"acknowledged {names(response_id)} {playback.committed_ms}"
        case ev.OverlapDecided(action=action, reason=reason):
            return f"overlap {action} {reason}"
        case ev.InputCommitted(overlap_ack=nod, empty=empty):
            return "committed acknowledgement" if nod else "committed silence" if empty else "committed"
        case _:
            return PLAIN.get(type(event))


PLAIN: dict[type[ev.AnyEvent], str] = {
    ev.SpeechStarted: "speech started",
    ev.SpeechStopped: "speech stopped",
    ev.InputCleared: "cleared",
    ev.OutputCleared: "output cleared",
    ev.SessionDetached: "detached",
    ev.SessionResumed: "resumed",
    ev.AttachmentWithdrawn: "withdrawn",
    ev.SessionClosed: "closed",
}


connected = precondition(lambda self: self.model.attached and self.model.phase == "open")
"""Most commands come of somebody who is there."""


class Beside(RuleBasedStateMachine):
    """Does the same to both, and compares what is told, and then what is so."""

    @initialize(policy=st.sampled_from(["ack_only", "commit_all_on_done"]), vad=st.booleans())
    def begin(self, policy, vad):  # type: ignore[no-untyped-def]
        self.names = Names()
        self.world = World(limits=LIMITS, policy=policy, vad=QUICK_VAD if vad else None, alone=True)
        self.model = Model(policy, vad, grace_ms=GRACE_MS, activation_ms=ACTIVATION_MS, pending=PENDING)
        self.next_number = self.world.session.next_number
        self.texts = 0
        self.requests: dict[str, str] = {}

    # -- both ------------------------------------------------------------------------------------------------

    def both(self, command: cmd.AnyCommand, expected: list[str]) -> None:
        """Let the session decide; it must tell what the model expects."""
        found = self.decided(command)
        assert found == expected, f"{found} != {expected}"

    def decided(self, command: cmd.AnyCommand) -> list[str]:
        try:
            events = self.world.do(command)
        except core.Refusal as refusal:
            return [f"refused {refusal.code}"]
        found: list[str] = []
        for event in events:
            self.names.learn(event)
            self.counted(event)
            if isinstance(event, ev.ResponseCreated):
                self.opened(event)
            found += [words] if (words := told(self.names, event)) is not None else []
        self.handed_over(events)
        return found

    def handed_over(self, events: list[ev.AnyEvent]) -> None:
        """What a stage is to answer is what the model says that it is shown."""
        for effect in self.world.effects(events):
            if isinstance(effect, fx.SubmitToStage):
                assert [self.words(item) for item in effect.payload.items] == self.model.prompt

    def opened(self, event: ev.ResponseCreated) -> None:
        """Each answer is a turn of its own, in the epoch that there is (A4-A6)."""
        self.requests[self.names(event.head.id)] = event.request
        assert (event.head.turn, event.head.epoch) == (self.names.answers - 1, self.model.epoch)

    def counted(self, event: ev.AnyEvent) -> None:
        """The numbers of what is told go on without a gap (P1)."""
        if isinstance(event, ev.PublicEvent) and event.number:
            assert event.number == self.next_number
            self.next_number += event.count

    def client(self, command: cmd.ClientCommand, expect) -> None:  # type: ignore[no-untyped-def]
        stopped = self.model.enters()
        self.both(command, expect() if stopped is None else stopped)

    def passes(self, ms: int) -> None:
        self.world.wait(ms)
        self.model.now += ms * MS

    @property
    def attachment(self) -> int:
        return self.world.attachment

    @invariant()
    def same(self) -> None:
        session, model = self.world.session, self.model
        assert session.phase == model.phase
        active = session.response
        assert (self.names(active.head.id) if active else None) == (model.active.name if model.active else None)
        assert session.epoch == model.epoch
        assert session.lease.attached == (model.attached and model.phase == "open")
        if model.phase == "open":
            assert (session.lease.generation, session.lease.attachment) == (model.generation, model.generation + 1)
        assert [self.names(key) for key in session.conversation.order] == model.order
        if session.phase == "open":
            shown = [item for item in prompt(session) if active is None or item.id != active.head.item_id]
            assert [self.words(item) for item in shown] == model.prompt

    def words(self, item: Item) -> str:
        assert isinstance(item, Message)
        return f"({self.names(item.id)})" if self.names(item.id).startswith("sound") else text_of(item)

    # -- the client ------------------------------------------------------------------------------------------

    @connected
    @rule(where=st.sampled_from([None, None, None, "root", "first", NOWHERE]), again=st.booleans())
    def says(self, where, again):  # type: ignore[no-untyped-def]
        repeated = again and self.texts > 0 and where == "first"
        self.texts += not repeated
        name, text = f"text-{self.texts}", f"I say {self.texts}."
        first = self.model.order[0] if self.model.order else "root"
        previous = first if where == "first" else where
        item = Message(id=name, role="user", content=(TextPart(text),))
        key = self.names.id(previous) if previous else None
        command = cmd.CreateItem(attachment=self.attachment, item=item, previous_item_id=key)
        self.client(command, lambda: self.model.say(name, text, previous))

    @connected
    @rule(which=st.integers(0, 6))
    def deletes(self, which):  # type: ignore[no-untyped-def]
        name = self.model.order[which] if which < len(self.model.order) else NOWHERE
        self.client(
            cmd.DeleteItem(attachment=self.attachment, item_id=self.names.id(name)), lambda: self.model.delete(name)
        )

    @connected
    @rule(speech=st.booleans(), frames=st.sampled_from([4, 4, 12, 30]))
    def appends(self, speech, frames):  # type: ignore[no-untyped-def]
        self.passes(frames * 32)
        scores = ((990 if speech else 0),) * frames if self.model.vad else ()
        size = frames * FRAME
        command = cmd.AppendAudio(
            attachment=self.attachment, size=size, wire_bytes=size, scores=scores, speech=speech
        )
        self.client(command, lambda: self.model.append(frames, speech))

    @connected
    @rule(create=st.sampled_from([None, None, True, True, False]))
    def commits(self, create):  # type: ignore[no-untyped-def]
        command = cmd.CommitInput(attachment=self.attachment, create_response=create)
        self.client(command, lambda: self.model.commit(create))

    @connected
    @rule()
    def clears(self) -> None:
        self.client(cmd.ClearInput(attachment=self.attachment), self.model.clear)

    @connected
    @rule()
    def asks(self) -> None:
        self.client(cmd.CreateResponse(attachment=self.attachment), self.model.respond)

    @connected
    @rule(back=st.sampled_from([None, None, 0, 0, 1]))
    def cancels(self, back):  # type: ignore[no-untyped-def]
        name = None if back is None else self.answer(back)
        command = cmd.CancelResponse(attachment=self.attachment, response_id=self.response_id(name))
        self.client(command, lambda: self.model.cancel(name))

    @connected
    @rule()
    def barges_in(self) -> None:
        self.client(cmd.BargeIn(attachment=self.attachment), self.model.barge_in)

    @connected
    @rule(back=st.sampled_from([None, None, 0, 0, 1, 2]), ms=st.sampled_from([0, 200, 700, 1_500, 99_999]))
    def acknowledges(self, back, ms):  # type: ignore[no-untyped-def]
        unnamed = back is None and self.model.active is not None  # else nobody's rule says which is meant
        name = None if unnamed else self.answer(back or 0)
        command = cmd.AckPlayback(attachment=self.attachment, played_ms=ms, response_id=self.response_id(name))
        self.client(command, lambda: self.model.ack(name, ms))

    @connected
    @rule(back=st.sampled_from([0, 0, 1, 2]), ms=st.sampled_from([0, 200, 700, 1_500]))
    def truncates(self, back, ms):  # type: ignore[no-untyped-def]
        name = self.answer(back)
        known = self.model.find(name)
        if known is not None and known.cut is not None and known.committed == known.limit(self.model.now) != ms:
            return  # of what was cut for good, a session need not know any more which words lay where
        item_id = self.names.id(name)
        command = cmd.TruncateItem(attachment=self.attachment, item_id=item_id, audio_end_ms=ms)
        self.client(command, lambda: self.model.truncate(name, ms))

    def answer(self, back: int) -> str:
        """Return the name of an answer, the last one first."""
        return f"answer {len(self.model.answers) - back}" if back < len(self.model.answers) else NOWHERE

    def response_id(self, name: str | None) -> str | None:
        ids = [key for key, known in self.names.known.items() if known == name and key.startswith("resp")]
        return ids[0] if ids else name

    # -- the stage -------------------------------------------------------------------------------------------

    @rule(words=st.sampled_from(WORDS), ms=st.sampled_from(SOUNDS_MS), late=st.booleans())
    def produces(self, words, ms, late):  # type: ignore[no-untyped-def]
        if name := self.asked(late=late):
            command = cmd.StageProduced(request=self.requests[name], text=words, size=OUT.bytes_for(ms))
            self.both(command, self.model.produce(name, words, ms))

    @rule(late=st.booleans())
    def finishes(self, late):  # type: ignore[no-untyped-def]
        if name := self.asked(late=late):
            self.both(cmd.StageFinished(request=self.requests[name]), self.model.finish(name))

    @rule()
    def fails(self) -> None:
        if name := self.asked(late=False):
            command = cmd.StageFailed(request=self.requests[name], code="engine_error", message="It broke.")
            self.both(command, self.model.finish(name, "failed"))

    @rule()
    def releases(self) -> None:
        left = [name for name, known in self.world.session.requests.items() if known.phase in LEFT]
        for name in left:
            self.both(cmd.StageReleased(request=name), self.model.release())

    # -- what seldom comes about by steps that are drawn alone -------------------------------------------------

    @connected
    @rule(ms=st.sampled_from([400, 4_000]), told=st.booleans(), over=st.booleans())
    def begins_to_answer(self, ms, told, over):  # type: ignore[no-untyped-def]
        self.says(where=None, again=False)
        self.asks()
        if told:
            self.acknowledges(back=0, ms=0)
        self.produces(words="all is well ", ms=ms, late=False)
        if over:
            self.finishes(late=False)

    @connected
    @rule(frames=st.sampled_from([4, 30]), create=st.sampled_from([None, True]))
    def interjects(self, frames, create):  # type: ignore[no-untyped-def]
        self.appends(speech=True, frames=frames)
        self.same()
        self.commits(create=create)

    @connected
    @rule(ms=st.sampled_from([100, 1_500]), late=st.booleans())
    def comes_back(self, ms, late):  # type: ignore[no-untyped-def]
        self.detaches(stale=0)
        self.produces(words="and you ", ms=1_000, late=late)
        self.waits(ms=ms)
        self.resumes(good=True)

    def asked(self, *, late: bool) -> str | None:
        """Return the answer that the stage works on, or has worked on."""
        return next(iter(list(self.requests)[-1 - late :]), None)

    # -- the connection, and time ----------------------------------------------------------------------------

    @rule(behind=st.integers(0, 1))
    def strays(self, behind):  # type: ignore[no-untyped-def]
        """Something comes of a connection that serves no more, or there is none that serves (C13, D24)."""
        command = cmd.BargeIn(attachment=self.attachment - behind)
        if behind:
            self.both(command, [])
        elif not self.model.attached or self.model.phase != "open":
            self.client(command, list)

    @rule(stale=st.sampled_from([0, 1, 1, 1]))
    def detaches(self, stale):  # type: ignore[no-untyped-def]
        generation = self.model.generation - stale
        self.both(cmd.Detach(generation=generation), self.model.detach(generation))

    @rule(good=st.sampled_from([True, True, True, False]))
    def resumes(self, good):  # type: ignore[no-untyped-def]
        presented = self.world.session.lease.token if good else token(999)
        self.both(self.world.resumption(presented), self.model.resume(good))

    @rule(really=st.sampled_from([False] * 7 + [True]))
    def closes(self, really):  # type: ignore[no-untyped-def]
        if really:
            self.both(cmd.CloseSession(control_id="end", attachment=self.attachment), self.model.close())

    @rule(ms=st.sampled_from([100, 500, 1_500, 3_000, 12_000]))
    def waits(self, ms):  # type: ignore[no-untyped-def]
        self.passes(ms)
        found, expected = list[str](), list[str]()
        while (due := next_deadline(self.world.session)) is not None and due <= self.world.now:
            known = len(self.world.log)
            found += self.decided(cmd.Tick())  # one thing at a time, as the clock of a session has it
            if len(self.world.log) == known:
                break
        while more := self.model.tick():
            expected += more
        assert found == expected, f"{found} != {expected}"


@holds("C4", "C6", "C13", "D23", "E30", "F15", "F19", "F22", "F23", "G2", "G6", "G20", "G30", "G31")
@holds("I1", "I3", "I6", "I7", "I10", "I16", "I17", "I19", "I21", "J8", "M4", "M14")
def test_the_session_tells_and_is_what_the_contract_says() -> None:
    run_state_machine_as_test(Beside, settings=settings(max_examples=700, stateful_step_count=50))
