"""`antiphon serve` as its operator sees it: what it says, and how it ends."""

import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from msgspec import Struct
from rich.console import Console

from antiphon.engine.clock import VirtualClock
from antiphon.engine.opening import Opening
from antiphon.stages.scripted import ScriptedStage
from antiphon.transport import wire_server as out
from antiphon.transport.cli_serve import _told  # pyright: ignore[reportPrivateUsage]
from antiphon.transport.client import RealtimeClient, SessionLost, SessionOptions
from antiphon.transport.serve import ServeSettings, chosen, hub_for, tell_recovery

from tests.engine.worlds import GatedLog, killed, opening, settle, world

COMMAND = (sys.executable, "-m", "antiphon.transport.cli", "serve", "--port", "0")
TEXT = SessionOptions(modalities=["text"], turn_detection=None)


class Operator(Struct):
    """Somebody who has started a server in a process group of its own, and reads what it says."""

    process: Process
    address: str = ""
    said: str = ""

    async def read(self, words: str) -> None:
        """Read until it has said this."""
        assert self.process.stderr is not None
        with anyio.fail_after(60):
            while words not in self.said:
                self.said += (await self.process.stderr.receive()).decode()

    async def listens(self) -> None:
        """Read its address."""
        assert self.process.stdout is not None
        line = ""
        with anyio.fail_after(60):
            while "\n" not in line:
                line += (await self.process.stdout.receive()).decode()
        self.address = line.split()[-1]

    async def ends(self, with_signal: signal.Signals | None = signal.SIGINT) -> int:
        """Press Ctrl-C, as a terminal does: the whole group hears it; return the exit code."""
        if with_signal is not None:
            os.killpg(self.process.pid, with_signal)
        assert self.process.stderr is not None
        with anyio.fail_after(60):
            async for piece in self.process.stderr:
                self.said += piece.decode()
            return await self.process.wait()


@asynccontextmanager
async def served(data: Path, *arguments: str | Path) -> AsyncGenerator[Operator]:
    command = [*COMMAND, "--data", str(data), *map(str, arguments)]
    async with await anyio.open_process(command, start_new_session=True) as process:
        yield Operator(process)
        if process.returncode is None:
            process.kill()


@pytest.fixture
def apart(root: Path, tmp_path: Path) -> Path:
    """The echo, its stage in a process of its own."""
    text = (root / "stages/pipelines/echo.toml").read_text("utf-8").replace('"inline"', '"process"')
    (tmp_path / "apart.toml").write_text(text, "utf-8")
    return tmp_path / "apart.toml"


async def test_ctrl_c_ends_the_server_and_its_stages_in_order(apart: Path, tmp_path: Path) -> None:
    async with served(tmp_path / "data", "--pipeline", apart) as operator:
        await operator.listens()
        await operator.read("ready")
        async with RealtimeClient(operator.address, TEXT) as client:
            client.send_text("hello")
            client.create_response()
            await client.wait_for(out.ResponseDone)
            code = await operator.ends()
            await client.wait_for(out.SessionGoingAway)
    assert code == 0, operator.said
    assert str(tmp_path / "data") in operator.said
    assert "stopping" in operator.said
    assert operator.said.endswith("stopped; 1 session can be resumed\n")
    assert "Traceback" not in operator.said
    assert "no stage process" not in operator.said
    assert "\x1b" not in operator.said


async def test_what_the_last_run_left_is_told_when_it_is_taken_over(tmp_path: Path) -> None:
    before = ServeSettings(data=tmp_path / "data")
    async with hub_for(chosen(before), before) as hub:
        for n in range(2):
            await hub.open(opening(f"open-{n}"))
    async with served(tmp_path / "data", "--pipeline", "echo") as operator:
        await operator.read("2 sessions of the last run can be resumed\n")
        assert await operator.ends() == 0
    assert operator.said.endswith("stopped; 2 sessions can be resumed\n")


async def test_how_far_the_taking_over_is_and_what_it_could_not() -> None:
    clock, log = VirtualClock(), GatedLog()
    async with killed(ScriptedStage(), log, clock) as hub:
        left = [(await hub.open(opening(f"open-{n}"))).session for n in range(2)]
        left.append((await hub.open(Opening(dialect="ga", control_id="ga"))).session)
    log.gated, log.senseless = left, left[0]
    screen = StringIO()
    told = _told(ServeSettings(), Console(file=screen, width=120))
    async with world(log=log, clock=clock) as here, anyio.create_task_group() as group:
        group.start_soon(tell_recovery, here.hub, told)
        await settle()
        await here.advance(1_900)
        assert screen.getvalue() == ""
        await here.advance(100)
        assert screen.getvalue() == "taking over the sessions of the last run: 0 of 3\n"
        log.gate.set()
        await settle()
    said = screen.getvalue().splitlines()[-1]
    assert said.startswith("1 session of the last run can be resumed, 1 ended with it, 1 could not be taken over")


async def test_ctrl_c_while_the_stages_load_does_the_same(apart: Path, tmp_path: Path) -> None:
    async with served(tmp_path / "data", "--pipeline", apart) as operator:
        await operator.listens()
        code = await operator.ends()
    assert code == 0, operator.said
    assert operator.said.endswith("stopped; no session is left to resume\n")
    assert "Traceback" not in operator.said
    assert "no stage process" not in operator.said


async def test_a_pipeline_without_models_claims_none(tmp_path: Path) -> None:
    async with served(tmp_path / "data", "--pipeline", "echo") as operator:
        await operator.read("ready\n")
        assert await operator.ends(signal.SIGTERM) == 0
    assert "are loaded" not in operator.said


async def test_a_request_that_is_none_is_told_in_the_log(tmp_path: Path) -> None:
    async with served(tmp_path / "data", "--pipeline", "echo") as operator:
        await operator.listens()
        port = int(operator.address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b"\x00\x01\r\n\r\n")
            await operator.read("Invalid HTTP request received.")
        await operator.ends()
    (told,) = [line for line in operator.said.splitlines() if "Invalid HTTP request" in line]
    assert "warning" in told


@pytest.mark.parametrize("strict", [False, True])
async def test_an_unknown_model_is_served_unless_the_operator_is_strict(tmp_path: Path, strict: bool) -> None:
    extra = ["--strict-model"] if strict else []
    async with served(tmp_path / "data", "--pipeline", "echo", *extra) as operator:
        await operator.listens()
        async with RealtimeClient(operator.address, SessionOptions(model="echo")) as client:
            assert client.session_id
        unknown = RealtimeClient(operator.address, SessionOptions(model="gpt-realtime"))
        if strict:
            with pytest.raises(SessionLost, match=r"^model_not_found: There is no model 'gpt-realtime'\.$"):
                await unknown.__aenter__()
        else:
            async with unknown as client:
                assert client.session_id
        await operator.ends()


async def test_a_model_that_was_named_and_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    for option, named in (("--llm", "nosuch"), ("--vad", "nosuch"), ("--asr", "./nowhere")):
        async with served(tmp_path / "data", "--pipeline", "voice", option, named) as operator:
            code = await operator.ends(None)
        told = [line for line in operator.said.splitlines() if line.startswith("antiphon:")]
        assert code == 2, operator.said
        assert len(told) == 1
        assert f"{named!r}" in told[0]
        assert "Traceback" not in operator.said


async def test_a_detector_that_is_missing_is_told_at_the_start(root: Path, tmp_path: Path) -> None:
    text = (root / "stages/pipelines/echo.toml").read_text("utf-8")
    (tmp_path / "deaf.toml").write_text(text.replace("scorers:energy", "no_such_module:scorer"), "utf-8")
    async with served(tmp_path / "data", "--pipeline", tmp_path / "deaf.toml") as operator:
        await operator.read("ready")
        await operator.ends()
    assert "antiphon: the voice detector cannot be loaded: " in operator.said
    assert "Loudness takes its place" in operator.said
    assert "ready, except the voice detector\n" in operator.said


async def test_a_damaged_log_is_one_sentence_at_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with served(data, "--pipeline", "echo") as operator:
        await operator.listens()
        async with RealtimeClient(operator.address, TEXT) as client:
            assert client.session_id
        await operator.ends()
    database = bytearray((data / "log.sqlite3").read_bytes())
    database[4096:] = b"\xa5" * (len(database) - 4096)
    (data / "log.sqlite3").write_bytes(database)
    async with served(data, "--pipeline", "echo") as operator:
        assert await operator.ends(None) == 2
    assert operator.said.startswith("antiphon: cannot read the log: ")
    assert "restore the directory from a backup" in operator.said
    assert len(operator.said.splitlines()) == 1
