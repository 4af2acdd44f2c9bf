"""The README's programs run as they are printed; only the address and the pipeline are the test's."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import anyio
import pytest

from .transport.serving import serving

BLOCK = re.compile(r"```python\n(.*?)```", re.S)


def programs(root: Path) -> list[str]:
    return BLOCK.findall((root / "README.md").read_text(encoding="utf-8"))


def program(source: str, address: str) -> Callable[[], Awaitable[None]]:
    """Return the snippet as a coroutine function, with its server and pipeline replaced."""
    source = source.replace("http://127.0.0.1:8000", address).replace('load("voice")', 'load("echo")')
    scope: dict[str, object] = {}
    exec(f"async def main():\n{textwrap.indent(source, '    ')}", scope)  # it is our own README
    return cast("Callable[[], Awaitable[None]]", scope["main"])


@pytest.mark.parametrize(("index", "says"), [(0, "Say hello."), (1, "capital of France"), (2, "capital of France")])
async def test_a_program_of_the_readme_runs(
    root: Path, index: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = programs(root)[index]
    with anyio.fail_after(30):
        async with serving() as here:
            await program(source, here.http)()
    assert says in capsys.readouterr().out


def test_all_programs_are_run(root: Path) -> None:
    assert len(programs(root)) == 3
