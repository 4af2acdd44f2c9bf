"""The demo's conversation: a question, one that is cut short by the next, and a line that breaks on the way."""

import anyio
from msgspec import Struct
from rich.console import Console

from .client import RealtimeClient, SessionLost
from .client_link import SessionOptions
from .speaker import Heard as Sounded
from .talk import QUIET_S, Talk, Unanswered, Unheard, now_us, spoken
from .talk_dialogue import Dialogue, Reply
from .talk_mic import RATE, Microphone, Utterance
from .talk_show import Screen
from .wav import Pcm

INSTRUCTIONS = "You are a friendly voice assistant. Answer in plain spoken words, in full sentences, without lists."
MAX_TOKENS = 120
"""Bounds an answer to about half a minute of speech; the questions are such that the model ends well before."""

LONG_TOKENS = 240
"""For the answer that is cut short: it is still being made when the user speaks over it."""

ANSWER_S = 20.0
PLAYED_S = 60.0
CUT_IN_MS = 1_200
"""So much of the second answer is heard before the user speaks over it."""

BREAK_MS = 300
"""So much of the third answer is heard before the line breaks."""


class Break(Struct, frozen=True):
    """The lost connection: the last number seen before it, and how long there was no line."""

    last_before: int = 0
    silent_ms: int = 0


class Heard(Struct):
    """Everything that the conversation left on the client's side.

    `answers` are the one heard to its end, the one that was spoken over (by `cut_in`), and the one in whose
    middle the line broke.
    """

    session: str
    dialogue: Dialogue
    mic: Microphone
    answers: list[Reply]
    cut_in: Utterance
    lost: Break

    def spoken(self) -> list[Sounded]:
        """Return what the user said, as sound of one speaker."""
        return [Sounded("user", self.mic.start_us, self.mic.recording(), RATE)]


async def converse(address: str, voices: list[Pcm], console: Console) -> Heard:
    """Hold the conversation with a server, in real time.

    Raises:
        Unanswered: something did not happen that should have.
    """
    screen = Screen(console)
    failure: Unanswered | None = None
    heard: Heard | None = None
    try:
        async with RealtimeClient(
            address, spoken(instructions=INSTRUCTIONS, max_output_tokens=MAX_TOKENS)
        ) as client:
            script = _Script(client, voices, screen)
            try:
                await script.talk.run(script.play)
            except Unanswered as unanswered:  # on its own, not inside the group of errors of the client
                failure = unanswered
            talk = script.talk
            heard = Heard(client.session_id, talk.dialogue, talk.mic, script.answers, script.cut_in, script.lost)
    except SessionLost as lost:
        failure = failure or Unanswered(str(lost))
    screen.close()
    if failure is not None or heard is None:
        raise failure or Unanswered("there was no conversation")
    return heard


class _Script:
    """Who says what when."""

    def __init__(self, client: RealtimeClient, voices: list[Pcm], screen: Screen) -> None:
        self.answers: list[Reply] = []
        self.cut_in = Utterance(0, 0)
        self.lost = Break()
        self.talk = Talk(client, Dialogue(screen.tell))
        self._client = client
        self._voices = voices
        self._screen = screen

    async def play(self) -> None:
        await anyio.sleep(0.3)
        await self._ask()
        await self._interrupt()
        await self._break()
        await self._client.close()
        await self.talk.until("the session to be closed", lambda _now: self.talk.dialogue.closed is not None, 5)

    async def _ask(self) -> None:
        """Hear the first answer to its end."""
        dialogue, mic = self.talk.dialogue, self.talk.mic
        mic.say(self._voices[0])
        length = len(self._voices[0]) / RATE
        await self.talk.until("the first question to be spoken", lambda _now: not mic.speaking, length + 10)
        spoken_us = now_us()
        await self.talk.until(
            "speech to be noticed", lambda now: bool(dialogue.asks) or now > spoken_us + QUIET_S * 1e6, QUIET_S + 10
        )
        if not dialogue.asks:
            raise Unheard("the server heard no speech in the first question")
        await self._sounds("the first answer", len(self._voices[0]) / RATE)
        await self.talk.until("the first answer to end", self.talk.dialogue.settled, PLAYED_S)
        self.answers.append(self.talk.dialogue.replies[-1])

    async def _interrupt(self) -> None:
        """Speak over the second answer."""
        self._client.update_session(SessionOptions(max_output_tokens=LONG_TOKENS))
        self.talk.mic.say(self._voices[1])
        reply = await self._sounds("the second answer")
        self.answers.append(reply)
        await self._plays(reply, CUT_IN_MS)
        self._client.update_session(SessionOptions(max_output_tokens=MAX_TOKENS))
        self.cut_in = self.talk.mic.say(self._voices[2])
        await self.talk.until("the second answer to fall silent", lambda _now: reply.stopped_us is not None, 5)

    async def _break(self) -> None:
        """Lose the line in the middle of the third answer, and hear the rest of it on another."""
        dialogue = self.talk.dialogue
        reply = await self._sounds("the third answer")
        self.answers.append(reply)
        await self._plays(reply, BREAK_MS)
        before, at = dialogue.numbers.last, now_us()
        self._screen.note("— the line breaks —")
        self._client.drop_socket()
        await self.talk.until("the session to be resumed", lambda _now: dialogue.resumed_us is not None, 10)
        self.lost = Break(before, ((dialogue.resumed_us or at) - at) // 1000)
        self._screen.note(f"— resumed after {self.lost.silent_ms} ms —")
        await self.talk.until("the third answer to end", dialogue.settled, PLAYED_S)

    async def _sounds(self, what: str, speaking_s: float = 0.0) -> Reply:
        """Wait until all has been said, and the first sound of an answer to it has come."""
        dialogue, mic = self.talk.dialogue, self.talk.mic
        known = len(dialogue.replies)

        def begun(_now: int) -> bool:
            waiting = mic.speaking or dialogue.speaking or len(dialogue.replies) <= known
            return not waiting and dialogue.replies[-1].first_us is not None

        await self.talk.until(f"the first sound of {what}", begun, speaking_s + ANSWER_S)
        return dialogue.replies[-1]

    async def _plays(self, reply: Reply, ms: int) -> None:
        """Wait until so much of an answer was heard."""
        speaker = self.talk.dialogue.speaker
        await self.talk.until(
            f"{ms / 1000:.1f} s of an answer to be heard",
            lambda now: speaker.played_ms(reply.response_id, now) >= ms,
            PLAYED_S,
        )
