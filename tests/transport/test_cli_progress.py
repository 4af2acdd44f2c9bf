"""How far long work is told, and to whom."""

import io

import pytest
from rich.console import Console

from antiphon.transport import cli_progress
from antiphon.transport.cli_progress import progress


@pytest.mark.parametrize("total", [7, None])
def test_who_waits_at_a_terminal_is_told_and_the_line_goes(
    monkeypatch: pytest.MonkeyPatch, total: int | None
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(cli_progress, "screen", lambda stderr: Console(file=out, force_terminal=True, width=100))
    with progress("reading", total) as told:
        told(3)
        told(2)
    shown = out.getvalue()
    assert "reading" in shown
    assert f"5/{total or '?'}" in shown
    assert shown.rstrip().endswith("\x1b[2K"), "the line is removed"


def test_nobody_else_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 7) as told:
        told(7)
    assert capsys.readouterr() == ("", "")
