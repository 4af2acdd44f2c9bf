"""How a program of the command line ends, whatever it writes to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.transport.cli_terminal import WIDE, ended, screen

PROGRAM = "import sys; from antiphon.transport.cli_terminal import ended, screen; "
FULL = Path("/dev/full")


def program(text: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", f"{PROGRAM}\n{text}"],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )


SPEAK = """
def speak():
    print("日")
    screen().print("a → 日")
    screen(stderr=True).print("→")
    return 3
sys.exit(ended("x", speak))
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_cannot_be_encoded_is_replaced(encoding: str) -> None:
    done = program(SPEAK, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"?\na ? ?\n", b"?\n")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("write", ["print('x')", "screen().print('x')", "print('x' * 100_000)"])
def test_a_full_disk_is_one_sentence(write: str) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", f"{PROGRAM}sys.exit(ended('x', lambda: {write}))"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"x: the output cannot be written: No space left on device\n"


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
def test_with_nobody_to_tell_it_ends_all_the_same() -> None:
    with FULL.open("wb") as full:
        command = [sys.executable, "-c", f"{PROGRAM}sys.exit(ended('x', lambda: print('x')))"]
        assert subprocess.run(command, stdout=full, stderr=full, check=False).returncode == 1


def test_lines_are_whole_in_a_pipe_and_words_are_no_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    screen().print("word " * 100 + ":smile:")
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    assert ":smile:" in out
    assert screen().width == WIDE


def test_the_exit_code_is_what_the_command_says() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert ended("x", lambda: None) == 0
    assert ended("x", lambda: 7) == 7
    assert ended("x", interrupted) == 130


def test_the_package_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0.1.0\n")
