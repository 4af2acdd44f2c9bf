"""The clients of a world that come over a wire: what they send, what they have seen, how they come back."""

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pybase64
from msgspec import Struct, field

from antiphon.events import ids

from .net import Line
from .script import Step

if TYPE_CHECKING:
    from .world import World

FRAME = 1024
LOUD = b"\x10\x27" * 512
QUIET = b"\0\0" * 512

VADS: tuple[object, ...] = (
    None,
    {"type": "server_vad", "silence_duration_ms": 320, "min_speech_duration_ms": 64},
    {"type": "server_vad", "silence_duration_ms": 96, "interrupt_response": False},
    {"type": "server_vad", "silence_duration_ms": 0, "create_response": False},
    {"type": "server_vad", "silence_duration_ms": 96, "idle_timeout_ms": 5000},
    {"type": "semantic_vad", "eagerness": "high"},
    {"type": "semantic_vad", "eagerness": "low", "interrupt_response": False},
)
PATCHES: tuple[dict[str, object], ...] = (
    {"instructions": "Be brief."},
    {"tools": [{"type": "function", "name": "look"}], "tool_choice": "auto"},
    {"output_modalities": ["text"]},
    {"output_modalities": ["audio"]},
    {"voice": "alloy"},
    {"voice": "nobody"},
    {"speed": 9},
    {"extra_body": {"auto_response": True}},
    {"extra_body": {"auto_response": False}},
    {"output_audio_format": "g711_ulaw"},
    {"input_audio_format": "g711_ulaw"},
    {"input_audio_format": "pcm16", "sample_rate_hz": 16000},
    {"input_audio_format": "pcm16", "sample_rate_hz": 24000},
    *({"turn_detection": vad} for vad in VADS),
    {"overlap_policy": "barge_in_on_speech"},
    {"idle_timeout_s": 20},
)
JUNK = (
    b"{",
    b"[]",
    b'{"type":"no.such.event"}',
    b'{"type":"input_audio_buffer.append","audio":"!"}',
    b'{"type":"input_audio_buffer.append","audio":"AA=="}',
    b'{"type":"conversation.item.truncate","item_id":"none","audio_end_ms":5}',
    b'{"type":"response.create","response":{"output_modalities":["smell"]}}',
    b'{"type":"session.event_ack","server_event_seq":1000000}',
    b'{"type":"input_audio_buffer.append"}',
    b'{"type":"session.resume","session_id":"x","resume_token":"y"}',
)
SIGNALS = ("user_started", "user_committed", "assistant_started", "assistant_done", "playback_ack", "nonsense")
OVERLAPS = ("barge_in", "listen", "continue", "drop")

_encode = msgspec.json.Encoder().encode


class Shown(Struct):
    """As much of a server's message as a client of a world needs."""

    type: str
    event_id: str = ""
    server_event_seq: int = 0
    response_id: str | None = None
    item_id: str | None = None
    item: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    session: dict[str, Any] | None = None
    session_id: str | None = None
    resume_token: str | None = None
    observer_token: str = ""
    attachment_generation: int = 0
    last_client_seq: int = 0
    resumed: bool = False
    error: dict[str, Any] | None = None
    audio_duration_ms: float = 0
    reason: str | None = None
    delta: str | None = None


_decode = msgspec.json.Decoder(Shown).decode


def sound(frames: int, loud: bool, odd: int = 0, stamp: int = 0) -> str:
    """Return so many frames of sound as the wire has it; `stamp` tells one append from another."""
    data = (LOUD if loud else QUIET) * frames + LOUD[: 2 * odd]
    return pybase64.b64encode_as_string(stamp.to_bytes(4, "little") + data[4:])


class Ledger(Struct):
    """What one client has seen and sent of one session, over all its connections."""

    session: str = ""
    token: str = ""
    observer: str = ""
    """What opens it to those who only read."""
    attachment: int = 0
    last: int = 0
    event: str = ""
    """The id of the last event on the newest connection: all that a client without numbers keeps."""
    forgiven: bool = False
    """It was told that what it missed is gone."""
    seen: dict[int, bytes] = field(default_factory=dict[int, bytes])
    responses: list[str] = field(default_factory=list[str])
    sent_ms: dict[str, float] = field(default_factory=dict[str, float])
    items: list[str] = field(default_factory=list[str])
    spoken: dict[str, str] = field(default_factory=dict[str, str])
    calls: list[str] = field(default_factory=list[str])
    seq: int = 0
    unsent: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    """Counted commands that the server has not confirmed."""
    sent: list[bytes] = field(default_factory=list[bytes])
    """The last counted commands, confirmed or not."""
    over: bool = False
    dialled: list[int] = field(default_factory=list[int])
    """Connections that asked to resume, since one was told that it has."""


_NOBODY = Ledger()


class Peer:
    """A client over a websocket."""

    def __init__(self, world: "World", who: int, dialect: str) -> None:
        self.world = world
        self.who = who
        self.dialect = dialect
        self.returns = dialect == "duplex" or (who + world.script.seed) % 2 == 0
        """Whether it comes back to its session; a client without numbers does that by the address."""
        self.counts = bool(who & 1) or (dialect == "duplex" and world.script.seed % 3 == 0)
        self.book = Ledger()
        self.lines: list[Line] = []
        self._books: dict[int, Ledger] = {}
        self._asked: dict[int, str] = {}
        """The last event that a connection was dialled with."""
        self.ready: set[int] = set()
        """Connections that were told that they have the session."""

    @property
    def line(self) -> Line | None:
        """The newest connection, if it stands."""
        return self.lines[-1] if self.lines and not self.lines[-1].ended else None

    def book_of(self, line: Line) -> Ledger:
        """Return what was seen of the session that a connection serves."""
        return self._books.get(id(line), _NOBODY)

    # -- connecting ------------------------------------------------------------------------------------------

    def connect(self, step: Step) -> None:
        """Open a session, come back to the one that there is, or bring somebody who reads along."""
        if self.line is not None and (step.a % 4 or not self.line.silent):
            if self.book.observer and step.b % 3 == 0:
                self._observe(self.book.last if step.c % 2 else 0)
            return
        self._dial(step)

    def again(self, step: Step) -> None:
        """Connect although the last connection stands."""
        self._dial(step)

    def race(self, step: Step) -> None:
        """Connect twice at once."""
        self._dial(step)
        self._dial(step)
        self.world.saw("two resumes race")

    def _dial(self, step: Step) -> None:
        book = self.book
        if book.over:
            book = self.book = Ledger()
        resumes = self.returns and bool(book.token)
        if self.dialect == "duplex":
            path, headers = "/v1/realtime?duplex=1&model=m&autostart=0", ""
        else:
            path, headers = "/v1/realtime?model=m", "OpenAI-Beta: realtime=v1\r\n" if self.dialect == "beta" else ""
            if self.returns:
                path += "&resumable=1"
            if resumes:
                path += f"&session_id={book.session}&resume_token={book.token}&last_event_id={book.event}"
            else:
                self.book = Ledger()
        line = self.world.dial(self, path, headers)
        if line is None:
            return
        self.lines.append(line)
        self._books[id(line)] = self.book if resumes else Ledger()
        if resumes:
            book.dialled.append(id(line))
            self._asked[id(line)] = book.event
        if resumes and self.dialect == "duplex":
            line.send(self._resume(book.token, book.last))
        elif self.dialect == "duplex":
            line.send(_encode({"type": "session.update", "session": self._opening(step)}))

    def _detection(self, step: Step) -> object:
        """Choose a turn detection; in half of them speech over an answer has to prove itself (DESIGN 5.13)."""
        chosen = VADS[step.a % len(VADS)]
        careful = self.dialect == "duplex" and step.b % 2 == 0
        return {**chosen, "false_interruption": True} if careful and isinstance(chosen, dict) else chosen

    def _opening(self, step: Step) -> dict[str, object]:
        opening: dict[str, object] = {
            "turn_detection": self._detection(step),
            "extra_body": {"auto_response": step.b % 3 == 0},
        }
        if step.c % 5 == 0:
            opening["playback_commit_policy"] = "commit_all_on_done"
        if step.c % 7 == 0:
            opening["output_modalities"] = ["text"]
        if step.c % 11 == 0:
            opening["idle_timeout_s"] = 5
        if step.c % 13 == 0:
            opening["initial_user_text"] = "Sing."
        return opening

    def _resume(self, token: str, last: int) -> bytes:
        asked = {
            "type": "session.resume",
            "session_id": self.book.session,
            "resume_token": token,
            "last_received_server_event_seq": last,
        }
        return _encode(asked)

    def forge(self, step: Step) -> None:
        """Somebody else tries to take the session, without its token or from the future; or only reads it."""
        if self.book.observer and step.b % 2:
            self._observe(self.book.last if step.c % 2 else 0)
            return
        if self.dialect != "duplex" or not self.book.token:
            return
        line = self.world.dial(_Stranger(), "/v1/realtime?duplex=1&model=m&autostart=0", "")
        if line is not None:
            last = self.book.last + 1000 if step.a % 2 else self.book.last
            line.send(self._resume(self.book.token if step.a % 2 else "x" * 43, last))
            self.world.saw("a resume with a wrong token or number")

    def _observe(self, last: int) -> None:
        """Let somebody read along who has no say, from behind a number."""
        book = self.book
        path = f"/v1/realtime?observe={book.session}&observer_token={book.observer}"
        watcher = _Watcher(self.world, book.session, last)
        line = self.world.dial(watcher, f"{path}&last_received_server_event_seq={last}", "")
        if line is not None:
            line.send(b'{"type":"session.close"}')

    # -- what it hears ---------------------------------------------------------------------------------------

    def on_message(self, line: Line, data: bytes) -> None:
        """Take a message, and hold it against what was seen before."""
        shown = _decode(data)
        self.world.heard(self, line, shown, data)
        if shown.type == "session.created" and shown.session is not None and not shown.resumed:
            name, token = str(shown.session["id"]), shown.resume_token or ""
            self.book = Ledger(session=name, token=token, observer=shown.observer_token)
            self._books[id(line)] = self.book
            self.ready.add(id(line))
        book = self.book_of(line)
        match shown.type:
            case "session.resumed" | "session.created" if shown.type == "session.resumed" or shown.resumed:
                if shown.attachment_generation > book.attachment:
                    book.attachment, book.token = shown.attachment_generation, shown.resume_token or ""
                    book.observer = shown.observer_token
                self.ready.add(id(line))
                self._send_again(line, shown.last_client_seq)
            case "session.closed" | "session.expired":
                book.over = True
            case "session.replaced":
                line.replaced = True
            case "session.resync_required":
                book.forgiven = True
            case "response.created" if shown.response is not None:
                book.responses.append(str(shown.response["id"]))
            case "response.output_audio.delta" | "response.audio.delta" if shown.response_id is not None:
                book.sent_ms[shown.response_id] = max(shown.audio_duration_ms, 100)
                if shown.item_id is not None:
                    book.spoken[shown.item_id] = shown.response_id
            case "conversation.item.added" | "conversation.item.created" if shown.item is not None:
                book.items.append(str(shown.item["id"]))
                if shown.item.get("type") == "function_call":
                    book.calls.append(str(shown.item.get("call_id")))
            case "response.output_item.done" if shown.item is not None:
                if shown.item.get("type") == "function_call":
                    book.calls.append(str(shown.item.get("call_id")))
            case _:
                pass
        if shown.server_event_seq:
            book.last = max(book.last, shown.server_event_seq)
        if line is self.lines[-1] and shown.type != "error":
            book.event = shown.event_id

    def judge(self, line: Line, shown: Shown) -> None:
        """Whoever was never told that it has the session may present its token again (P51)."""
        book = self.book_of(line)
        if shown.resumed:
            asked = ids.last_seen(self._asked[id(line)]) or ids.FIRST
            assert ids.last_seen(shown.event_id) == asked, "P49: it goes on elsewhere than it was asked to"
            self.world.saw("a client without numbers came back")
        if shown.type == "session.resumed" or shown.resumed:
            book.dialled.clear()
        elif shown.type == "error" and shown.error is not None and id(line) in book.dialled:
            book.dialled.remove(id(line))
            assert shown.error.get("code") != "invalid_resume_token", "P51: the token was used up unheard"

    def _send_again(self, line: Line, last: int) -> None:
        book = self.book
        book.unsent = [(seq, data) for seq, data in book.unsent if seq > last]
        book.seq = max(book.seq, last)
        if self.who & 1:  # who does not trust the number sends more than it has to: it does not count (5.9)
            for data in book.sent:
                line.send(data)
                self.world.saw("a command sent twice")
        book.sent = [data for _, data in book.unsent]
        for data in book.sent:
            line.send(data)
        if book.unsent:
            self.world.saw("commands sent again after a resume")

    def on_closed(self, line: Line, code: int | None) -> None:
        """A connection is over."""
        if not self.returns:
            self.book_of(line).over = True

    # -- what it says ----------------------------------------------------------------------------------------

    def say(self, kind: str, **fields: object) -> None:
        """Send an event on the newest connection."""
        line = self.line
        if line is None:
            return
        body: dict[str, object] = {"type": kind, **fields}
        ready = id(line) in self.ready
        if not ready and self.book_of(line) is self.book:
            return  # who comes back waits until it is told that it has the session: else its token is used up
        if self.counts and self.returns:
            if not ready:
                return  # the session does not stand yet: what is counted would be lost with its opening
            self.book.seq += 1
            body["client_seq"] = self.book.seq
            body["event_id"] = f"c{self.book.seq}"
            data = _encode(body)
            self.book.unsent.append((self.book.seq, data))
            self.book.sent.append(data)
            del self.book.unsent[:-200], self.book.sent[:-4]
        else:
            data = _encode(body)
        line.send(data)

    def append(self, step: Step, *, loud: bool = False) -> None:
        """Send sound."""
        frames = (1, 2, 4, 12)[step.a % 4]
        fields: dict[str, object] = {
            "audio": sound(frames, loud or step.b % 3 == 0, step.c % 5 * 37, self.world.at)
        }
        if step.b % 11 == 0:
            fields["overlap_action"] = OVERLAPS[step.b % 4]
        if step.b % 13 == 0:
            fields["is_speech"] = bool(step.b & 64)
        if step.b % 17 == 0:
            fields["transcript"] = ("Yes.", "No, wait.", "mhm")[step.c % 3]
        if step.b % 29 == 0:
            fields["force_listen"] = True
        if step.b % 31 == 0:
            fields["force_barge_in"] = True
        self.say("input_audio_buffer.append", **fields)

    def speak(self, step: Step) -> None:
        """Send speech, and maybe the silence behind it."""
        self.append(step, loud=True)
        if step.c % 2:
            self.say("input_audio_buffer.append", audio=sound(12, False, 0, self.world.at))

    def cough(self, step: Step) -> None:
        """Make a noise that is soon over."""
        self.say("input_audio_buffer.append", audio=sound(2 + step.a % 6, True, 0, self.world.at))
        self.say("input_audio_buffer.append", audio=sound(12, False, 0, self.world.at))

    def drone(self, step: Step) -> None:
        """Make a noise that does not end for seconds."""
        for _ in range(2 + step.a % 2):
            self.say("input_audio_buffer.append", audio=sound(40, True, 0, self.world.at))

    def stutter(self, step: Step) -> None:
        """Say two things in one append: an utterance ends in it, and another begins."""
        data = self.world.at.to_bytes(4, "little") + (LOUD * 4 + QUIET * 14 + LOUD * (1 + step.a % 5))[4:]
        self.say("input_audio_buffer.append", audio=pybase64.b64encode_as_string(data))

    def ask(self, step: Step) -> None:
        """Write something, and want an answer."""
        self.text(step)
        self.respond(step)

    def commit(self, step: Step) -> None:
        """Seal the input."""
        wanted = (None, None, True, False)[step.a % 4]
        self.say("input_audio_buffer.commit", **({} if wanted is None else {"create_response": wanted}))

    def clear(self, _step: Step) -> None:
        """Drop the input."""
        self.say("input_audio_buffer.clear")

    def cancel_input(self, _step: Step) -> None:
        """Drop the input and stop."""
        self.say("input.cancel")

    def text(self, step: Step) -> None:
        """Write an item."""
        part = {"type": "input_text", "text": "Hello." * (1 + step.a % 3)}
        item: dict[str, object] = {"type": "message", "role": "user", "content": [part]}
        if step.b % 5 == 0:
            item["id"] = f"mine_{step.b % 7}"
        if step.b % 9 == 0:
            item = {"type": "message", "role": "system", "content": [part]}
        fields: dict[str, object] = {"item": item}
        if step.c % 6 == 0:
            fields["previous_item_id"] = self._item(step)
        self.say("conversation.item.create", **fields)

    def respond(self, step: Step) -> None:
        """Ask for an answer."""
        if step.a % 4 == 0:
            self.say("response.create", response={"instructions": "Say hello.", "output_modalities": ["text"]})
        else:
            self.say("response.create")

    def aside(self, step: Step) -> None:
        """Ask for an answer out of band."""
        self.say("response.create", response={"conversation": "none", "metadata": {"n": str(step.a % 3)}})

    def cancel(self, step: Step) -> None:
        """Stop an answer."""
        self.say("response.cancel", **({} if step.a % 2 else {"response_id": self._response(step)}))

    def barge_in(self, _step: Step) -> None:
        """Cut in."""
        self.say("barge_in")

    def clear_output(self, step: Step) -> None:
        """Stop playing."""
        self.say("output_audio_buffer.clear", **({} if step.a % 2 else {"response_id": self._response(step)}))

    def truncate(self, step: Step) -> None:
        """Say how much was heard."""
        spoken = list(self.book.spoken)
        item = spoken[-1 - step.a % min(len(spoken), 3)] if spoken else "item_none"
        self.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=step.b % 1500)

    def delete(self, step: Step) -> None:
        """Take an item out."""
        self.say("conversation.item.delete", item_id=self._item(step))

    def retrieve(self, step: Step) -> None:
        """Ask for an item."""
        self.say("conversation.item.retrieve", item_id=self._item(step))

    def ack(self, step: Step) -> None:
        """Tell how far was played."""
        response = self._response(step)
        sent = self.book.sent_ms.get(response or "", 1000)
        played = (0, sent / 2, sent, sent, 10**7)[step.b % 5]
        fields: dict[str, object] = {"played_ms": played}
        if step.c % 3:
            fields["response_id"] = response
        if step.c % 7 == 0:
            fields["committed_ms"] = played / 2
        if step.c % 11 == 0:
            fields["truncate"] = True
        self.say("playback.ack", **fields)

    def event_ack(self, step: Step) -> None:
        """Confirm what was received."""
        line = self.line
        if line is not None and id(line) in self.ready and self.dialect == "duplex":
            number = self.book.last if step.a % 3 else self.book.last // 2
            line.send(_encode({"type": "session.event_ack", "server_event_seq": number}))

    def update(self, step: Step) -> None:
        """Change the configuration."""
        patch = PATCHES[step.a % len(PATCHES)]
        if "turn_detection" in patch:
            patch = {"turn_detection": self._detection(step)}
        self.say("session.update", session=patch)

    def write(self, step: Step) -> None:
        """Write into the turn."""
        self.say("input.text.append", text="And this. " * (1 + step.a % 3))

    def signal(self, step: Step) -> None:
        """Tell what is seen of the turn."""
        self.say("turn.signal", event=SIGNALS[step.a % len(SIGNALS)])

    def output(self, step: Step) -> None:
        """Give the output of a call."""
        calls = self.book.calls
        call = calls[-1 - step.a % min(len(calls), 3)] if calls else "call_none"
        item = {"type": "function_call_output", "call_id": call, "output": "42"}
        self.say("conversation.item.create", item=item)

    def heartbeat(self, _step: Step) -> None:
        """Renew the lease."""
        self.say("session.heartbeat")

    def junk(self, step: Step) -> None:
        """Send what means nothing."""
        line = self.line
        if step.b % 23 == 0 and self.counts and line is not None and id(line) in self.ready:
            ahead = self.book.seq + 2
            line.send(_encode({"type": "session.heartbeat", "client_seq": ahead, "event_id": f"c{ahead}"}))
        if line is not None and (id(line) in self.ready or self.book_of(line) is not self.book):
            line.send(JUNK[step.a % len(JUNK)], 2 if step.b % 9 == 0 else 1)

    def close(self, _step: Step) -> None:
        """End the session."""
        self.say("session.close")

    # -- what happens to its connections ---------------------------------------------------------------------

    def drop(self, _step: Step) -> None:
        """Lose the connection."""
        if self.line is not None:
            self.line.drop()
            self.world.fault("connection lost")

    def vanish(self, _step: Step) -> None:
        """The connection stands, and nothing arrives any more."""
        if self.line is not None:
            self.line.vanish()
            self.world.fault("connection half open")

    def give_up(self, step: Step) -> None:
        """Hold the connection to be over, without telling the other side."""
        line = self.line
        if line is not None and (line.silent or step.a % 4 == 0):
            line.vanish()
            line.end()
            self.world.fault("client gave its connection up")

    def stop_reading(self, _step: Step) -> None:
        """Read no more."""
        if self.line is not None:
            self.line.stop_reading(True)
            self.world.fault("client stops reading")

    def read_on(self, _step: Step) -> None:
        """Read on."""
        for line in self.lines:
            line.stop_reading(False)

    def leave(self) -> None:
        """End: read what there is, and close what stands."""
        for line in self.lines:
            if not line.ended:
                line.stop_reading(False)
                if line is self.line and not line.silent:
                    line.send(_encode({"type": "session.close"}))

    def _item(self, step: Step) -> str:
        items = self.book.items
        return items[-1 - step.a % min(len(items), 6)] if items else "item_none"

    def _response(self, step: Step) -> str | None:
        known = self.book.responses
        return known[-1 - step.a % min(len(known), 3)] if known else "resp_none"


class _Watcher:
    """Reads along, and is given every message once, as the client is; what it says changes nothing."""

    def __init__(self, world: "World", session: str, last: int) -> None:
        self.world = world
        self.session = session
        self.last = last
        self.heard = 0

    def on_message(self, line: Line, data: bytes) -> None:
        shown = _decode(data)
        self.heard += 1
        if shown.type == "session.created":
            assert self.heard == 1, "an observer is shown the session first"
            assert not shown.resume_token, "D21: an observer is given the token"
            assert not shown.observer_token, "D21: an observer is given its token again"
            self.world.saw("an observer")
        elif shown.type == "error" and not shown.server_event_seq:
            assert shown.error is not None
            assert shown.error.get("code") in _TO_OBSERVERS, f"an observer is told {shown.error}"
        else:
            self._number(shown, data)

    def _number(self, shown: Shown, data: bytes) -> None:
        number = shown.server_event_seq
        assert number == self.last + 1, f"P49: an observer is given {number} behind {self.last}"
        self.last = number
        wire = self.world.wires.get(self.session)
        if wire is not None:
            assert wire.log is None or number <= wire.log.durable, "P3: told before it was durable"
            if shown.delta != "":
                text = zlib.crc32(data)
                assert wire.texts.setdefault(number, text) == text, f"P49: an observer's {number} is another one"

    def on_closed(self, line: Line, code: int | None) -> None:
        pass


_TO_OBSERVERS = (
    "observer_is_read_only",
    "invalid_observer_token",
    "resource_exhausted",
    "storage_unavailable",
    "stage_unavailable",
    "going_away",
    "timeout",
    "internal_error",
    "engine_dead",
)


class _Stranger:
    """Somebody who is told no."""

    def on_message(self, line: Line, data: bytes) -> None:
        kind = _decode(data).type
        assert kind in ("error", "session.resync_required"), f"P51: {kind} for a stranger"

    def on_closed(self, line: Line, code: int | None) -> None:
        pass
