"""A session of turns as its contract has it: what a client and a stage may expect of it, in a few plain values.

It is made of the rules' words and shares no code with the core; `test_model` holds the two to one another. It knows
the duplex dialect and a model that takes turns, written or spoken, with a server's detector or without. Commands
return what is told, in order, in words; answers are numbered as they open. Times are in µs, sound is in ms.
"""

from dataclasses import dataclass, field
from typing import Literal

from .model_answer import MS, Answer

SHORT_ACK_MS, CLOSING_US = 700, 2_000_000


@dataclass
class Model:
    """The session. `vad`: a server's detector, of frames of 32 ms, ends turns, and speech interrupts."""

    policy: Literal["ack_only", "commit_all_on_done"]
    vad: bool
    grace_ms: int
    activation_ms: int
    pending: int
    now: int = 0
    phase: Literal["open", "closing", "closed"] = "open"
    since: int = 0  # when it began to close, was left, or was resumed
    attached: bool = True
    unheard: bool = False
    generation: int = 0
    epoch: int = 0
    held: int = 0  # requests that the stage has not forgotten yet
    active: Answer | None = None
    answers: list[Answer] = field(default_factory=list[Answer])
    items: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # names and words
    unanswered: set[str] = field(default_factory=set[str])  # turns of the user since an answer opened
    deferred: set[str] = field(default_factory=set[str])  # those of them that wait for their answer
    sounds: int = 0
    silence: bool = False  # was sent and not committed
    spoken: int = 0  # speech that was
    over: int = 0  # what of it lay over answers
    speaking: bool = False  # an utterance is open, for the detector
    quiet: int = 0  # frames of silence in it, by now

    @property
    def playing(self) -> bool:
        """Whether the newest answer with sound is still to be heard: then all before it have been (I19)."""
        newest = next((one for one in reversed(self.answers) if one.sent and one.cap is None), None)
        return newest is not None and newest.plays(self.now)

    @property
    def blocked(self) -> bool:
        """The next answer must wait (G2, I19)."""
        return self.active is not None or (self.policy == "ack_only" and self.playing)

    @property
    def order(self) -> list[str]:
        """An answer has its place when it opens, and is there when it speaks (I10)."""
        silent = {one.name for one in self.answers if not one.spoken}
        return [name for name, _ in self.items if name not in silent]

    @property
    def prompt(self) -> list[str]:
        """What the next answer will be shown, but for what the active one says until then."""
        said = {one.name: "" if one is self.active else one.history(self.policy) for one in self.answers}
        return [words for name, kept in self.items if (words := said.get(name, kept))]

    def find(self, name: str) -> Answer | None:
        return next((one for one in self.answers if one.name == name and name in self.order), None)

    def enters(self) -> list[str] | None:
        """A command of the client: it is heard (5.6). Return what comes of it if it is not carried out."""
        if self.phase != "open" or not self.attached:
            return ["error session_closed"] if self.phase == "closing" else []
        self.unheard = False
        return None

    def detach(self, generation: int) -> list[str]:
        """A stale one is refused; told again, it changes nothing (C4, C6, C13)."""
        if self.phase != "open" or generation != self.generation:
            return ["refused " + ("session_closed" if self.phase != "open" else "session_resume_conflict")]
        return self._leave("detached") if self.attached else []

    def _leave(self, told: str) -> list[str]:
        self.attached, self.unheard, self.since = False, False, self.now
        for one in self.answers:
            if one.started is not None and one.there is None:
                one.there = one.sent
        return [told]

    def resume(self, good: bool) -> list[str]:
        """Lease, attachment and token change together (D22, D23); what was not heard plays on."""
        if self.phase != "open" or not good:
            return ["refused " + ("invalid_resume_token" if self.phase == "open" else "session_resume_expired")]
        for one in self.answers:
            if one.there is not None:
                heard = one.heard(self.now)
                one.started, one.there = self.now - heard * MS if heard else None, None
            if one.sent and one.cap is None and one.started is None:
                one.started = self._behind()
        self.generation += 1
        self.attached, self.unheard, self.since = True, True, self.now
        return ["resumed"]

    def _behind(self) -> int:
        """Sound that is sent now begins to play behind what still does."""
        playing = [one for one in self.answers if one.cap is None and one.committed < one.sent]  # I14
        return max([self.now, *(one.started + one.sent * MS for one in playing if one.started is not None)])

    def close(self, *, expired: bool = False) -> list[str]:
        """Its answers end, with a word if anybody hears it (M14); then it does, with its stages or in 2 s (M4)."""
        if self.phase != "open":
            return []
        told = self._cancel(epoch=False)
        self.phase, self.since = "closing", self.now
        return ([] if expired or told == ["output cleared"] else told) + self._closed()

    def _closed(self) -> list[str]:
        if self.phase != "closing" or (self.held and self.now < self.since + CLOSING_US):
            return []
        self.phase = "closed"
        return ["closed"]

    def tick(self) -> list[str]:
        """A deadline may have passed: of the end, the grace, an activation, or of what blocks a turn (F22)."""
        late = self.now - self.since
        if self.phase == "open" and not self.attached and late >= self.grace_ms * MS:
            return self.close(expired=True)
        if self.phase == "open" and self.unheard and late >= self.activation_ms * MS:
            return self._leave("withdrawn")
        return self._closed() or self._promote()

    def _open(self) -> list[str]:
        self.active = Answer(f"answer {len(self.answers) + 1}")
        self.answers, self.items = [*self.answers, self.active], [*self.items, (self.active.name, "")]
        self.unanswered, self.deferred = set(), set()
        return ["created"]

    def _promote(self) -> list[str]:
        """Turns that wait have one answer, when nothing blocks it any more (F22, E40)."""
        return self._open() if self.phase == "open" and self.deferred and not self.blocked else []

    def _call_off(self) -> None:
        """Turns that wait are not answered, also not when they are asked for (F23)."""
        self.unanswered, self.deferred = self.unanswered - self.deferred, set()

    def _cancel(self, *, epoch: bool = True) -> list[str]:
        """What is generated or played ends at what was heard by now (G30, G34, I17)."""
        if self.active is None and not self.playing:
            return []
        self.epoch += epoch
        self._call_off()
        for one in self.answers:
            if one.sent and one.cap is None and (one is self.active or one.plays(self.now)):
                one.guessed = self.now if one.acked_at is None else None
                one.cap = one.committed = one.heard(self.now)
        return self._end("cancelled") if self.active is not None else ["output cleared"]

    def _end(self, status: str) -> list[str]:
        one, self.active = self.active, None
        assert one is not None
        self.over, self.held = 0, self.held + 1
        self.items = [item for item in self.items if one.spoken or item[0] != one.name]
        return [f"{one.name} {status}"]

    def say(self, name: str, words: str, previous: str | None) -> list[str]:
        """A text is an item where the client wants it, and a turn that nobody has answered (G6; WIRE 7.2)."""
        if previous not in (None, "root", *self.order) or name in self.order:
            return ["error " + ("item_already_exists" if name in self.order else "item_not_found")]
        names = [item for item, _ in self.items]
        at = len(names) if previous is None else 0 if previous == "root" else names.index(previous) + 1
        at += names[at:] != [] and names[at] not in self.order  # an answer that opened there comes first
        self.items.insert(at, (name, words))
        self.unanswered.add(name)
        return [f"item {name}"]

    def delete(self, name: str) -> list[str]:
        """What is deleted is in no prompt and is not played; what is being said cannot be (I21, J8)."""
        one = self.find(name)
        if name not in self.order or (one is not None and one is self.active):
            return ["error " + ("item_in_progress" if name in self.order else "item_not_found")]
        if one is not None:
            one.text, one.sent, one.started = "", 0, None
        self.items = [item for item in self.items if item[0] != name]
        self.unanswered, self.deferred = self.unanswered - {name}, self.deferred - {name}
        return [f"deleted {name}"]

    def append(self, frames: int, speech: bool) -> list[str]:
        """Sound is judged over an answer: rows 12, 14, 16, 17 of F15; and kept if somebody speaks (F5-F7, F11)."""
        busy, begins = self.active is not None or self.playing, self.vad and speech and not self.speaking
        spoken, opened = speech or self.speaking, self.spoken > 0
        told = ["speech started"] if begins and not opened else []
        if busy and begins:
            told += ["overlap barge_in server_vad_speech_started", *self._cancel()]
        elif busy:
            listens = "server_vad_utterance_active" if self.vad else "policy_listen_only"
            told += [f"overlap listen {listens}" if spoken else "overlap drop silence_or_noise"]
        told += ["speech started"] if spoken and not (begins or opened) else []
        self.silence = self.silence or not spoken
        self.spoken += frames * 32 * spoken
        self.over += frames * 32 * (spoken and busy and not begins)  # F18
        self.speaking, self.quiet = self.speaking or begins, 0 if speech else self.quiet + frames
        return told + (self._commit(wanted=True, asked=False) if self.speaking and self.quiet >= 10 else [])

    def commit(self, create: bool | None) -> list[str]:
        """By the client's word (E30, E34, E37; WIRE 2.3)."""
        if self.spoken:
            return self._commit(wanted=create is True, asked=create is True)
        silence, self.silence = self.silence, False
        return ["committed silence" if silence else "error input_audio_buffer_empty"]

    def _commit(self, *, wanted: bool, asked: bool) -> list[str]:
        """A turn: an item, and an answer if that is wanted; or only a nod to the speaker (F19-F22)."""
        busy, name = self.blocked, f"sound {self.sounds + 1}"
        nods = not asked and busy and self.over > 0 and max(self.over, self.spoken) <= SHORT_ACK_MS
        if wanted and not nods and len(self.deferred) >= self.pending:
            return ["error input_backpressure"]
        self._forget()
        if nods:
            return ["speech stopped", "committed acknowledgement"]
        self.sounds, self.items = self.sounds + 1, [*self.items, (name, f"({name})")]
        self.unanswered.add(name)
        self.deferred |= {name} if wanted and busy else set()
        return ["speech stopped", "committed", f"item {name}", *(self._open() if wanted and not busy else [])]

    def _forget(self) -> None:
        self.silence, self.spoken, self.over, self.speaking, self.quiet = False, 0, 0, False, 0

    def clear(self) -> list[str]:
        """Input is dropped, and with it the turns that wait (E28, F23); nothing else is touched (G37)."""
        self._forget()
        self._call_off()
        return ["cleared"]

    def respond(self) -> list[str]:
        """The first row of G6 that fits."""
        if self.blocked or not self.unanswered:
            return ["error response_" + ("already_active" if self.blocked else "create_without_input")]
        return self._open()

    def cancel(self, name: str | None) -> list[str]:
        """It needs a response, and spares the input (G30, G31; WIRE 2.7)."""
        known = self.active is not None and name in (None, self.active.name)
        return self._cancel() if known else ["error response_not_active"]

    def barge_in(self) -> list[str]:
        """It drops the input too, with its epoch (G30; WIRE 2.16)."""
        sound, told = self.spoken > 0 or (self.vad and self.silence), self._cancel()
        self._forget()
        self.epoch += sound and not told
        return told or ["cleared"]

    def ack(self, name: str | None, ms: int) -> list[str]:
        """The cursor grows; of the named one, else of the only one that waits, else of the active (I6-I7, I16)."""
        there = [one for one in self.answers if one is self.active or one.name in self.order]
        waiting = [one for one in there if one is not self.active and one.cap is None and one.committed < one.sent]
        meant = [one for one in there if one.name == name]
        meant = meant if name is not None else waiting if len(waiting) == 1 else there
        if not meant:
            return ["error playback_item_not_found"]
        one = meant[-1]
        one.committed, one.acked_at = max(one.committed, min(ms, one.limit(self.now))), self.now
        one.cap = None if one.cap is None else one.committed
        return [f"acknowledged {one.name} {one.committed}", *self._promote()]

    def truncate(self, name: str, ms: int) -> list[str]:
        """A cap, which only ever goes down, and the cursor with it (I15, I16)."""
        one = self.find(name)
        if one is None or not 0 <= ms <= one.sent:
            return ["error " + ("bad_event" if name in self.order else "item_not_found")]
        one.cap = one.committed = min(ms, one.limit(self.now))
        one.guessed = None
        return [f"truncated {name} {one.cap}", *self._promote()]

    def produce(self, name: str, words: str, ms: int) -> list[str]:
        """What comes for an answer that is over is silent (DESIGN 3)."""
        one = self.active
        if one is None or one.name != name:
            return []
        told = [] if one.spoken else [f"item {name}"]
        one.acked_at = one.acked_at if one.spoken or one.acked_at is None else self.now
        if ms and one.started is None and self.attached:
            one.started = self._behind()
        one.spoken, one.text, one.sent = True, one.text + words, one.sent + ms
        return told

    def finish(self, name: str, status: str = "completed") -> list[str]:
        """Turns behind a complete answer have theirs; behind one that failed they must be asked for (F22-F23)."""
        one = self.active
        if one is None or one.name != name:
            return []
        if status == "completed":
            return [*self._end(status), *(self._open() if self.deferred else [])]
        self.deferred = set()
        return ["error engine_error" if one.spoken else "error runtime_append_failed", *self._end(status)]

    def release(self) -> list[str]:
        """The stage has forgotten a request that it was told to."""
        self.held -= 1
        return self._closed()
