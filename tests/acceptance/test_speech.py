"""Spoken to, the whole server understands: microphone, voice activity, recogniser, answer, and back."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from antiphon.stages.asset_errors import AssetMissing
from antiphon.stages.assets import resolve
from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient
from antiphon.transport.client_link import SessionOptions

from ..recordings import RATE, Recording, recordings, word_errors, words
from .servers import ServerProcess

PIECE_MS = 80
LISTENING = SessionOptions(
    sample_rate_hz=RATE,
    turn_detection={"type": "server_vad", "silence_duration_ms": 800},
    input_audio_transcription={"model": "default"},
    max_output_tokens=24,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    try:
        for kind in ("vad", "asr", "llm", "tts"):
            resolve(kind)
    except AssetMissing as error:
        pytest.skip(str(error))
    one = ServerProcess(tmp_path_factory.mktemp("voice") / "data", pipeline="voice")
    one.start()
    yield one
    one.close()


def with_silence(recording: Recording) -> bytes:
    """Return the speech between half a second and two seconds of a quiet room."""
    room = np.random.default_rng(1)
    before = room.normal(0, 8, RATE // 2).astype(np.int16)
    after = room.normal(0, 8, 2 * RATE).astype(np.int16)
    return np.concatenate([before, recording.samples, after]).tobytes()


async def speak(client: RealtimeClient, sound: bytes) -> None:
    """Send sound as fast as the server takes it: sessions run on their own clock, not on ours."""
    size = RATE * PIECE_MS // 1000 * 2
    for begin in range(0, len(sound), size):
        client.append_audio(sound[begin : begin + size], rate=RATE)
        await anyio.lowlevel.checkpoint()


@pytest.mark.models
@pytest.mark.timeout(240)
async def test_recorded_people_are_understood_and_answered(server: ServerProcess) -> None:
    wrong = total = 0
    for recording in recordings():
        heard: list[str] = []
        spoken = text = 0
        async with RealtimeClient(server.url, LISTENING) as client:
            await speak(client, with_silence(recording))
            with anyio.fail_after(60):
                async for event in client.events():
                    match event:
                        case out.TranscriptionCompleted(transcript=transcript):
                            heard.append(transcript)
                        case out.AudioDeltaOut(delta=delta):
                            spoken += len(delta)
                        case out.ResponseDone(response=response) if response.status in ("completed", "incomplete"):
                            text += sum(len(item.content[0].transcript or "") for item in response.output)
                            break
                        case out.ErrorOut(error=error):
                            pytest.fail(f"{recording.name}: {error}")
                        case _:
                            pass
        assert spoken, "the answer was spoken"
        assert text, "and its words are in the item"
        wrong += word_errors(recording.said, " ".join(heard))
        total += len(words(recording.said))
    assert wrong / total <= 0.25, f"{wrong} of {total} words were wrong"
