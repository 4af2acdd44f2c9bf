"""The child side of `ProcessHost`: `python -m antiphon.engine.host_process FD FACTORY ARGUMENTS NICENESS`.

FD is a connected socket, FACTORY `module:callable`, ARGUMENTS a JSON object of keyword arguments. The process
ends when the socket does: a parent that died takes its stages with it.
"""

import json
import os
import socket
import sys
import threading
from importlib import import_module
from typing import cast

from antiphon.stages.base import AnyReport, Stage, StageUnavailable

from .framing import AnySaid, HostReady, HostUnavailable, Splitter, decode_message, encode
from .hosts import deliver

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


def serve(line: socket.socket, stage: Stage) -> None:
    """Load the stage and carry messages to it until the socket ends."""
    out = _Line(line)
    try:
        stage.start(out.report)
    except StageUnavailable as error:
        out.say(HostUnavailable(str(error)))
        stage.close()
        return
    out.say(HostReady())
    splitter = Splitter()
    while data := line.recv(READ_BYTES):
        for head, _ in splitter.feed(data):
            deliver(stage, decode_message(head), out.report)
    stage.close()


def main() -> None:
    """Run one stage process."""
    fd, factory, arguments, niceness = sys.argv[1:5]
    os.nice(int(niceness))
    with socket.socket(fileno=int(fd)) as line:
        serve(line, build(factory, arguments))


if __name__ == "__main__":
    main()
