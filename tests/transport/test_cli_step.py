"""Walking through a log by hand, by lines and by the keys of a terminal."""

import io
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from antiphon.engine.walk import Walk
from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.transport import cli_logs
from antiphon.transport.cli_step import Stepper

from tests.talks import talk as spoken


@pytest.fixture(scope="module")
def talk() -> list[Transaction]:
    return spoken("All is \x1b[2Jwell [here].", "").log


@pytest.fixture
def file(talk: list[Transaction], tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    cli_logs.write_export(path, cli_logs.LoadedLog(cli_logs.header_of("duplex-1", talk), talk))
    return path


class Session:
    """A stepper whose lines are looked at."""

    def __init__(self, talk: list[Transaction]) -> None:
        self._out = io.StringIO()
        self.stepper = Stepper(Walk(talk, 10), Console(file=self._out, width=400, soft_wrap=True), 1)

    def __call__(self, line: str) -> str:
        """Return what is said to a line."""
        self._out.seek(0)
        self._out.truncate()
        assert self.stepper.obey(line + "\n")
        return self._out.getvalue()

    @property
    def place(self) -> int:
        return self.stepper.place


@pytest.fixture
def session(talk: list[Transaction]) -> Session:
    return Session(talk)


def having(talk: list[Transaction], kind: type[ev.Event]) -> list[int]:
    return [entry.seq for entry in talk if any(isinstance(event, kind) for event in entry.events)]


def test_each_key_goes_where_it_says(session: Session, talk: list[Transaction]) -> None:
    head = len(talk)
    committed = having(talk, ev.InputCommitted)
    (interrupted,) = having(talk, ev.Interrupted)
    places = {
        "n": 2,
        "": 3,
        "next": 4,
        "p": 3,
        "t": committed[0],
        "i": interrupted,
        "turn": committed[1],
        "T": committed[0],
        "$": head,
        "I": interrupted,
        "0": 0,
        "/audiodelta": having(talk, ev.AudioDelta)[0],
        "g 5": 5,
        "go 6": 6,
        "7": 7,
        "g 1e9s": head,
    }
    for line, place in places.items():
        shown = session(line)
        assert session.place == place, line
        assert f"{place} of {head}" in shown


def test_a_search_goes_on_in_both_directions(session: Session, talk: list[Transaction]) -> None:
    received = having(talk, ev.AudioReceived)
    assert "no further one" in session("f")
    session("/ AudioReceived")
    session("f")
    session("f")
    assert session.place == received[2]
    session("F")
    assert session.place == received[1]
    session("/nothing like it")
    assert session.place == received[1]


def test_a_place_shows_the_transaction_and_what_it_changed(session: Session, talk: list[Transaction]) -> None:
    shown = session(f"g {having(talk, ev.InputCommitted)[0]}")
    assert "AppendAudio" in shown
    assert "→ InputCommitted" in shown
    assert re.search(r'turn\.state +"user_speaking" → "assistant_generating"', shown)
    assert "phase open" in shown
    assert "before the first transaction" in session("0")


def test_the_state_and_what_differs_are_shown(session: Session) -> None:
    session("$")
    assert "All is \\\\x1b[2Jwell [here]." in session("s") or "\x1b" not in session("s")
    assert "conversation" in session("s")
    assert "from 1 to" in session("d")
    session("g 5")
    assert "marked 5" in session("m")
    session("g 9")
    session("n")
    shown = session("d")
    assert "from 5 to 10" in shown
    assert re.search(r"input\.position +\d+ → \d+", shown)


def test_all_of_a_transaction_is_shown_when_it_is_asked_for(session: Session) -> None:
    assert "capabilities" not in session("1").partition("changed")[0]
    shown = session("a")
    assert "transaction 1" in shown
    assert "capabilities" in shown
    assert "── SessionOpened" not in shown


def test_what_cannot_be_done_is_said_and_moves_nothing(session: Session) -> None:
    session("0")
    for line, words in (
        ("p", "no further one"),
        ("g 9999", "there is no transaction 9999"),
        ("g", "give a number"),
        ("x", "there is no key 'x'"),
        ("/", "there is no key '/'"),
    ):
        assert words in session(line)
        assert session.place == 0
    assert "g PLACE" in session("h")
    assert not session.stepper.obey("q\n")


def test_a_log_that_breaks_off_is_walked_up_to_there(talk: list[Transaction]) -> None:
    at = having(talk, ev.ResponseCreated)[0]
    session = Session([*talk[: at - 1], *(entry for entry in talk[at:])])
    session.stepper.obey(f"g {at - 1}")
    assert "cannot follow" in session("$")
    assert "cannot follow" in session("s")
    session(f"g {at - 1}")
    assert session.place == at - 1


# -- as a program --------------------------------------------------------------------------------------------


def command(file: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "antiphon", "replay", str(file), "--step", *more]


def test_lines_may_come_from_a_pipe(file: Path) -> None:
    done = subprocess.run(
        command(file), input=b"n\ng 5\ns\nd\nq\nn\n", capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    out = done.stdout.decode()
    assert [line.split()[1] for line in out.splitlines() if line.startswith("── ")] == ["1", "2", "5"]
    assert "state behind transaction 5" in out
    assert "\x1b" not in out


def test_it_begins_where_it_is_told_and_ends_with_the_lines(file: Path) -> None:
    done = subprocess.run(command(file, "--until", "4"), input=b"", capture_output=True, check=False, timeout=60)
    assert done.returncode == 0
    assert done.stdout.decode().startswith("── 4 of")
    for options in (["--json"], ["--state"], ["--until", "9999"]):
        done = subprocess.run(command(file, *options), input=b"", capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (2, b"")
        assert len(done.stderr.splitlines()) == 1


CONTROLLED = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, arguments: list[str]) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (60, 160))
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        environment = {**os.environ, "TERM": "xterm"}
        # In a session of its own, which the terminal controls, so that Ctrl-C is a signal.
        self._program = subprocess.Popen(
            [sys.executable, "-c", CONTROLLED, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        self._seen = b""

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, words: str) -> str:
        """Return what is shown up to these words."""
        end = time.monotonic() + 20
        while words.encode() not in self._seen:
            assert time.monotonic() < end, self._seen.decode(errors="replace")
            if select.select([self._ours], [], [], 1)[0]:
                self._seen += os.read(self._ours, 65_536)
        shown, self._seen = self._seen.decode(errors="replace"), b""
        return shown

    def ended(self) -> int:
        """Return the exit code; the terminal is as it was."""
        code = self._program.wait(20)
        assert termios.tcgetattr(self._theirs) == self.before
        return code

    def close(self) -> None:
        if self._program.poll() is None:
            self._program.kill()
            self._program.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(file: Path) -> Iterator[Terminal]:
    terminal = Terminal(command(file))
    yield terminal
    terminal.close()


def test_a_terminal_gives_single_keys_and_arrows(terminal: Terminal, talk: list[Transaction]) -> None:
    head = len(talk)
    assert "1 of" in terminal.until("quit")
    terminal.press("n")
    terminal.until(f"2 of {head}")
    terminal.press("\x1b[C")
    terminal.until(f"3 of {head}")
    terminal.press("\x1b[D")
    terminal.until(f"2 of {head}")
    terminal.press("/")
    terminal.press("audiodelta\n")
    terminal.until(f"{having(talk, ev.AudioDelta)[0]} of {head}")
    terminal.press("g5\n")
    terminal.until(f"5 of {head}")
    terminal.press("12\n")
    terminal.until(f"12 of {head}")
    terminal.press("0")
    terminal.until(f"0 of {head}")
    terminal.press("5\n")
    terminal.until(f"5 of {head}")
    terminal.press("s")
    terminal.until("state behind transaction 5")
    terminal.press("q")
    assert terminal.ended() == 0


@pytest.mark.parametrize(("key", "code"), [("\x04", 0), ("\x03", 130)])
def test_a_terminal_is_left_as_it_was(terminal: Terminal, key: str, code: int) -> None:
    terminal.until("quit")
    terminal.press(key)
    assert terminal.ended() == code
