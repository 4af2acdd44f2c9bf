"""The pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from .sessions import phase_tables


def test_the_design_page_draws_the_tables_that_run(root: Path) -> None:
    page = (root / "docs" / "design.md").read_text(encoding="utf-8")
    assert phase_tables.section(page) == phase_tables.rendered(), "run: python tests/sessions/phase_tables.py"


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_readme_names_the_two_commands_first_and_they_exist(root: Path, target: str) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert f"\n{target}:" in makefile
    assert readme.index(f"make {target}") < readme.index("## ")


def test_every_page_that_the_readme_names_is_there(root: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    named = {word.strip("`,;.") for word in readme.split() if word.startswith("`docs/") or "CONTRIBUTING" in word}
    assert named
    assert not [name for name in named if not (root / name).is_file()]
