"""The demo, as a user runs it."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from antiphon.engine.datadir import DataDirectory
from antiphon.transport.wav import read_wav, write_wav


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
    assert "cut short" not in done.stdout


def demo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "antiphon.transport.demo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with the files of an earlier demo."""
    out = tmp_path / "out"
    (out / "data").mkdir(parents=True, mode=0o700)
    (out / "session.jsonl").write_text("precious")
    return out


@pytest.mark.parametrize("kind", ["broken", "silent", "absent"])
def test_a_file_that_cannot_be_used_is_one_sentence_and_costs_nothing(
    tmp_path: Path, earlier: Path, kind: str
) -> None:
    audio = tmp_path / f"{kind}.wav"
    if kind == "broken":
        audio.write_bytes(b"RIFF")
    elif kind == "silent":
        write_wav(audio, np.zeros(1_600, np.int16), 16_000)
    done = demo("--audio", audio, "--out", earlier)
    assert done.returncode == 2
    assert done.stderr.startswith("demo: ")
    assert str(audio) in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (earlier / "session.jsonl").read_text() == "precious"


def test_a_second_demo_leaves_the_first_alone(earlier: Path) -> None:
    with (earlier / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = demo("--out", earlier)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{earlier} is in use by another demo" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (earlier / "session.jsonl").read_text() == "precious"


def test_so_it_does_with_a_server_on_its_data(earlier: Path) -> None:
    with DataDirectory(earlier / "data"):
        done = demo("--out", earlier)
    assert done.returncode == 2
    assert f"{earlier} is in use: the data directory" in done.stderr
    assert (earlier / "session.jsonl").read_text() == "precious"
