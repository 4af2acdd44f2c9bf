"""The README's programs run as they are printed; only the address and the pipeline are the test's."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from .transport.serving import serving

BLOCK = re.compile(r"```python\n(.*?)```", re.S)


def programs(root: Path) -> list[str]:
    return BLOCK.findall((root / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("index", "says"), [(0, "Say hello."), (1, "capital of France"), (2, "capital of France")])
async def test_a_program_of_the_readme_runs(
    root: Path, index: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving() as here:
        source = programs(root)[index].replace("http://127.0.0.1:8000", here.http)
        source = source.replace('load("voice")', 'load("echo")')
        with anyio.fail_after(30):
            # Each is a program of its own, with a loop of its own.
            await anyio.to_thread.run_sync(exec, compile(source, "README.md", "exec"), {"__name__": "__main__"})
    assert says in capsys.readouterr().out


def test_all_programs_are_run(root: Path) -> None:
    assert len(programs(root)) == 3
