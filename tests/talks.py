"""A spoken session for tests that read logs, kept as a server would, and the command line that reads it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from antiphon.engine.datadir import DataDirectory
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.audio import SampleRef
from antiphon.events.events import AudioDelta, AudioReceived
from antiphon.events.log import LogError, SampleWrite, Transaction
from antiphon.transport import cli

from tests.sessions.world import QUICK_VAD, World

Run = Callable[..., tuple[int, str, str]]
"""Runs the command line; returns its exit code, what it printed, and what it complained of."""


def talk(*answers: str) -> World:
    """Let a user say something for each answer; each but the first interrupts the one before. "": there is none."""
    world = World(vad=QUICK_VAD)
    for at, answer in enumerate(answers):
        if at:
            world.wait(200)
        for score in [20] * (0 if at else 3) + [900] * 10 + [20] * 12:
            world.append(1, score=score)
        if answer:
            world.produce(answer, 300)
    world.finish()
    return world


def silence(ref: SampleRef) -> bytes:
    """Return the sound of nothing."""
    return bytes(ref.size)


async def keep(root: Path, log: Sequence[Transaction], sound: Callable[[SampleRef], bytes] = silence) -> None:
    """Write the log of `duplex-1` as a server would, with its sound."""
    failed: list[LogError | None] = []
    with DataDirectory(root) as data:
        store = await SqliteLog.open(data)
        await store.acquire("duplex-1")
        for transaction in log:
            refs = [event.ref for event in transaction.events if isinstance(event, AudioReceived | AudioDelta)]
            store.append("duplex-1", transaction, [SampleWrite(ref, sound(ref)) for ref in refs], failed.append)
        await store.aclose()
    assert failed == [None] * len(log)


def in_process(monkeypatch: pytest.MonkeyPatch, read: Callable[[], tuple[str, str]]) -> Run:
    """Return the command line in this process; `read` gives what it wrote since the last time."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["antiphon", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *read()

    return run
