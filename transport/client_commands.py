"""What a client can say to its session: one method for each command."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec
import pybase64
from msgspec import Raw, Struct

from . import wire_client as say
from .client_link import SessionOptions
from .wire_client import ClientEvent, ItemIn, PartIn


class InputFormat(Struct, frozen=True):
    """How sound is sent: its encoding by name, and samples a second."""

    encoding: str
    rate: int

    @property
    def width(self) -> int:
        """Bytes of a sample."""
        return 4 if self.encoding == "pcm_f32le" else 1 if self.encoding.startswith("g711") else 2


class Commands(ABC):
    """Commands are plain calls that never wait; each is applied exactly once, whatever happens to the socket.

    They raise `SessionLost` when the session cannot be reached any more, or too much waits for the server.
    """

    @abstractmethod
    def _send(self, event: ClientEvent) -> None: ...

    @property
    @abstractmethod
    def input_format(self) -> InputFormat:
        """The session's input format, as the server last confirmed it."""

    def append_audio(
        self,
        sound: bytes,
        *,
        encoding: str | None = None,
        rate: int | None = None,
        is_speech: bool | None = None,
        transcript: str | None = None,
        frames: Sequence[bytes] = (),
    ) -> None:
        """Send sound, and what the camera saw: at most two pictures, JPEG or PNG.

        Without `encoding` and `rate` (in Hz) it is in the format that the server last confirmed: an update of the
        session changes that when `session.updated` arrives, not when it is sent.
        """
        format_ = self._stated(encoding, rate) if sound else None
        self._send(
            say.AppendBuffer(
                audio=pybase64.b64encode_as_string(sound) if sound or not frames else None,
                video_frames=[pybase64.b64encode_as_string(frame) for frame in frames] or None,
                format=encoding if format_ is None else format_.encoding,
                sample_rate_hz=rate if format_ is None else format_.rate or None,
                is_speech=is_speech,
                transcript=transcript,
            )
        )

    def _stated(self, encoding: str | None, rate: int | None) -> InputFormat:
        """Return the format of sound, as it is said with it; a rate of 0 is the encoding's own."""
        here = self.input_format
        if encoding is None or encoding == here.encoding:
            return InputFormat(here.encoding, rate or here.rate)
        return InputFormat(encoding, rate or (0 if encoding.startswith("g711") else here.rate))

    def commit(self, *, create_response: bool | None = None) -> None:
        """Make what was said into a turn."""
        self._send(say.CommitBuffer(create_response=create_response))

    def clear_input(self) -> None:
        """Forget what was said and not committed."""
        self._send(say.ClearBuffer())

    def cancel_response(self, response_id: str | None = None) -> None:
        """Stop an answer."""
        self._send(say.ResponseCancel(response_id=response_id))

    def barge_in(self) -> None:
        """Say that the user has cut in."""
        self._send(say.BargeInNow())

    def clear_output(self, response_id: str | None = None) -> None:
        """Stop playing."""
        self._send(say.OutputClear(response_id=response_id))

    def create_item(self, item: ItemIn, *, previous_item_id: str | None = None) -> None:
        """Add an item to the conversation."""
        self._send(say.ItemCreate(item=item, previous_item_id=previous_item_id))

    def send_text(self, text: str) -> None:
        """Add what the user wrote."""
        self.create_item(ItemIn(type="message", role="user", content=[PartIn(type="input_text", text=text)]))

    def send_tool_output(self, call_id: str, output: object, *, create_response: bool = False) -> None:
        """Give the result of a function that the model called: text, or what becomes JSON.

        In a session whose model answers on its own the answer follows by itself; `create_response` asks for one.
        """
        text = output if isinstance(output, str) else _encode(output).decode()
        self.create_item(ItemIn(type="function_call_output", call_id=call_id, output=Raw(_encode(text))))
        if create_response:
            self.create_response()

    def delete_item(self, item_id: str) -> None:
        """Take an item out of the conversation."""
        self._send(say.ItemDelete(item_id=item_id))

    def create_response(self, response: say.ResponseIn | None = None) -> None:
        """Ask for an answer."""
        self._send(say.ResponseCreate(response=say.ABSENT if response is None else Raw(_encode(response))))

    def ack_playback(self, response_id: str, played_ms: int, *, committed_ms: int | None = None) -> None:
        """Tell how much of an answer was played."""
        self._send(say.PlaybackAck(response_id=response_id, played_ms=played_ms, committed_ms=committed_ms))

    def truncate(self, item_id: str, audio_end_ms: int, *, content_index: int = 0) -> None:
        """Tell that no more of an answer was heard."""
        self._send(say.ItemTruncate(item_id=item_id, audio_end_ms=audio_end_ms, content_index=content_index))

    def update_session(self, options: SessionOptions) -> None:
        """Change the configuration."""
        self._send(say.SessionUpdate(session=Raw(_encode(options))))

    def append_text(self, text: str) -> None:
        """Write into the turn that is being spoken; a commit ends it."""
        self._send(say.AppendText(text=text))

    def signal_turn(self, event: str, payload: Mapping[str, object] | None = None) -> None:
        """Tell what the client sees of the turn (`user_started`, `assistant_done`, …)."""
        self._send(say.TurnSignal(event=event, payload=say.ABSENT if payload is None else Raw(_encode(payload))))

    def heartbeat(self) -> None:
        """Renew the lease."""
        self._send(say.HeartbeatIn())


_encode = msgspec.json.Encoder().encode
