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


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose model takes turns, as a cascade does; the other one answers whenever it likes."""
    file = tmp_path / "turns.toml"
    file.write_text(TURNS)
    one = ServerProcess(tmp_path / "turns", pipeline=str(file))
    one.start()
    yield one
    one.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    one = ServerProcess(tmp_path_factory.mktemp("page") / "data")
    one.start()
    yield one
    one.close()
