"""One round: a server that is killed again and again, clients that talk, and the check of what is left."""

import random
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
from msgspec import Struct, field

from antiphon.events.config import Dialect
from antiphon.transport.client import SessionLost

from tests.acceptance.servers import ServerProcess
from tests.chaos import checker
from tests.chaos.checker import Findings
from tests.chaos.clients import Client, DuplexClient, PlainClient
from tests.chaos.journal import Journal, save
from tests.chaos.moments import RECOVERING, RUNNING
from tests.chaos.server import SETTING
from tests.chaos.talk import Talk, options, patch

CLI = (sys.executable, "-m", "tests.chaos.server")
Pipeline = Literal["echo", "cascade"]
CASCADE = """
name = "chaos"
model = "chaos-1"
plugin = "cascade"
max_sessions = 64
[stage]
factory = "tests.chaos.stage:cascade"
hosting = "inline"
[stage.arguments]
seed = "{seed}"
[voice_activity]
factory = "antiphon.stages.scorers:energy"
"""

OUTSIDE, STARTING, STOPPING = "at any moment", "while it starts", "while it stops"
"""Kills from outside, that no place in the product decides."""

PATIENCE_S = 4.0
"""A server that has not come to its moment by then is killed from outside."""

END_S = 90.0
"""How long clients may take to come to an end, once nobody is killed any more."""

JOURNALS = "journals.msgpack"
KILLED = -9


class Plan(Struct, frozen=True):
    """What the seed of a round decides beforehand."""

    seed: int
    kills: int
    pipeline: Pipeline
    clients: tuple[Dialect, ...]

    @classmethod
    def drawn(cls, seed: int, kills: int) -> "Plan":
        """Return the round of a seed."""
        rng = random.Random(f"round {seed}")
        pipeline: Pipeline = "cascade" if seed % 2 else "echo"
        more: list[Dialect] = [rng.choice(("duplex", "ga")) for _ in range(rng.randint(1, 3))]
        return cls(seed, kills, pipeline, ("duplex", "duplex", "ga", *more))


class Outcome(Struct):
    """What a round has come to."""

    kills: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    kept: Path | None = None
    """Where the data directory of a round was left in which something is wrong."""


class Round:
    """Lives in `run`; everything is below `place`."""

    def __init__(self, plan: Plan, place: Path) -> None:
        self.plan = plan
        self.place = place
        self.data = place / "data"
        self.journals: list[Journal] = []
        self.outcome = Outcome()
        self.rng = random.Random(f"kills {plan.seed}")
        self.finishing = False
        pipeline = "echo"
        if plan.pipeline == "cascade":
            described = place / "cascade.toml"
            described.write_text(CASCADE.format(seed=plan.seed))
            pipeline = str(described)
        self.server = ServerProcess(self.data, pipeline=pipeline, cli=CLI)

    async def run(self) -> Outcome:
        """Live through it, and look at what is left."""
        wrong = self.outcome.findings.wrong
        try:
            with anyio.move_on_after(self._longest_s) as scope:
                async with anyio.create_task_group() as group:
                    for number, dialect in enumerate(self.plan.clients):
                        group.start_soon(self._client, number, dialect)
                    await self._kill_again_and_again()
                    self.finishing = True
                    scope.deadline = min(scope.deadline, anyio.current_time() + END_S)
            if scope.cancelled_caught:
                wrong.append("clients did not come to an end")
            code = await anyio.to_thread.run_sync(self.server.stop)
            if code:
                wrong.append(f"the server ended with {code}")
        except AssertionError as error:
            wrong.append(f"the server: {error}")
        finally:
            await anyio.to_thread.run_sync(self.server.close)
        if "Traceback" in self.server.messages():
            wrong.append("the server has logged an error of its own")
        self.outcome.findings.join(await checker.check(self.data, self.journals))
        save(self.journals, self.place / JOURNALS)
        return self.outcome

    @property
    def _longest_s(self) -> float:
        return END_S + self.plan.kills * (PATIENCE_S + 10)

    # -- the server ------------------------------------------------------------------------------------------

    async def _kill_again_and_again(self) -> None:
        again = False
        for number in range(self.plan.kills):
            # What died while it recovered often dies there again: the second time with half of it done.
            recovering = number > 0 and (again or self.rng.random() < 0.25)
            moment = self._moment(recovering)
            again = recovering and self.rng.random() < 0.4
            self.outcome.kills[await self._life(moment, f"{self.plan.seed}.{number}")] += 1
        await self._launch(f"{self.plan.seed}.end")

    def _moment(self, recovering: bool) -> str:
        if recovering:
            return self.rng.choice((*RECOVERING, STARTING))
        return self.rng.choice((*RUNNING, *RUNNING, OUTSIDE, OUTSIDE, OUTSIDE, STOPPING))

    async def _launch(self, setting: str) -> bool:
        return await anyio.to_thread.run_sync(lambda: self.server.launch(**{SETTING: setting}))

    async def _life(self, moment: str, seed: str) -> str:
        """Let a server live until it is dead; return when that was."""
        planned = moment in RUNNING or moment in RECOVERING
        listens = await self._launch(f"{seed} {moment}" if planned else seed)
        if planned:
            code = await anyio.to_thread.run_sync(self.server.wait, PATIENCE_S)
            if code is None:
                await anyio.to_thread.run_sync(self.server.kill)
                return OUTSIDE
            assert code == KILLED, f"it ended by itself with {code}: {self.server.messages()[-2000:]}"
            return moment
        assert listens, f"it did not start: {self.server.messages()[-2000:]}"
        await anyio.sleep(self.rng.uniform(0.0, 0.1) if moment == STARTING else self.rng.uniform(0.1, 1.2))
        if moment == STOPPING:
            self.server.ask_to_stop()
            await anyio.sleep(self.rng.uniform(0.0, 0.05))
        await anyio.to_thread.run_sync(self.server.kill)
        return moment

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
                    await talk.go_on(client, rng.randint(20, 150), partial(self._over, journal))
                    await client.finish()
            except SessionLost as lost:
                if not journal.session:
                    await anyio.sleep(rng.uniform(0.02, 0.2))  # nobody was there to open it
                    continue
                journal.lost = journal.lost or f"{lost.code}: {lost}"

    def _over(self, journal: Journal) -> bool:
        return self.finishing or bool(journal.lost)

    def _made(self, rng: random.Random, dialect: Dialect, journal: Journal, talk: Talk) -> Client:
        if dialect == "duplex":
            return DuplexClient(self.server.url, options(rng), journal, talk.heard)
        return PlainClient(self.server.url, patch(rng), journal, talk.heard)
