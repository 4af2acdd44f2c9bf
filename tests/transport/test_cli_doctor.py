"""What the doctor finds: in this process, and as the Makefile asks."""

import subprocess
import sys
from importlib import metadata

import pytest

from antiphon.transport import cli_doctor
from antiphon.transport.cli_doctor import CORE, examine, missing

version = metadata.version


def without(monkeypatch: pytest.MonkeyPatch, *absent: str) -> None:
    """Let packages be gone."""

    def found(name: str) -> str:
        if name in absent:
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(cli_doctor.metadata, "version", found)


def test_a_package_that_is_gone_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(["core"]) == []
    without(monkeypatch, "rich", "uvloop")
    assert missing(["core"]) == ["rich", "uvloop"]
    assert examine(models=False).lacks(CORE) == ["rich", "uvloop"]
    assert not examine(models=False).voice_ready


def test_so_is_what_a_package_stands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "h11")
    assert missing(["core"]) == ["h11"]


def test_tools_are_looked_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pytest")
    assert "pytest" in missing(["core", "dev"])


def test_the_makefile_hears_it_by_the_exit_code() -> None:
    command = [sys.executable, "-m", "antiphon.transport.cli_doctor", "core"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_nothing_is_prepared_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--look" in cli_doctor.LOOK_AT_MODELS
