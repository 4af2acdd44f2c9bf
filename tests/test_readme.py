"""The programs of the README and of `docs/clients.md` run as they are printed; only the address is the tests."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from .transport.serving import serving

BLOCK = re.compile(r"```python\n(.*?)```", re.S)
SAYS = {
    "README.md": ["Say hello.", "capital of France", "capital of France"],
    "docs/clients.md": ["capital of France", "first sound", "[completed]"],
}
"""For each program something that it prints."""


def programs(root: Path, page: str) -> list[str]:
    return BLOCK.findall((root / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("page", "index"), [(page, index) for page, says in SAYS.items() for index in range(len(says))]
)
async def test_a_program_runs_as_it_is_printed(
    root: Path, tmp_path: Path, page: str, index: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving() as here:
        source = programs(root, page)[index].replace("http://127.0.0.1:8000", here.http)
        source = source.replace('load("voice")', 'load("echo")').replace('Path("out")', f"Path({str(tmp_path)!r})")
        with anyio.fail_after(30):
            # Each is a program of its own, with a loop of its own.
            await anyio.to_thread.run_sync(exec, compile(source, page, "exec"), {"__name__": "__main__"})
    assert SAYS[page][index] in capsys.readouterr().out


@pytest.mark.parametrize("page", SAYS)
def test_all_programs_are_run(root: Path, page: str) -> None:
    assert len(programs(root, page)) == len(SAYS[page])
