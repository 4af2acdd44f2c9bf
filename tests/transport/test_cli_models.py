"""`antiphon models`: what is here, and what a server serves; and how the command line begins."""

import json
import signal
import subprocess
import sys

import anyio.to_thread
import pytest

from antiphon.engine.settings import HubSettings
from antiphon.transport import pipelines
from antiphon.transport.access import Access
from antiphon.transport.cli_errors import Stop
from antiphon.transport.cli_models import Served, served
from antiphon.transport.keys import Keys

from .serving import serving
from .test_cli_talk import Run, run

__all__ = ["run"]


def test_what_is_here_is_listed_without_a_server(run: Run) -> None:
    code, said, _ = run("models")
    assert code == 0
    for name in pipelines.shipped():
        assert name in said
    code, said, _ = run("models", "--json")
    assert {"id": "echo", "pipeline": "echo", "plugin": "echo", "sessions": 1000} in json.loads(said)


async def asked(address: str, key: str | None = None) -> list[Served] | str:
    """Return what a server lists, or why not."""

    def ask() -> list[Served] | str:
        try:
            return served(address, key, None)
        except Stop as stop:
            return stop.message

    return await anyio.to_thread.run_sync(ask)


@pytest.mark.anyio
async def test_a_server_is_asked_for_what_it_serves() -> None:
    settings = HubSettings(served_model="big", aliases=("small",))
    async with serving(access=Access(keys=Keys.of("k")), settings=settings) as here:
        place = f"127.0.0.1:{here.server.port}"
        for address in (place, f"http://{place}/", here.url, f"ws://{place}/v1"):
            rows = await asked(address, "k")
            assert isinstance(rows, list)
            assert [(row.id, row.root) for row in rows] == [("big", "big"), ("small", "big")]
        assert "wants a key" in str(await asked(place))
        assert "does not take this key" in str(await asked(place, "x"))
        assert "no key has" in str(await asked(place, "x\ny"))
        assert "lists no models" in str(await asked(f"{place}/elsewhere", "k"))


@pytest.mark.parametrize(
    ("address", "code", "why"),
    [
        ("ftp://x", 2, "is no address"),
        ("ws://x:99999", 2, "is no address"),
        ("ws://127.0.0.1:1", 1, "there is no server"),
    ],
)
def test_without_a_server_one_sentence_says_so(run: Run, address: str, code: int, why: str) -> None:
    ended, said, told = run("models", "--url", address)
    assert (ended, said) == (code, "")
    assert why in told
    assert told.count("\n") == 1


def test_flags_have_no_type_in_the_help(run: Run) -> None:
    for words in (("--help",), ("serve", "--help"), ("log", "rm", "--help")):
        assert "bool" not in run(*words)[1]


def test_ctrl_c_while_the_program_is_loaded_says_nothing() -> None:
    program = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "antiphon.transport.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from antiphon.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
