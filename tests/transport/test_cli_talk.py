"""`antiphon talk`: what it hears is kept, and whatever is wrong is told before anything is said."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import numpy as np
import pytest
from rich.console import Console

from antiphon.transport import cli, cli_talk
from antiphon.transport.access import Access
from antiphon.transport.cli_errors import Stop
from antiphon.transport.client import RealtimeClient, SessionLost
from antiphon.transport.keys import Keys
from antiphon.transport.wav import read_wav, write_wav

from .serving import serving

CLI = (sys.executable, "-m", "antiphon.transport.cli")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["antiphon", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out = capsys.readouterr()
        return int(end.value.code or 0), out.out, out.err

    return run


@pytest.fixture
def voice(tmp_path: Path) -> Path:
    """Something that the energy detector takes for speech."""
    path = tmp_path / "voice.wav"
    time = np.arange(16_000) / 16_000
    write_wav(path, (8_000 * np.sin(2 * np.pi * 220 * time)).astype(np.int16), 16_000)
    return path


@contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """A port that says something to whoever comes, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                with line:
                    line.recv(65_536)
                    line.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


UNUSABLE = [
    "ws://127.0.0.1:99999",
    "ws://127.0.0.1:port",
    "ws://[::1",
    "ws://",
    "http://:8000",
    "ftp://127.0.0.1",
    "ws://127.0.0.1:0",
]


@pytest.mark.parametrize("url", UNUSABLE)
def test_an_address_that_is_none_is_one_sentence(run: Run, voice: Path, url: str) -> None:
    code, out, err = run("talk", voice, "--url", url)
    assert (code, out) == (2, "")
    assert "is no address of a server: give --url ws://HOST:PORT" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("url", [*UNUSABLE, "", "nonsense"])
async def test_the_client_says_so_by_its_own_error(url: str) -> None:
    with pytest.raises(SessionLost) as caught:
        async with RealtimeClient(url):
            pytest.fail("there is nobody")
    assert caught.value.code == "invalid_url"


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"\x00\xff" * 50])
@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_where_no_server_answers_is_one_sentence(run: Run, voice: Path, reply: bytes, scheme: str) -> None:
    with answering(reply) as port:
        code, out, err = run("talk", voice, "--url", f"{scheme}://127.0.0.1:{port}")
    assert (code, out) == (1, "")
    assert "there is no server at" in err
    assert len(err.splitlines()) == 1
    assert ("use ws://" in err) == (scheme == "wss" and reply != b"")


def test_nobody_there_is_told(run: Run, voice: Path) -> None:
    code, _, err = run("talk", voice, "--url", "127.0.0.1:1")
    assert code == 1
    assert "start one with `antiphon serve`" in err
    assert "disconnected" not in err


def test_silence_and_a_file_that_cannot_be_written_are_told_first(run: Run, voice: Path, tmp_path: Path) -> None:
    silence = tmp_path / "silence.wav"
    write_wav(silence, np.zeros(1_600, np.int16), 16_000)
    code, _, err = run("talk", silence)
    assert code == 2
    assert f"no speech was heard in {silence}" in err
    code, _, err = run("talk", voice, "--out", tmp_path / "new" / "reply.wav")
    assert code == 2
    assert "there is no folder" in err
    assert not (tmp_path / "new").exists()


async def talk(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return await anyio.run_process([*CLI, "talk", *map(str, arguments)], check=False)


@pytest.mark.parametrize(
    ("key", "words"), [((), "wants a key: --api-key"), (("--api-key", "x"), "not take this key")]
)
async def test_a_key_that_is_needed_is_asked_for(voice: Path, key: tuple[str, ...], words: str) -> None:
    async with serving(access=Access(keys=Keys.of("right"))) as served:
        done = await talk(voice, "--url", served.url, *key)
    assert done.returncode == 1
    assert words in done.stderr.decode()
    assert "ANTIPHON_API_KEY" in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


async def test_ctrl_c_keeps_what_was_heard(voice: Path, tmp_path: Path) -> None:
    out = tmp_path / "reply.wav"
    async with serving() as served:
        command = [*CLI, "talk", str(voice), "--url", served.url, "--out", str(out), "--json"]
        async with await anyio.open_process(command, start_new_session=True) as process:
            heard = b""
            assert process.stderr is not None
            while b"antiphon" not in heard:  # the beginning of the answer
                heard += await process.stderr.receive()
            os.killpg(process.pid, signal.SIGINT)
            assert process.stdout is not None
            said = b"".join([piece async for piece in process.stdout])
            assert await process.wait() == 130
    report = json.loads(said)
    assert report["interrupted"] is True
    assert report["reply"] == str(out)
    assert len(read_wav(out, 24_000)) * 1000 // 24_000 == report["audio_ms"]


def test_every_code_has_its_sentence_once() -> None:
    lost = SessionLost("stage_unavailable", "the voice is missing")
    assert str(cli_talk.unopened(lost, "ws://x", None)) == (
        "the server at ws://x opened no session (stage_unavailable: the voice is missing)"
    )


def test_a_file_in_which_nobody_speaks_is_refused(tmp_path: Path) -> None:
    write_wav(tmp_path / "x.wav", np.full(100, 5, np.int16), 16_000)
    with pytest.raises(Stop, match="no speech was heard"):
        cli_talk.run(tmp_path / "x.wav", "ws://127.0.0.1:1", None, None, Console(stderr=True))
