"""The demo, as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.transport.wav import read_wav


@pytest.mark.models
@pytest.mark.slow
def test_the_demo_keeps_its_promises(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon.transport.demo", "--audio", "", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert set(summary) == {
        *("heard", "said", "voice_to_voice_ms", "interrupted_after_ms", "resumed", "events", "replay", "log"),
        "conversation_wav",
    }
    assert summary["heard"][0].startswith("What is the capital of France")
    assert summary["resumed"] is True
    assert summary["replay"] == "identical"
    assert len(read_wav(Path(summary["conversation_wav"]))) > 16_000
    assert (tmp_path / "out" / "timeline.png").is_file()
    assert "✗" not in done.stdout


def test_a_file_that_is_no_sound_is_told_in_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF")
    done = subprocess.run(
        [sys.executable, "-m", "antiphon.transport.demo", "--audio", str(broken), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "broken.wav is not a WAV file" in done.stderr
    assert len(done.stderr.splitlines()) == 1
