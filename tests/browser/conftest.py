"""One server for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.servers import ServerProcess

TURNS = """
name = "turns"
model = "turns-1"
plugin = "cascade"
max_sessions = 8

[stage]
factory = "antiphon.stages.echo:EchoStage"
hosting = "inline"

[voice_activity]
factory = "antiphon.stages.scorers:energy"
"""


def serving(folder: Path, pipeline: str) -> Iterator[ServerProcess]:
    file = folder / "pipeline.toml"
    file.write_text(pipeline)
    one = ServerProcess(folder / "data", pipeline=str(file))
    one.start()
    yield one
    one.close()


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose model takes turns, as a cascade does; that of `server` answers whenever it likes."""
    yield from serving(tmp_path, TURNS)


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose model sees: the session half of AURA, in front of the echo."""
    yield from serving(tmp_path, TURNS.replace("cascade", "aura").replace("max_sessions = 8", "max_sessions = 1"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    one = ServerProcess(tmp_path_factory.mktemp("page") / "data")
    one.start()
    yield one
    one.close()
