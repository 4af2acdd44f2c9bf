"""The child side of `ProcessHost`: `python -m antiphon.engine.host_process FD FACTORY ARGUMENTS NICENESS`.

FD is a connected socket, FACTORY `module:callable`, ARGUMENTS a JSON object of keyword arguments. The process
ends when the socket does: a parent that died takes its stages with it.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import cast

from antiphon.stages.base import AnyReport, Stage

from .framing import AnySaid, HostReady, HostUnavailable, Splitter, decode_message, encode
from .hosts import cannot_load, deliver, guarded

READ_BYTES = 1 << 18


class _Line:
    """The socket to the parent; any thread may speak."""

    def __init__(self, line: socket.socket) -> None:
        self._socket = line
        self._lock = threading.Lock()

    def say(self, said: AnySaid, sound: bytes = b"") -> None:
        frame = encode(said, sound)
        with self._lock:
            try:
                self._socket.sendall(frame)
            except OSError:
                os._exit(1)  # the parent is gone, and a stage's threads need not notice first

    def report(self, report: AnyReport, sound: bytes) -> None:
        self.say(report, sound)


def build(factory: str, arguments: str) -> Stage:
    """Make the stage that `module:callable` and its JSON arguments describe."""
    module, _, name = factory.partition(":")
    # A name from our own configuration: nothing narrower than object can be known about it here.
    made: object = getattr(import_module(module), name)(**json.loads(arguments))
    return cast("Stage", made)


def serve(line: socket.socket, make: Callable[[], Stage]) -> None:
    """Make and load the stage and carry messages to it until the socket ends."""
    out = _Line(line)
    stages: list[Stage] = []
    error = guarded("make", lambda: stages.append(make()))
    for stage in stages:
        error = guarded("start", partial(stage.start, out.report))
        if error is None:
            out.say(HostReady())
            _carry(line, stage, out)
        guarded("close", stage.close)
    if error is not None:
        # Another process would fare no better: the parent does not start one.
        out.say(HostUnavailable(cannot_load(error)))


def _carry(line: socket.socket, stage: Stage, out: _Line) -> None:
    splitter = Splitter()
    while data := _received(line):
        for head, _ in splitter.feed(data):
            deliver(stage, decode_message(head), out.report)


def _received(line: socket.socket) -> bytes:
    """Return what came, nothing at the end; a parent that died with words of ours unread is an end too."""
    try:
        return line.recv(READ_BYTES)
    except OSError:
        return b""


def main() -> None:
    """Run one stage process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us in order
    fd, factory, arguments, niceness = sys.argv[1:5]
    os.nice(int(niceness))
    with socket.socket(fileno=int(fd)) as line:
        serve(line, partial(build, factory, arguments))


if __name__ == "__main__":
    main()
