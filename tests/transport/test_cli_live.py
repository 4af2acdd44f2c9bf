"""`antiphon talk` without a file: the microphone and the loudspeaker are programs of the test's."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import numpy as np
import pytest

from antiphon.transport.wav import read_wav

from .serving import serving

pytestmark = pytest.mark.anyio

CLI = (sys.executable, "-m", "antiphon.transport.cli")


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with a loudspeaker that keeps what it plays, and no `sounddevice`."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sounddevice.py").write_text("raise ImportError\n", encoding="utf-8")
    program(tmp_path, "aplay", f"/bin/cat >> {tmp_path}/played")
    return tmp_path


def surroundings(machine: Path) -> dict[str, str]:
    hidden = os.pathsep.join([str(machine / "hidden"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PATH": str(machine), "PYTHONPATH": hidden}


def voice(machine: Path) -> Path:
    """A second of something that the energy detector takes for speech, and a second of silence."""
    time = np.arange(16_000) / 16_000
    said = (8_000 * np.sin(2 * np.pi * 220 * time)).astype("<i2")
    path = machine / "voice.raw"
    path.write_bytes(said.tobytes() + bytes(32_000))
    return path


async def test_a_conversation_by_microphone_and_loudspeaker(machine: Path) -> None:
    program(machine, "arecord", f"/bin/cat {voice(machine)}; exec /bin/sleep 60")
    out = machine / "reply.wav"
    async with serving() as served:
        command = [*CLI, "talk", "--url", served.url, "--out", str(out), "--json"]
        async with await anyio.open_process(command, start_new_session=True, env=surroundings(machine)) as process:
            shown = b""
            assert process.stderr is not None
            while b"antiphon" not in shown:  # the beginning of the answer
                shown += await process.stderr.receive()
            played = machine / "played"
            with anyio.fail_after(10):
                while not played.exists() or not played.stat().st_size:  # noqa: ASYNC110 - it is another program's
                    await anyio.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            assert process.stdout is not None
            said = b"".join([piece async for piece in process.stdout])
            assert await process.wait() == 130
    report = json.loads(said)
    assert "headphones" in shown.decode()
    assert report["interrupted"] is True
    assert report["timings"]["answers"][0]["response_id"].startswith("resp_")
    assert len(read_wav(out, 24_000)) * 1000 // 24_000 == report["audio_ms"] > 0


async def talk(machine: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    return await anyio.run_process([*CLI, "talk", *more], check=False, env=surroundings(machine))


async def test_what_is_missing_is_one_sentence(machine: Path) -> None:
    done = await talk(machine, "--url", "127.0.0.1:1")
    assert done.returncode == 1
    assert b"there is no server at" in done.stderr
    async with serving() as served:
        done = await talk(machine, "--url", served.url)
        assert done.returncode == 1
        assert b"there is nothing to record with" in done.stderr
        program(machine, "arecord", f"/bin/cat {voice(machine)}; exec /bin/sleep 60")
        program(machine, "aplay", "exit 1")
        done = await talk(machine, "--url", served.url)
        assert done.returncode == 1
        assert b"aplay does not play" in done.stderr
        assert b"Traceback" not in done.stderr
        (machine / "aplay").unlink()
        done = await talk(machine, "--url", served.url)
        assert b"there is nothing to play with" in done.stderr
