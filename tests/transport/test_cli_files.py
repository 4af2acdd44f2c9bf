"""Whether a file can be written is known before the work."""

from pathlib import Path

import pytest

from antiphon.transport.cli_errors import Stop
from antiphon.transport.cli_files import writable


def test_a_file_in_a_folder_can_be_written_and_is_not_made(tmp_path: Path) -> None:
    writable(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    (tmp_path / "x").touch()
    writable(tmp_path / "x")


def test_a_folder_and_a_place_that_is_not_there_cannot(tmp_path: Path) -> None:
    with pytest.raises(Stop, match="it is a folder"):
        writable(tmp_path)
    with pytest.raises(Stop, match="make it first"):
        writable(tmp_path / "new" / "x")
    (tmp_path / "file").touch()
    with pytest.raises(Stop, match="there is no folder"):
        writable(tmp_path / "file" / "x")
