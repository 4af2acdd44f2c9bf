"""Client presets: each opens its model's session over a real socket; sound is acknowledged as it is played."""

from collections.abc import Callable
from pathlib import Path

import anyio
import numpy as np
import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.config import SessionConfig
from antiphon.sessions.plugins import REGISTRY, TurnModel
from antiphon.stages.base import Append, Submit
from antiphon.stages.scripted import Hear, Say, ScriptedStage
from antiphon.transport import presets
from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient, SessionLost
from antiphon.transport.playback import Ack
from antiphon.transport.presets import Preset
from antiphon.transport.talk_dialogue import Dialogue
from antiphon.transport.wav import write_wav

from .serving import Serving, becomes, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

COLD = HubSettings(warm_up_units=0)


def voice(folder: Path, samples: int = 16_000) -> bytes:
    path = folder / "voice.wav"
    write_wav(path, (np.arange(samples) % 400 * 50).astype(np.int16), 16_000)
    return path.read_bytes()


TOOLS: list[dict[str, object]] = [{"type": "function", "name": "weather"}]
MADE: dict[str, Callable[[bytes], Preset]] = {
    "minicpm": lambda voice: presets.minicpm(voice, instructions="Be brief.", initial_user_text="Hello."),
    "nemotron": lambda _: presets.nemotron(instructions="Be brief.", tools=TOOLS, idle_timeout_s=60.0),
    "personaplex": lambda _: presets.personaplex(voice="NATM1", persona="You sell tea."),
    "aura": lambda _: presets.aura(instructions="Be brief."),
    "qwen3_omni": lambda _: presets.qwen3_omni(hands_free=False),
    "qwen3_omni_vad": lambda _: presets.qwen3_omni(instructions="Be brief."),
}


def model(preset: Preset) -> TurnModel:
    plugin = REGISTRY[preset.plugin]
    assert isinstance(plugin, TurnModel)
    return plugin


def config(served: Serving, client: RealtimeClient) -> SessionConfig:
    session = served.hub.session(client.session_id)
    assert session is not None
    return session.config


@pytest.mark.parametrize("name", MADE)
@rule("N65")
async def test_a_preset_opens_a_session_of_its_model(name: str, tmp_path: Path) -> None:
    preset = MADE[name](voice(tmp_path))
    stage = ScriptedStage(input_format=model(preset).capabilities.input_format)
    async with (
        serving(plugin=model(preset), stage=stage, settings=COLD) as served,
        RealtimeClient(served.url, preset.options) as client,
    ):
        held = config(served, client)
        shown = client.session
        assert shown is not None
        assert shown.playback_commit_policy == "ack_only"
        assert held.input_format.rate == preset.rate
        assert held.input_format.width == preset.width
        assert held.output_format == AudioFormat("pcm16", model(preset).capabilities.output_rate)
        assert shown.capabilities.supports_session_resume == model(preset).capabilities.supports_session_resume


@pytest.mark.parametrize(
    ("name", "plugin"),
    [
        ("MiniCPM-o-4.5", "minicpm-o-4.5"),
        ("nemotron-voicechat", "nemotron-voicechat"),
        ("personaplex", "personaplex"),
        ("aura", "aura"),
        ("Qwen3-Omni-30B-A3B", "qwen3-omni"),
    ],
)
@rule("N65")
def test_a_preset_is_found_by_the_name_of_its_model(name: str, plugin: str) -> None:
    assert presets.for_model(name, voice=b"RIFF", instructions="Be brief.").plugin == plugin


def test_a_model_without_a_preset_is_told_those_that_have_one() -> None:
    with pytest.raises(ValueError, match="there are minicpm-o, nemotron"):
        presets.for_model("gpt-realtime")
    with pytest.raises(ValueError, match="WAV"):
        presets.for_model("minicpm-o-4.5")


SAID: dict[str, tuple[AudioFormat, AudioFormat, bool]] = {
    "minicpm": (AudioFormat("pcm16", 16_000), AudioFormat("pcm16", 24_000), True),
    "nemotron": (AudioFormat("pcm_f32le", 16_000), AudioFormat("pcm16", 22_050), True),
    "personaplex": (AudioFormat("pcm_f32le", 24_000), AudioFormat("pcm16", 24_000), True),
}
"""What a preset sends and hears, and whether its model answers on its own."""


@pytest.mark.parametrize("name", SAID)
@rule("N65")
async def test_what_a_preset_says_of_sound_is_what_its_session_takes(name: str, tmp_path: Path) -> None:
    sent, heard, answers = SAID[name]
    preset = MADE[name](voice(tmp_path))
    assert (preset.rate, preset.width) == (sent.rate, sent.width)
    stage = ScriptedStage(input_format=model(preset).capabilities.input_format)
    async with (
        serving(plugin=model(preset), stage=stage, settings=COLD) as served,
        RealtimeClient(served.url, preset.options) as client,
    ):
        held = config(served, client)
        assert (held.input_format, held.output_format, held.auto_response) == (sent, heard, answers)
        assert held.playback_policy == "ack_only"


@rule("N65", "N34", "L13")
async def test_minicpm_listens_only_and_speaks_with_the_clients_voice(tmp_path: Path) -> None:
    given = voice(tmp_path)
    preset = presets.minicpm(given)
    stage = ScriptedStage()
    async with (
        serving(plugin=model(preset), stage=stage, settings=COLD) as served,
        RealtimeClient(served.url, preset.options) as client,
    ):
        held = config(served, client)
        assert (held.overlap_policy, held.extras["force_listen_count"]) == ("listen_only", "0")
        assert held.ref_audio is not None
        client.append_audio(b"\0\x20" * preset.rate)
        await becomes(lambda: any(isinstance(message, Submit) for message in stage.messages))
        submit = next(message for message in stage.messages if isinstance(message, Submit))
        assert submit.payload.ref_audio == held.ref_audio.ref
        (sound,) = [data for ref, data in submit.sound if ref == held.ref_audio.ref]
        assert sound == given[44:]
        shown = (await client.wait_for(out.SessionUpdated)).session
        assert b"ref_audio" not in repr(shown).encode()
        assert "force_listen_count" not in repr(shown)


@rule("N65", "N45")
async def test_nemotron_takes_frames_of_floats_and_tools() -> None:
    preset = presets.nemotron(tools=TOOLS)
    stage = ScriptedStage()
    async with (
        serving(plugin=model(preset), stage=stage, settings=COLD) as served,
        RealtimeClient(served.url, preset.options) as client,
    ):
        held = config(served, client)
        assert held.auto_response
        assert held.tools == '[{"type":"function","name":"weather"}]'
        client.append_audio(np.full(1_280, 0.25, "<f4").tobytes())
        await becomes(lambda: any(isinstance(message, Append) for message in stage.messages))
        (append,) = [message for message in stage.messages if isinstance(message, Append)]
        assert len(append.data) == 2 * 1_280
        client.append_audio(np.zeros(1_281, "<f4").tobytes())
        refused = await client.wait_for(out.ErrorOut)
        assert refused.error.code == "bad_event"


@rule("N65", "N61")
async def test_personaplex_gets_its_voice_and_persona() -> None:
    preset = presets.personaplex(voice="NATM1", persona="You sell tea.")
    async with (
        serving(plugin=model(preset), stage=ScriptedStage(input_format=AudioFormat("pcm16", 24_000))) as served,
        RealtimeClient(served.url, preset.options) as client,
    ):
        held = config(served, client)
        assert (held.voice, held.instructions, held.auto_response) == ("NATM1", "You sell tea.", True)
        assert (held.extras["voice"], held.extras["persona"]) == ('"NATM1"', '"You sell tea."')


@rule("N34", "D1")
async def test_a_model_that_needs_a_voice_says_so_when_it_is_opened() -> None:
    preset = presets.minicpm(b"")
    options = presets.nemotron().options
    async with serving(plugin=model(preset), stage=ScriptedStage()) as served:
        with pytest.raises(SessionLost) as lost:
            async with RealtimeClient(served.url, options):
                pass
        assert lost.value.code == "ref_audio_required"


@rule("N3")
async def test_one_slot_is_no_multi_session() -> None:
    preset = presets.qwen3_omni()
    for slots in (1, 2):
        settings = HubSettings(max_sessions=slots)
        async with (
            serving(plugin=model(preset), stage=ScriptedStage(), settings=settings) as served,
            RealtimeClient(served.url, preset.options) as client,
        ):
            assert client.session is not None
            assert client.session.capabilities.supports_multi_session == (slots > 1)


@pytest.mark.parametrize("name", ["minicpm", "nemotron", "personaplex"])
@rule("N65", "I6")
async def test_playback_is_acknowledged_as_it_is_played(name: str, tmp_path: Path) -> None:
    preset = MADE[name](voice(tmp_path))
    can = model(preset).capabilities
    samples = preset.rate * preset.append_ms // 1000
    piece = samples * can.input_format.width
    stage = ScriptedStage(default=(Hear(piece), Say("Hello.", 800)), input_format=can.input_format)
    dialogue = Dialogue()
    clock = VirtualClock()
    async with (
        serving(plugin=model(preset), stage=stage, settings=COLD) as served,
        RealtimeClient(served.url, preset.options) as client,
    ):
        client.append_audio(b"\0" * (samples * preset.width))
        with anyio.fail_after(10):
            async for event in client.events():
                dialogue.handle(event, clock.monotonic_us())
                if isinstance(event, out.AudioDeltaOut):
                    break
        assert dialogue.acks(clock.monotonic_us()) == [], "it has come, and nobody has heard it"
        told: list[Ack] = []
        for _ in range(6):
            clock.advance(200_000)
            told += dialogue.acks(clock.monotonic_us())
        assert [ack.played_ms for ack in told] == [200, 400, 600, 800]
        for ack in told:
            client.ack_playback(ack.response_id, ack.played_ms)
        for ack in told:
            heard = await client.wait_for(out.PlaybackAcknowledgedOut)
            assert heard.event.played_ms == ack.played_ms
