"""A conversation in real time with a whole server: the echo says back what it hears."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import numpy as np
import pytest

from antiphon.transport.client import RealtimeClient
from antiphon.transport.pipelines import load
from antiphon.transport.serve import ServeSettings, hub_for
from antiphon.transport.server import Listening, Server
from antiphon.transport.talk import Talk, Unanswered, spoken
from antiphon.transport.talk_dialogue import Dialogue
from antiphon.transport.talk_mic import RATE
from antiphon.transport.talk_show import latencies, reaction
from antiphon.transport.wav import Pcm


def voice(ms: int) -> Pcm:
    """Something that the energy detector takes for speech."""
    time = np.arange(RATE * ms // 1000) / RATE
    return (8_000 * np.sin(2 * np.pi * 220 * time)).astype(np.int16)


@asynccontextmanager
async def talking() -> AsyncGenerator[tuple[Talk, RealtimeClient]]:
    """Lend a conversation with an echo."""
    addresses: list[str] = []
    listening = anyio.Event()

    def started(address: str) -> None:
        addresses.append(address)
        listening.set()

    async with hub_for(load("echo"), ServeSettings()) as hub, anyio.create_task_group() as group:
        group.start_soon(Server(hub, Listening(port=0)).serve, started)
        await listening.wait()
        async with RealtimeClient(addresses[0], spoken()) as client:
            yield Talk(client, Dialogue()), client
        group.cancel_scope.cancel()


async def test_what_is_said_is_heard_back_and_cut_when_the_user_speaks_over_it() -> None:
    async with talking() as (talk, client):
        dialogue = talk.dialogue

        async def script() -> None:
            talk.mic.say(voice(900))
            await talk.until("sound", lambda _now: bool(dialogue.speaker.heard), 10)
            cut_in = talk.mic.say(voice(400))
            first = dialogue.replies[0]
            await talk.until("silence", lambda _now: first.stopped_us is not None, 10)
            assert first.heard_ms is not None
            assert 0 < first.heard_ms < 900
            assert (reaction(first, cut_in, talk.mic) or 0) > 0
            await talk.until("the second answer", lambda _now: len(dialogue.replies) == 2, 10)
            client.drop_socket()
            await talk.until("a new line", lambda _now: dialogue.resumed_us is not None, 10)
            await talk.until("the end", dialogue.settled, 10)
            await client.close()
            await talk.until("the close", lambda _now: dialogue.closed is not None, 5)

        await talk.run(script)
    assert dialogue.numbers.whole
    assert dialogue.replies[0].late == 0
    assert dialogue.errors == []
    assert len(latencies(dialogue, talk.mic)) == 2
    assert all(wait > 0 for wait in latencies(dialogue, talk.mic))


async def test_waiting_in_vain_names_what_was_waited_for() -> None:
    async with talking() as (talk, client):

        async def script() -> None:
            await talk.until("a miracle", lambda _now: False, 0.1)

        with pytest.raises(Unanswered, match="for a miracle"):
            await talk.run(script)

        async def closed() -> None:
            await client.close()
            await talk.until("a miracle", lambda _now: False, 10)

        with pytest.raises(Unanswered, match="the server ended the session before a miracle"):
            await talk.run(closed)
