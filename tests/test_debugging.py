"""The commands of `docs/debugging.md` do what the page says they do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.talks import keep, talk

BLOCK = re.compile(r"```\n(.*?)```", re.S)
SECTIONS = (
    "Decide it again",
    "What was true at any moment",
    "Walk through it",
    "Carry a session to another machine",
)
"""Those whose commands are run here, in this order."""
PLACES = {"412": "30", "12.5s": "0.5s"}
"""Places of the page, and such as are in the session of this test."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data directory in which one session was recorded."""
    root = tmp_path_factory.mktemp("page")
    anyio.run(keep, root / "antiphon-data", talk("All is well.", "").log)
    return root


def commands(page: str, section: str) -> list[str]:
    """Return the lines of a section that somebody would type."""
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line.partition("  #")[0].strip() for block in BLOCK.findall(text) for line in block.splitlines()]
    return [line for line in lines if line.startswith("antiphon ") or "| antiphon " in line]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_commands_of_a_section_run_as_they_are_printed(root: Path, place: Path, section: str) -> None:
    found = commands((root / "docs" / "debugging.md").read_text(encoding="utf-8"), section)
    assert found
    for line in found:
        typed = line.replace("SESSION", "latest").replace("resp_bc8f", "resp_")
        for theirs, ours in PLACES.items():
            typed = typed.replace(theirs, ours)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'antiphon() {{ "{sys.executable}" -m antiphon "$@"; }}; {typed}'],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(root / "src")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), typed
        assert done.stdout, typed
