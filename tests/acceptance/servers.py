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
ROOT = Path(__file__).parents[2]
READY_S = 60.0


def free_port() -> int:
    """Return a port that is free now, for servers that must come back at the same address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """`antiphon serve` with a data directory; the same one may be started many times."""

    def __init__(
        self,
        data: Path,
        *,
        pipeline: str = "echo",
        port: int | None = None,
        extra: tuple[str, ...] = (),
        cli: tuple[str, ...] = CLI,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._data = data
        self._command = (
            *cli,
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
        assert self.launch(), self.messages()
        self._wait_until_healthy()

    def launch(self, **environment: str) -> bool:
        """Start it and wait until it listens; return False if it has ended before."""
        with self._messages.open("ab") as messages:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=messages,
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        assert line in ("", f"listening on {self.url}"), line
        return bool(line)

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

    def ask_to_stop(self) -> None:
        """Let it begin to end in order, and do not wait."""
        self._signal(signal.SIGTERM)

    def wait(self, patience_s: float = 30.0) -> int | None:
        """Wait until it has ended; return its exit code, None if it still runs then."""
        assert self._process is not None
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def _end(self, number: signal.Signals) -> int:
        self._signal(number)
        code = self.wait()
        assert code is not None, "it does not end"
        return code

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

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
