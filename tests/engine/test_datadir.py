"""The data directory: one owner at a time, one secret for ever, and errors that say what to do."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.engine.datadir import SECRET_BYTES, DataDirectory, DataDirectoryError, DataPaths


class TestSecret:
    def test_is_drawn_once(self, tmp_path: Path) -> None:
        with DataDirectory(tmp_path / "new" / "data") as first:
            secret = first.secret
        with DataDirectory(tmp_path / "new" / "data") as again:
            assert again.secret == secret
        with DataDirectory(tmp_path / "other") as other:
            assert other.secret != secret
        assert len(secret) == SECRET_BYTES

    def test_belongs_to_the_owner_alone(self, tmp_path: Path) -> None:
        with DataDirectory(tmp_path / "data") as data:
            assert stat.S_IMODE(data.paths.secret.stat().st_mode) == 0o600
            assert stat.S_IMODE(data.paths.root.stat().st_mode) == 0o700

    def test_that_others_can_read_is_refused(self, tmp_path: Path) -> None:
        with DataDirectory(tmp_path) as data:
            data.paths.secret.chmod(0o640)
        with pytest.raises(DataDirectoryError, match="chmod 600"):
            DataDirectory(tmp_path)
        data.paths.secret.chmod(0o600)
        DataDirectory(tmp_path).close()

    def test_of_another_length_is_refused(self, tmp_path: Path) -> None:
        with DataDirectory(tmp_path) as data:
            data.paths.secret.write_bytes(b"short")
        with pytest.raises(DataDirectoryError, match="restore it from a backup"):
            DataDirectory(tmp_path)

    def test_a_draft_left_by_a_crash_does_no_harm(self, tmp_path: Path) -> None:
        (tmp_path / ".secret.new").write_bytes(b"half")
        with DataDirectory(tmp_path) as data:
            assert len(data.secret) == SECRET_BYTES


class TestLock:
    def test_a_second_owner_is_refused_by_name(self, tmp_path: Path) -> None:
        with (
            DataDirectory(tmp_path),
            pytest.raises(DataDirectoryError, match=rf"in use by process {os.getpid()}; stop that server"),
        ):
            DataDirectory(tmp_path)
        DataDirectory(tmp_path).close()

    def test_ends_with_the_process_however_it_ends(self, tmp_path: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from antiphon.engine.datadir import DataDirectory\n"
            "data = DataDirectory(Path(sys.argv[1])); print('mine', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"mine\n"
            with pytest.raises(DataDirectoryError, match=f"process {child.pid}"):
                DataDirectory(tmp_path)
            child.kill()
            child.wait()
        DataDirectory(tmp_path).close()

    def test_closing_twice_is_closing_once(self, tmp_path: Path) -> None:
        data = DataDirectory(tmp_path)
        data.close()
        data.close()

    def test_a_directory_that_cannot_be_made_says_what_to_do(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(DataDirectoryError, match="--data"):
            DataDirectory(tmp_path / "file" / "data")


def test_names(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    assert {paths.database.parent, paths.samples.parent, paths.secret.parent, paths.lock.parent} == {tmp_path}
    assert list(tmp_path.iterdir()) == []
