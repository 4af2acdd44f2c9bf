"""One round: a server that is killed again and again, clients that talk, and the check of what is left."""

import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
from msgspec import Struct, field

from antiphon.events.config import Dialect
from antiphon.transport.client import SessionLost

from tests.chaos import checker
from tests.chaos.checker import Findings
from tests.chaos.clients import Client, DuplexClient, PlainClient
from tests.chaos.disks import Disk, disk
from tests.chaos.journal import Journal, save
from tests.chaos.lives import Lives
from tests.chaos.talk import Talk, options, patch
from tests.simulation.peer import Shown

Pipeline = Literal["echo", "cascade", "process"]
"""What serves: the echo, or the scripted cascade, inline or in a process of its own."""
CASCADE = """
name = "chaos"
model = "chaos-1"
plugin = "cascade"
max_sessions = 64
[stage]
factory = "tests.chaos.stage:cascade"
hosting = "{hosting}"
[stage.arguments]
seed = "{mark}"
[voice_activity]
factory = "antiphon.stages.scorers:energy"
"""

LIFE_S = 15.0
"""How long a life of the server may take, from its start to its end."""

END_S = 90.0
"""How long clients may take to come to an end, once nobody is killed any more."""

UNAVAILABLE = "storage_unavailable"
JOURNALS = "journals.msgpack"


class Plan(Struct, frozen=True):
    """What the seed of a round decides beforehand."""

    seed: int
    kills: int
    pipeline: Pipeline
    clients: tuple[Dialect, ...]
    fills: bool = False
    """Whether the disk is full now and then."""
    fault: str = ""
    """A fault that is put into the product, to see it found."""

    @classmethod
    def drawn(cls, seed: int, kills: int) -> "Plan":
        """Return the round of a seed."""
        rng = random.Random(f"round {seed}")
        kinds: tuple[Pipeline, ...] = ("echo", "cascade", "echo", "process")
        more: list[Dialect] = [rng.choice(("duplex", "ga")) for _ in range(rng.randint(1, 3))]
        return cls(seed, kills, kinds[seed % len(kinds)], ("duplex", "duplex", "ga", *more), fills=seed % 5 == 0)


class Outcome(Struct):
    """What a round has come to."""

    kills: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    kept: Path | None = None
    """Where the data directory of a round was left in which something is wrong."""


class Round:
    """Lives in `run`; everything is below `place`."""

    def __init__(self, plan: Plan, place: Path, made: Callable[[Path], Disk] = disk) -> None:
        self.plan = plan
        self.place = place
        self.data = place / "data"
        self.journals: list[Journal] = []
        self.findings = Findings()
        self.finishing = False
        pipeline = "echo"
        self.mark = f"{plan.seed} {uuid.uuid4().hex}"
        if plan.pipeline != "echo":
            described = place / "cascade.toml"
            hosting = "process" if plan.pipeline == "process" else "inline"
            described.write_text(CASCADE.format(hosting=hosting, mark=self.mark))
            pipeline = str(described)
        self.disk = made(self.data) if plan.fills else None
        self.lives = Lives(self.data, pipeline, plan.seed, self.disk, plan.fault)

    async def run(self) -> Outcome:
        """Live through it, and look at what is left."""
        wrong, server = self.findings.wrong, self.lives.server
        try:
            with anyio.move_on_after(END_S + self.plan.kills * LIFE_S) as scope:
                async with anyio.create_task_group() as group:
                    for number, dialect in enumerate(self.plan.clients):
                        group.start_soon(self._client, number, dialect)
                    try:
                        await self.lives.end_all(self.plan.kills)
                    except AssertionError as error:
                        wrong.append(f"the server: {error}")
                        group.cancel_scope.cancel()
                    self.finishing = True
                    scope.deadline = min(scope.deadline, anyio.current_time() + END_S)
            if scope.cancelled_caught:
                wrong.append("clients did not come to an end")
            elif not wrong and (code := await anyio.to_thread.run_sync(server.stop)):
                wrong.append(f"the server ended with {code}")
        finally:
            await anyio.to_thread.run_sync(server.close)
        if not await self._alone():
            wrong.append("a stage has outlived its server")
        if "Traceback" in server.messages():
            wrong.append("the server has logged an error of its own")
        self.findings.join(await checker.check(self.data, self.journals))
        save(self.journals, self.place / JOURNALS)
        return Outcome(self.lives.kills, self.findings)

    async def _alone(self) -> bool:
        """Wait until no process of a stage is left; each ends when it notices that its server has."""
        for _ in range(200):
            if not _running(self.mark):
                return True
            await anyio.sleep(0.05)
        return False

    def close(self) -> None:
        """Let go of the disk; nothing of the data can be read any more."""
        if self.disk is not None:
            self.disk.close()

    # -- the clients -----------------------------------------------------------------------------------------

    async def _client(self, number: int, dialect: Dialect) -> None:
        """Have one session after the other."""
        rng = random.Random(f"client {self.plan.seed} {number}")
        session = 0
        while not self.finishing:
            journal = Journal(f"client {number}.{session}", dialect)
            talk = Talk(rng, dialect)
            session += 1
            try:
                async with self._made(rng, dialect, journal, talk) as client:
                    self.journals.append(journal)
                    await talk.go_on(client, rng.randint(20, 90), partial(self._over, journal))
                    await client.finish()
            except SessionLost as lost:
                if not journal.session:
                    await anyio.sleep(rng.uniform(0.02, 0.2))  # nobody was there to open it
                    continue
                journal.lost = journal.lost or f"{lost.code}: {lost}"

    def _over(self, journal: Journal) -> bool:
        return self.finishing or bool(journal.lost)

    def _made(self, rng: random.Random, dialect: Dialect, journal: Journal, talk: Talk) -> Client:
        hear = partial(self._hear, talk)
        if dialect == "duplex":
            return DuplexClient(self.lives.server.url, options(rng), journal, hear)
        return PlainClient(self.lives.server.url, patch(rng), journal, hear)

    def _hear(self, talk: Talk, shown: Shown) -> None:
        if shown.error is not None and shown.error.get("code") == UNAVAILABLE:
            self.lives.told.set()
        talk.heard(shown)


def _running(mark: str) -> list[str]:
    """Return the processes that were given a mark, where such a thing can be asked."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found
