"""Real servers in processes of their own, that can be killed and started again on the same port and data."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

CLI = (sys.executable, "-m", "antiphon.transport.cli")
READY_S = 60.0


def free_port() -> int:
    """Return a port that is free now, for servers that must come back at the same address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """`antiphon serve` with a data directory; the same one may be started many times."""

    def __init__(
        self, data: Path, *, pipeline: str = "echo", port: int | None = None, extra: tuple[str, ...] = ()
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._data = data
        self._command = (
            *CLI,
            "serve",
            "--pipeline",
            pipeline,
            "--port",
            str(self.port),
            "--data",
            str(data),
            *extra,
        )
        self._messages = data.parent / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens and its stages are loaded."""
        with self._messages.open("ab") as messages:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=messages, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line.strip() == f"listening on {self.url}", self.messages()
        self._wait_until_healthy()

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except urllib.error.HTTPError as error:
                error.close()
                assert self._process is not None
                assert self._process.poll() is None, self.messages()
                os.sched_yield()
        raise AssertionError(f"not healthy after {READY_S} s: {self.messages()}")

    def kill(self) -> None:
        """End it as a crash does: SIGKILL, nothing is flushed or said."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it in order; return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    def close(self) -> None:
        """End it if it still runs."""
        if self._process is not None:
            self.kill()

    def messages(self) -> str:
        """Return what it told on standard error."""
        return self._messages.read_text(errors="replace") if self._messages.exists() else ""


def antiphon(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    return subprocess.run([*CLI, *arguments], capture_output=True, text=True, check=False, timeout=120)
