"""The demo's other processes: a real server, the voice that speaks the questions, and the command line."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from .cli_errors import Stop

LISTENING = "listening on "
LOADING = "still being loaded"
START_S = 60.0
STOP_S = 15.0
_SPEAK = (sys.executable, "-m", "antiphon.stages.speak")
_CLI = (sys.executable, "-m", "antiphon.transport.cli")


@contextmanager
def server(pipeline: str, data: Path, log: Path) -> Generator[str, None, None]:
    """Run `antiphon serve` on a free port; yield its address. Its messages go to `log`.

    Raises:
        Stop: it does not start, or does not end in order when it is asked to.
    """
    command = [*_CLI, "serve", "--pipeline", pipeline, "--port", "0", "--data", str(data)]
    with open(log, "wb") as messages:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=messages, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
    if process.returncode != 0:
        raise Stop(f"the server did not end in order (exit code {process.returncode}); it said:\n{_tail(log)}")


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    if process.stdout is not None:
        for line in process.stdout:
            text = line.decode(errors="replace").strip()
            if text.startswith(LISTENING):
                return text.removeprefix(LISTENING)
    process.wait()
    raise Stop(f"the server did not start (exit code {process.returncode}); it said:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-8:]) or "(nothing)"


def wait_until_healthy(address: str) -> None:
    """Wait until the models are loaded.

    Raises:
        Stop: the server says that it cannot load them, or takes longer than a minute.
    """
    reason = "no answer"
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")
            if LOADING not in reason:
                raise Stop(f"the server cannot answer: {reason}; `antiphon doctor` says what is missing") from None
        except OSError as error:
            raise Stop(f"the server at {address} does not answer: {error}") from error
        time.sleep(0.1)
    raise Stop(f"the server is not ready after {START_S:.0f} s: {reason}")


def speak(texts: Sequence[str], files: Sequence[Path]) -> None:
    """Let the shipped voice say each text into a WAV file.

    Raises:
        Stop: the voice cannot speak here.
    """
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    pairs = [argument for text, path in zip(texts, files, strict=True) for argument in (text, str(path))]
    done = subprocess.run([*_SPEAK, *pairs], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        why = said[0] if said else f"exit code {done.returncode}"
        raise Stop(f"the voice cannot speak the questions ({why}); `antiphon doctor` says what is missing")


def antiphon(*arguments: str) -> str:
    """Run the command line as a user would; return what it printed.

    Raises:
        Stop: it failed.
    """
    done = subprocess.run([*_CLI, *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise Stop(f"`antiphon {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def replay_verdict(arguments: Sequence[str]) -> dict[str, object]:
    """Return what `antiphon replay … --json` says."""
    return msgspec.json.decode(antiphon("replay", *arguments, "--json"), type=dict[str, object])
