"""A stage in a process of its own: no model's GIL time reaches the event loop, and a crash stays there."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping

import anyio
import msgspec
import structlog
from msgspec import structs

from antiphon.events.commands import StageLost, StageReleased
from antiphon.stages.base import Abort, AnyMessage, Append, Confirm, Release, Submit

from .framing import (
    AnySaid,
    BrokenFrame,
    HostReady,
    HostUnavailable,
    Splitter,
    decode_said,
    encode,
)
from .host import OnReport
from .hosts import CLOSED, BaseHost, unserved

_log = structlog.get_logger()

NICENESS = 5
BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
READ_BYTES = 1 << 18
CLOSE_S = 5.0


class ProcessHost(BaseHost):
    """Runs the stage that `factory` (`module:callable`, called with `arguments`) makes, in a child process.

    When the child dies, every live request is reported as `StageLost` and a new child starts after 0.5 s,
    doubling to 30 s while it dies again before it was ready, or cannot be started. Until then new requests wait
    for it (E20), as they do while a child loads; they fail at once when there will be none.
    """

    def __init__(self, factory: str, arguments: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._command = [factory, json.dumps(dict(arguments or {})), str(NICENESS)]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_report: OnReport | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._splitter = Splitter()
        self._unsent: deque[memoryview] = deque()
        self._live: set[str] = set()
        self._backoff_s = BACKOFF_S
        self._restart: asyncio.TimerHandle | None = None
        self._dead: list[subprocess.Popen[bytes]] = []
        self._paused = False

    async def start(self, on_report: OnReport) -> None:
        """Start the child; it loads the stage by itself."""
        self._loop = asyncio.get_running_loop()
        self._on_report = on_report
        self._spawn()

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return self._child.pid if self._child is not None else None

    def send(self, message: AnyMessage) -> None:
        """Write the message to the child, keep it for the next one, or answer for one that will not come."""
        coming = self._restart is not None
        if self.unavailable is not None or (self._socket is None and not coming):
            self._answer_without_child(message)
            return
        if isinstance(message, Submit):
            self._live.add(message.request)
        elif coming:
            # The next child knows only what it is given: what went with the last one is answered for here.
            for part in self._split(message):
                self._pass_on(part)
            return
        self._pass_on(message)

    def _split(self, message: Append | Confirm | Abort | Release) -> list[AnyMessage]:
        """Answer for the requests that no child has; return what is left to be said of the others."""
        if isinstance(message, Append | Confirm):
            if message.request in self._live:
                return [message]
            self._answer_without_child(message)
            return []
        kept = tuple(request for request in message.requests if request in self._live)
        gone = tuple(request for request in message.requests if request not in self._live)
        self._answer_without_child(structs.replace(message, requests=gone))
        return [structs.replace(message, requests=kept)] if kept else []

    def _pass_on(self, message: AnyMessage) -> None:
        self._unsent.append(memoryview(encode(message)))
        if len(self._unsent) == 1:
            self._write()

    def pause(self, paused: bool) -> None:
        """Do not read the child's socket: when it is full, the stage waits to say more."""
        self._paused = paused
        self._watch()

    # -- the child -------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        self._restart = None
        try:
            self._child, line = _child(self._command)
        except OSError as error:
            self._try_later(f"The stage's process cannot be started: {error.strerror}.")
            return
        line.setblocking(False)
        self._socket = line
        self._splitter = Splitter()
        self._watch()
        self._write()

    def _watch(self) -> None:
        line = self._socket
        if line is None:
            return
        if self._paused:
            self._running().remove_reader(line.fileno())
        else:
            self._running().add_reader(line.fileno(), self._read)

    def _try_later(self, reason: str, lost: int = 0) -> None:
        _log.warning("no stage process", reason=reason, lost=lost, restart_s=self._backoff_s)
        self._wait_for(reason)
        self._restart = self._running().call_later(self._backoff_s, self._spawn)
        self._backoff_s = min(self._backoff_s * 2, MAX_BACKOFF_S)

    def _read(self) -> None:
        line = self._socket
        if line is None:
            return
        try:
            data = line.recv(READ_BYTES)
            frames = self._splitter.feed(data)
        except BlockingIOError:
            return
        except (OSError, BrokenFrame):
            data, frames = b"", []
        for head, body in frames:
            try:
                said = decode_said(head)
            except msgspec.DecodeError:
                _log.error("a stage process said something unknown", size=len(head))
                continue
            self._take(said, body)
        if not data:
            self._lost()

    def _take(self, said: AnySaid, sound: bytes) -> None:
        match said:
            case HostReady():
                self._backoff_s = BACKOFF_S
                self._loaded()
            case HostUnavailable(reason=reason):
                self._cannot_load(reason)
            case _:
                if isinstance(said, StageReleased | StageLost):
                    self._live.discard(said.request)
                if self._on_report is not None:
                    self._on_report(said, sound)

    def _lost(self) -> None:
        """The child is gone: say so for every request, and start another one later."""
        self._drop_line()
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            self._dead.append(child)
        self._dead = [child for child in self._dead if child.poll() is None]
        lost, self._live = self._live, set[str]()
        if self._on_report is None:
            return
        if self.unavailable is None:
            self._try_later("The stage's process ended and is being restarted.", len(lost))
        for request in lost:
            self._on_report(StageLost(request=request), b"")

    def _drop_line(self) -> None:
        if self._socket is not None:
            line, self._socket = self._socket, None
            self._running().remove_reader(line.fileno())
            self._running().remove_writer(line.fileno())
            line.close()
        self._unsent.clear()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the host was not started")
        return self._loop

    # -- writing ---------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write what the socket takes; the rest when it takes more."""
        line = self._socket
        if line is None:
            return
        try:
            while self._unsent:
                sent = line.send(self._unsent[0])
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._running().add_writer(line.fileno(), self._write)
            return
        except OSError:
            self._unsent.clear()  # the reader sees the end of the socket and does the rest
        self._running().remove_writer(line.fileno())

    def _answer_without_child(self, message: AnyMessage) -> None:
        if self._on_report is None or not isinstance(message, Submit | Abort | Release):
            return
        for said in unserved(message):
            self._running().call_soon(self._on_report, said, b"")

    # -- the end ---------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close the socket, which ends the child; kill it if it does not end within five seconds."""
        self._on_report = None
        self._wait_for(CLOSED)
        if self._restart is not None:
            self._restart.cancel()
        if self._loop is not None:
            self._drop_line()
        children, self._dead = self._dead, []
        if self._child is not None:
            children.append(self._child)
            self._child = None
        with anyio.CancelScope(shield=True):
            for child in children:
                await anyio.to_thread.run_sync(_end, child)


def _child(command: list[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a child; return it and the line to it.

    Raises:
        OSError: there is no descriptor, memory or process to be had now; nothing is left open.
    """
    mine, theirs = socket.socketpair()
    with theirs:
        module = [sys.executable, "-m", "antiphon.engine.host_process", str(theirs.fileno())]
        # The child inherits what is blocked: before it can ignore Ctrl-C itself, it must not die of it either.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # A plain exec, not a fork of this process: the child shares nothing but the socket.
            return subprocess.Popen(module + command, pass_fds=(theirs.fileno(),)), mine
        except BaseException:
            mine.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
