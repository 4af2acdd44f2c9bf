"""What a client does in its session: it speaks, writes, asks, cuts in, plays, and loses its connection."""

import random
from collections.abc import Callable

import anyio

from antiphon.transport.client_commands import Commands
from antiphon.transport.client_link import SessionOptions

from tests.chaos.clients import Client
from tests.simulation.peer import LOUD, QUIET, Shown

PAUSE_S = 0.03
"""Between two actions, at most."""

ANSWER_S = 1.0
"""How long a client waits for an answer, if it does."""

RATES = {"duplex": 16_000, "ga": 24_000}
LINE = "line "

DETECTIONS: tuple[dict[str, object] | None, ...] = (
    None,
    {"type": "server_vad", "silence_duration_ms": 128, "min_speech_duration_ms": 64},
    {"type": "server_vad", "silence_duration_ms": 256, "false_interruption": True},
    {"type": "semantic_vad", "eagerness": "high"},
)
TOOLS: list[dict[str, object]] = [{"type": "function", "name": "look"}, {"type": "function", "name": "go"}]


def options(rng: random.Random) -> SessionOptions:
    """Choose what a duplex session is opened with."""
    detection = rng.choice(DETECTIONS)
    return SessionOptions(
        sample_rate_hz=RATES["duplex"],
        turn_detection=detection,
        tools=TOOLS,
        extra_body={"auto_response": rng.random() < 0.5},
    )


def patch(rng: random.Random) -> dict[str, object]:
    """Choose what a GA session is changed to."""
    detection = rng.choice(DETECTIONS)
    if detection is not None:
        detection = {name: value for name, value in detection.items() if name != "false_interruption"}
    return {"type": "realtime", "tools": TOOLS, "audio": {"input": {"turn_detection": detection}}}


class Talk:
    """Draws one action after the other."""

    def __init__(self, rng: random.Random, dialect: str) -> None:
        self._rng = rng
        self._rate = RATES[dialect]
        self._responses: list[str] = []
        self._played: dict[str, float] = {}
        self._items: list[str] = []
        self._calls: list[str] = []
        self._lines = 0
        self._pieces = 0
        self._answered = anyio.Event()
        often = (self._speak, self._speak, self._ask, self._ask, self._play, self._play, self._write, self._output)
        rarely = (self._commit, self._truncate, self._beat, self._retune)
        cutting = (self._cancel, self._cut_in, self._stop_playing, self._clear)
        self._acts = (*often * 3, *rarely * 2, *cutting)

    def heard(self, shown: Shown) -> None:
        """Remember what a command may be about."""
        if shown.type == "response.created" and shown.response is not None:
            self._responses.append(str(shown.response["id"]))
        elif shown.type == "response.output_audio.delta" and shown.response_id is not None:
            self._played[shown.response_id] = max(shown.audio_duration_ms, 100)
            if shown.item_id is not None and shown.item_id not in self._items[-1:]:
                self._items.append(shown.item_id)
        elif shown.type == "response.done":
            self._answered.set()
        elif shown.type == "response.output_item.done" and (shown.item or {}).get("type") == "function_call":
            self._calls.append(str((shown.item or {})["call_id"]))

    async def go_on(self, client: Client, actions: int, over: Callable[[], bool]) -> None:
        """Do so many things, or until it is `over`."""
        for _ in range(actions):
            if over():
                return
            if self._rng.random() < 0.008:
                client.drop()
            act = self._rng.choice(self._acts)
            act(client.commands)
            if act in (self._ask, self._commit, self._output) and self._rng.random() < 0.7:
                await self._wait_for_an_answer()
            await anyio.sleep(self._rng.uniform(0, PAUSE_S))

    async def _wait_for_an_answer(self) -> None:
        self._answered = anyio.Event()
        with anyio.move_on_after(ANSWER_S):
            await self._answered.wait()

    def _speak(self, client: Commands) -> None:
        """Speak, and maybe fall silent; each piece can be told from every other."""
        loud = self._rng.random() < 0.7
        for _ in range(self._rng.choice((1, 2, 4))):
            self._append(client, LOUD * self._rng.randint(1, 3) if loud else QUIET * self._rng.randint(1, 4))
        if self._rng.random() < 0.5:
            self._append(client, QUIET * 12)

    def _append(self, client: Commands, sound: bytes) -> None:
        self._pieces += 1
        client.append_audio(self._pieces.to_bytes(4, "little") + sound[4:], encoding="pcm16", rate=self._rate)

    def _write(self, client: Commands) -> None:
        self._lines += 1
        client.send_text(f"{LINE}{self._lines}")

    def _ask(self, client: Commands) -> None:
        self._write(client)
        client.create_response()

    def _commit(self, client: Commands) -> None:
        client.commit(create_response=self._rng.choice((None, True, False)))

    def _clear(self, client: Commands) -> None:
        client.clear_input()

    def _cancel(self, client: Commands) -> None:
        client.cancel_response(self._response())

    def _cut_in(self, client: Commands) -> None:
        client.barge_in()

    def _stop_playing(self, client: Commands) -> None:
        client.clear_output(self._response())

    def _truncate(self, client: Commands) -> None:
        if self._items:
            client.truncate(self._items[-1], self._rng.randrange(400))

    def _play(self, client: Commands) -> None:
        response = self._response()
        if response is not None and response in self._played:
            client.ack_playback(response, int(self._played[response] * self._rng.random()))

    def _output(self, client: Commands) -> None:
        if self._calls:
            client.send_tool_output(self._calls.pop(), {"seen": self._lines}, create_response=True)

    def _retune(self, client: Commands) -> None:
        client.update_session(SessionOptions(instructions=f"Be brief, {self._lines}."))

    def _beat(self, client: Commands) -> None:
        client.heartbeat()

    def _response(self) -> str | None:
        return self._responses[-1] if self._responses and self._rng.random() < 0.8 else None
