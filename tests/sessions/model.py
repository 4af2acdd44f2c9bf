"""A session of turns as its contract has it: what a client and a stage may expect of it, in a few plain values.

It is made of the rules' words and shares no code with the core; `test_model` holds the two to one another. Commands
return what is told, in order, in words; answers are numbered as they open. Times are in µs, sound is in ms.
"""

from dataclasses import dataclass, field
from typing import Literal

MS, FOR_GOOD = 1_000, -1
SHORT_ACK_MS, CLOSING_US, CORRECTION_US = 700, 2_000_000, 5_000_000


@dataclass(eq=False)
class Item:
    """A turn of the user, which is all words, or an answer, and how much of it was heard."""

    name: str
    text: str = ""
    spoken: bool = True  # an answer has its place when it opens, and is there when it speaks (I10)
    sent: int = 0
    came: int = 0  # what of it was sent while somebody was connected
    started: int | None = None  # when its sound began to play, if anybody listens
    acked_at: int | None = None
    committed: int = 0
    cut: int | None = None  # its sound ends at what is committed: until when that may be corrected, or FOR_GOOD

    def heard(self, now: int) -> int:
        """First a cut or an acknowledgement, then the time since it began to play (5.10)."""
        if self.cut is not None or self.acked_at is not None or self.started is None:
            return self.committed
        return max(0, min((now - self.started) // MS, self.came))

    def plays(self, now: int) -> bool:
        """Whoever stops to acknowledge is believed to have played the rest after twice its length (5.3)."""
        rest = self.sent - self.heard(now) if self.cut is None else 0
        return rest > 0 and (self.acked_at is None or now < self.acked_at + 2 * rest * MS)

    def limit(self, now: int) -> int:
        """A cut is for good, but for an estimate, which may be corrected for a while (I16, 5.10)."""
        return self.sent if self.cut is None or now <= self.cut else self.committed

    def history(self, policy: str) -> str:
        """Its words in later prompts, by its sound, and no half of a word (I1-I3, I8, I16, I17; WIRE 6.7)."""
        every = policy != "ack_only" and not 0 < self.committed < self.sent
        if (every or not self.sent) and self.cut is None:
            return self.text
        chars = self.committed * len(self.text) // max(1, self.sent)
        return f"{self.text} "[: chars + 1].rpartition(" ")[0]


@dataclass
class Model:
    """A duplex session by turns. `vad`: a detector, of frames of 32 ms, ends them, and speech interrupts."""

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
    active: Item | None = None
    answers: list[Item] = field(default_factory=list[Item])  # all that ever opened
    items: list[Item] = field(default_factory=list[Item])
    turns: dict[str, bool] = field(default_factory=dict[str, bool])  # not answered yet; whether they wait for it
    sounds: int = 0
    silence: bool = False  # was sent and not committed
    spoken: int = 0  # speech that was; for the detector, an utterance is open
    over: int = 0  # what of it lay over answers
    quiet: int = 0  # frames of silence in it, by now

    @property
    def playing(self) -> bool:
        """Whether the newest answer with sound is still to be heard: then all before it have been (I19)."""
        newest = next((one for one in reversed(self.answers) if one.sent and one.cut is None), None)
        return newest is not None and newest.plays(self.now)

    @property
    def blocked(self) -> bool:
        """The next answer must wait (G2, I19)."""
        return self.active is not None or (self.policy == "ack_only" and self.playing)

    @property
    def order(self) -> list[str]:
        return [one.name for one in self.items if one.spoken]

    @property
    def prompt(self) -> list[str]:
        """What the next answer will be shown, but for what the active one says until then."""
        return [words for one in self.items if one is not self.active and (words := one.history(self.policy))]

    def find(self, name: str) -> Item | None:
        return next((one for one in self.items if one.spoken and one.name == name), None)

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
        told = ["detached"] if self.attached else []
        self.attached, self.unheard, self.since = False, False, self.now if told else self.since
        return told

    def resume(self, good: bool) -> list[str]:
        """Lease, attachment and token change together (D22, D23); what was not heard plays on."""
        if self.phase != "open" or not good:
            return ["refused " + ("invalid_resume_token" if self.phase == "open" else "session_resume_expired")]
        self._play()
        self.generation += 1
        self.attached, self.unheard, self.since = True, True, self.now
        return ["resumed"]

    def _play(self) -> None:
        """Sound that somebody gets begins behind what still plays (I14), or goes on for one who comes back."""
        for one in self.answers:
            if not self.attached:
                heard = one.heard(self.now)
                one.started = self.now - heard * MS if heard else None
            playing = [other for other in self.answers if other.cut is None and other.committed < other.sent]
            if one.sent and one.cut is None and one.started is None:
                ends = [other.started + other.sent * MS for other in playing if other.started is not None]
                one.started = max([self.now, *ends])
            one.came = one.sent

    def close(self, *, expired: bool = False) -> list[str]:
        """Its answers end, with a word if anybody hears it (M14); then it does, with its stages or in 2 s (M4)."""
        if self.phase != "open":
            return []
        self.phase, self.since = "closing", self.now
        told = self._cancel()
        return ([] if expired or told == ["output cleared"] else told) + self.tick()

    def tick(self) -> list[str]:
        """A deadline may have passed: of the end, the grace, an activation, or of what blocks turns (F22, E40)."""
        late = self.now - self.since
        if self.phase == "open" and not self.attached and late >= self.grace_ms * MS:
            return self.close(expired=True)
        if self.phase == "open" and self.unheard and late >= self.activation_ms * MS:
            self.detach(self.generation)
            return ["withdrawn"]
        if self.phase == "closing" and (not self.held or late >= CLOSING_US):
            self.phase = "closed"
            return ["closed"]
        return self._open() if self.phase == "open" and any(self.turns.values()) and not self.blocked else []

    def _open(self) -> list[str]:
        self.active = Item(f"answer {len(self.answers) + 1}", spoken=False)
        self.answers, self.items = [*self.answers, self.active], [*self.items, self.active]
        self.turns = {}
        return ["created"]

    def _cancel(self) -> list[str]:
        """What is generated or played ends at what was heard by now, and no turn waits (F23, G30, G34, I17)."""
        if self.active is None and not self.playing:
            return []
        self.epoch += self.phase == "open"
        self.turns = {name: waits for name, waits in self.turns.items() if not waits}
        for one in self.answers:
            if one.sent and one.cut is None and (one is self.active or one.plays(self.now)):
                one.committed = one.heard(self.now)
                one.cut = self.now + CORRECTION_US if one.acked_at is None else FOR_GOOD
        return self._end(self.active, "cancelled") if self.active is not None else ["output cleared"]

    def _end(self, one: Item, status: str) -> list[str]:
        self.active, self.over, self.held = None, 0, self.held + 1
        self.items = [kept for kept in self.items if kept.spoken]
        return [f"{one.name} {status}"]

    def say(self, name: str, words: str, previous: str | None) -> list[str]:
        """A text is an item where the client wants it, and a turn that nobody has answered (G6; WIRE 7.2)."""
        if previous not in (None, "root", *self.order) or name in self.order:
            return ["error " + ("item_already_exists" if name in self.order else "item_not_found")]
        names = [one.name for one in self.items]
        at = len(names) if previous is None else 0 if previous == "root" else names.index(previous) + 1
        at += at < len(names) and not self.items[at].spoken  # an answer that opened there comes first
        self.items.insert(at, Item(name, words))
        self.turns[name] = False
        return [f"item {name}"]

    def delete(self, name: str) -> list[str]:
        """What is deleted is in no prompt and is not played; what is being said cannot be (I21, J8)."""
        if (one := self.find(name)) is None or one is self.active:
            return ["error " + ("item_not_found" if one is None else "item_in_progress")]
        one.text, one.sent, one.started = "", 0, None
        self.items.remove(one)
        self.turns.pop(name, None)
        return [f"deleted {name}"]

    def append(self, frames: int, speech: bool) -> list[str]:
        """Sound is judged over an answer: rows 12, 14, 16, 17 of F15; and kept if somebody speaks (F5-F7, F11)."""
        busy, begins = self.active is not None or self.playing, speech and not self.spoken
        speaks, told = speech or (self.vad and self.spoken > 0), ["speech started"] if begins else []
        if busy and begins and self.vad:
            told, busy = [*told, "overlap barge_in server_vad_speech_started", *self._cancel()], False
        elif busy:
            listens = "server_vad_utterance_active" if self.vad else "policy_listen_only"
            told = [f"overlap listen {listens}" if speaks else "overlap drop silence_or_noise", *told]
        self.silence, self.quiet = self.silence or not speaks, 0 if speech else self.quiet + frames
        self.spoken += frames * 32 * speaks
        self.over += frames * 32 * (speaks and busy)  # F18
        return told + (self.commit(True, detected=True) if self.vad and self.spoken and self.quiet >= 10 else [])

    def commit(self, create: bool | None, *, detected: bool = False) -> list[str]:
        """A turn: an item, and an answer if that is wanted; or only a nod (E30, E34, E37, F19-F22; WIRE 2.3)."""
        if not self.spoken:
            silence, self.silence = self.silence, False
            return ["committed silence" if silence else "error input_audio_buffer_empty"]
        busy, wanted, name = self.blocked, create is True, f"sound {self.sounds + 1}"
        nods = (detected or not wanted) and busy and self.over > 0 and self.spoken <= SHORT_ACK_MS
        if wanted and not nods and sum(self.turns.values()) >= self.pending:
            return ["error input_backpressure"]
        self._forget()
        if nods:
            return ["speech stopped", "committed acknowledgement"]
        self.sounds, self.items = self.sounds + 1, [*self.items, Item(name, f"({name})")]
        self.turns[name] = wanted and busy
        return ["speech stopped", "committed", f"item {name}", *(self._open() if wanted and not busy else [])]

    def _forget(self) -> None:
        self.silence, self.spoken, self.over, self.quiet = False, 0, 0, 0

    def clear(self) -> list[str]:
        """Input is dropped, and with it the turns that wait (E28, F23); nothing else is touched (G37)."""
        self._forget()
        self.turns = {name: waits for name, waits in self.turns.items() if not waits}
        return ["cleared"]

    def respond(self) -> list[str]:
        """The first row of G6 that fits."""
        if self.blocked or not self.turns:
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
        there = [one for one in self.answers if one in self.items and name in (None, one.name)]
        waiting = [one for one in there if one is not self.active and one.cut is None and one.committed < one.sent]
        meant = waiting if name is None and len(waiting) == 1 else there
        if not meant:
            return ["error playback_item_not_found"]
        one = meant[-1]
        one.committed, one.acked_at = max(one.committed, min(ms, one.limit(self.now))), self.now
        return [f"acknowledged {one.name} {one.committed}", *self.tick()]

    def truncate(self, name: str, ms: int) -> list[str]:
        """A cap, which only ever goes down, and the cursor with it (I15, I16)."""
        if (one := self.find(name)) is None or one not in self.answers or not 0 <= ms <= one.sent:
            return ["error " + ("bad_event" if one else "item_not_found")]
        one.cut, one.committed = FOR_GOOD, min(ms, one.limit(self.now))
        return [f"truncated {name} {one.committed}", *self.tick()]

    def produce(self, name: str, words: str, ms: int) -> list[str]:
        """What comes for an answer that is over is silent (DESIGN 3)."""
        if (one := self.active) is None or one.name != name:
            return []
        told = [] if one.spoken else [f"item {name}"]
        one.acked_at = one.acked_at if one.spoken or one.acked_at is None else self.now
        one.spoken, one.text, one.sent = True, one.text + words, one.sent + ms
        if self.attached:
            self._play()
        return told

    def finish(self, name: str, status: str = "completed") -> list[str]:
        """Turns behind a complete answer have theirs; behind one that failed they must be asked for (F22-F23)."""
        if (one := self.active) is None or one.name != name:
            return []
        if status == "completed":
            return [*self._end(one, status), *(self._open() if any(self.turns.values()) else [])]
        self.turns = dict.fromkeys(self.turns, False)
        return ["error engine_error" if one.spoken else "error runtime_append_failed", *self._end(one, status)]

    def release(self) -> list[str]:
        self.held -= 1
        return self.tick() if self.phase == "closing" else []
