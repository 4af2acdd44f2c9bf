"""Defaults of a new session by dialect (WIRE 0.3)."""

import pytest

from antiphon.engine.defaults import default_config, default_limits, resumable, session_prefix
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.config import Capabilities, Dialect, TurnDetection

from tests.rules import rule

SETTINGS = HubSettings()
ABLE = Capabilities(output_rate=22_050)


@rule("B8", "I1")
@pytest.mark.parametrize("dialect", ["ga", "beta"])
def test_ga_and_beta_are_at_24_khz_with_server_vad_and_end_with_their_socket(dialect: Dialect) -> None:
    config = default_config(dialect, SETTINGS, ABLE, model="m", voice="v")
    limits = default_limits(dialect, SETTINGS)
    assert config.input_format == config.output_format == AudioFormat("pcm16", 24_000)
    assert config.turn_detection == TurnDetection()
    assert config.overlap_policy == "barge_in_on_speech"
    assert config.playback_policy == "commit_all_on_done"
    assert (limits.min_commit_ms, limits.max_session_ms) == (100, 3_600_000)
    assert not resumable(dialect, ABLE)
    assert resumable(dialect, ABLE, wanted=True), "if it asks for it"
    assert not resumable(dialect, Capabilities(supports_session_resume=False), wanted=True)
    assert session_prefix(dialect) == "sess_"


@rule("B8", "I1")
def test_duplex_listens_at_16_khz_speaks_at_the_models_rate_and_can_resume() -> None:
    config = default_config("duplex", SETTINGS, ABLE, model="m", voice="v")
    limits = default_limits("duplex", SETTINGS)
    assert config.input_format == AudioFormat("pcm16", 16_000)
    assert config.output_format == AudioFormat("pcm16", 22_050)
    assert config.turn_detection is None
    assert config.playback_policy == "ack_only"
    assert config.idle_timeout_s == 300
    assert (limits.grace_ms, limits.max_session_ms, limits.min_commit_ms) == (30_000, 0, 0)
    assert resumable("duplex", ABLE)
    assert not resumable("duplex", Capabilities(supports_session_resume=False))
    assert not resumable("duplex", ABLE, wanted=False)
    assert session_prefix("duplex") == "duplex-"


def test_no_interruption_by_speech_unless_the_detection_says_so() -> None:
    settings = HubSettings(turn_detection=TurnDetection(interrupt_response=False))
    assert default_config("ga", settings, ABLE, model="m", voice="v").overlap_policy == "listen_only"
