"""Walking through a log by hand: single keys at a terminal, lines of the same letters from anywhere else."""

import os
import sys
import termios
import tty
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import TextIO

from rich.console import Console
from rich.markup import escape

from antiphon.engine.changes import Plain
from antiphon.engine.changes import plain as values
from antiphon.engine.walk import Broken, NoSuchPlace, Walk

from .cli_show import show_one
from .cli_state import print_changes, tree
from .plain import plain

KEYS = (
    "[bold]n[/] next  [bold]p[/] previous  [bold]t T[/] turn  [bold]i I[/] interruption  [bold]/[/] type  "
    "[bold]g[/] go  [bold]s[/] state  [bold]d[/] diff  [bold]h[/] help  [bold]q[/] quit"
)
HELP = """\
  [bold]n[/] [bold]p[/]        the next and the previous transaction (also the arrows; an empty line is n)
  [bold]t[/] [bold]T[/]        the next and the previous turn: one of the user is complete, or an answer begins
  [bold]i[/] [bold]I[/]        the next and the previous interruption, also one that is only suspected
  [bold]/TYPE[/]      the next command or event of a type with these letters; [bold]f[/] and [bold]F[/] search on
  [bold]g PLACE[/]    go to a transaction (412), a time (12.5s), or what an id names
  [bold]0[/] [bold]$[/]        before the beginning, and to the end
  [bold]a[/]          all that is in this transaction
  [bold]s[/]          the whole state here
  [bold]m[/]          mark this place
  [bold]d[/]          what differs in the state between the mark, or else the place you came from, and here
  [bold]q[/]          quit"""
MOST = 24
"""Changes that are shown with a transaction; `d` shows all."""

_ARROWS = {b"\x1b[C": "n", b"\x1b[B": "n", b"\x1b[D": "p", b"\x1b[A": "p", b"\x1b[H": "0", b"\x1b[F": "$"}
_WORDS = {
    "": "n",
    "next": "n",
    "previous": "p",
    "turn": "t",
    "interruption": "i",
    "all": "a",
    "state": "s",
    "diff": "d",
    "mark": "m",
    "help": "h",
    "?": "h",
    "quit": "q",
}
_SHOWN_FIRST = ("phase", "turn.state", "turn.turn", "turn.epoch", "lease.phase", "response.head.id")


class Stepper:
    """A place in a log, and what each key does there."""

    def __init__(self, walk: Walk, console: Console, place: int, *, clear: bool = False) -> None:
        """Stand at `place`. `clear`: each view takes the place of the one before."""
        self.place = place
        self._walk = walk
        self._console = console
        self._clear = clear
        self._from = max(place - 1, 0)
        self._mark: int | None = None
        self._letters = ""
        self._moves: dict[str, Callable[[], int | None]] = {
            "n": lambda: self.place + 1 if self.place < walk.head else None,
            "p": lambda: self.place - 1 if self.place > 0 else None,
            "t": lambda: walk.next_turn(self.place),
            "T": lambda: walk.previous_turn(self.place),
            "i": lambda: walk.next_interruption(self.place),
            "I": lambda: walk.previous_interruption(self.place),
            "f": lambda: walk.find(self._letters, self.place) if self._letters else None,
            "F": lambda: walk.find_back(self._letters, self.place) if self._letters else None,
            "0": lambda: 0,
            "$": lambda: walk.head,
        }
        self._views: dict[str, Callable[[], None]] = {
            "a": self._show_all,
            "s": self._show_state,
            "d": self._show_diff,
            "m": self._set_mark,
            "h": lambda: console.print(HELP),
        }

    def obey(self, line: str) -> bool:
        """Do what a key or a line says; return whether to go on."""
        words = line.strip()
        key = _WORDS.get(words, words)
        try:
            if key == "q":
                return False
            if key in self._moves:
                self._go(self._moves[key]())
            elif key in self._views:
                self._views[key]()
            elif key.startswith("/") and key[1:].strip():
                self._letters = key[1:].strip()
                self._go(self._moves["f"]())
            elif key.startswith("g") or key[:1].isdigit():
                self._go(self._walk.place(key.removeprefix("go").removeprefix("g")))
            else:
                self._say(f"there is no key {plain(words)!r}; h explains those there are")
        except (NoSuchPlace, Broken) as error:
            self._say(str(error))
        return True

    def _go(self, place: int | None) -> None:
        if place is None:
            self._say("there is no further one")
            return
        if place != self.place:
            self._from, self.place = self.place, place
        self.show()

    # -- views -----------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Show the transaction here, and what it changed."""
        walk, console = self._walk, self._console
        if self._clear:
            console.clear()
        state = self._state_here()
        where = f"{self.place:,} of {walk.head:,}   {walk.seconds(self.place):.3f} s"
        console.print(f"[dim]──[/] [bold]{where}[/]   {_summary(state)}")
        transaction = walk.at(self.place)
        if transaction is None:
            console.print("  before the first transaction")
        else:
            show_one(console, transaction, walk.transactions[0].at)
            if state is not None:
                changed = walk.changes(self.place - 1, self.place)
                console.print("[bold]changed[/]" if changed else "[dim]no change of the state[/]")
                print_changes(console, changed, MOST)
        if self._clear:
            console.print(KEYS)

    def _state_here(self) -> Plain:
        try:
            return self._walk.state(self.place)
        except Broken as error:
            self._say(str(error))
            return None

    def _show_all(self) -> None:
        whole = values(self._walk.at(self.place))
        self._console.print(tree(f"transaction {self.place}", whole))

    def _show_state(self) -> None:
        self._console.print(tree(f"state behind transaction {self.place}", self._walk.state(self.place)))

    def _show_diff(self) -> None:
        since = self._from if self._mark is None else self._mark
        found = self._walk.changes(since, self.place)
        self._console.print(f"[bold]from {since:,} to {self.place:,}[/]: {len(found):,} places differ")
        print_changes(self._console, found)

    def _set_mark(self) -> None:
        self._mark = self.place
        self._say(f"marked {self.place:,}: d shows what differs from here")

    def _say(self, text: str) -> None:
        self._console.print(f"[yellow]{escape(plain(text))}[/]")


def _summary(state: Plain) -> str:
    """Return what one wants to know of a state first."""
    parts: list[str] = []
    for path in _SHOWN_FIRST:
        value = state
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            parts.append(f"[dim]{path}[/] {escape(plain(str(value)))}")
    return "  ".join(parts)


# -- where keys come from ------------------------------------------------------------------------------------


def step(walk: Walk, console: Console, place: int) -> None:
    """Walk until somebody quits, or there are no more lines."""
    keys = sys.stdin.isatty() and console.is_terminal
    stepper = Stepper(walk, console, place, clear=keys)
    with _single_keys(sys.stdin) if keys else nullcontext(sys.stdin) as said:
        stepper.show()
        for line in said:
            if not stepper.obey(line):
                return


@contextmanager
def _single_keys(stream: TextIO) -> Generator[Iterator[str]]:
    """Let a terminal give each key as it is pressed; behind `/` and `g`, the line that follows."""
    terminal = stream.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSANOW)
    try:
        yield _pressed(terminal, before)
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _pressed(terminal: int, usual: list[int | list[bytes | int]]) -> Iterator[str]:
    while True:
        data = os.read(terminal, 1024)
        if data in _ARROWS:
            yield _ARROWS[data]
            continue
        pressed = data.decode(errors="replace")
        while pressed:
            key, pressed = pressed[0], pressed[1:]
            if key == "/" or key == "g":
                words, pressed = _line(terminal, usual, key, pressed)
                key += words
            elif key in "123456789":  # 0 is a key of its own
                key, pressed = _line(terminal, usual, "g", key + pressed)
            elif key == "\x04":
                return
            yield key
        if not data:  # the terminal is gone
            return


def _line(terminal: int, usual: list[int | list[bytes | int]], prompt: str, begun: str) -> tuple[str, str]:
    """Let the terminal take a line, of which something may be there already; return it, and what is behind it."""
    sys.stdout.write(f"{prompt} {begun.partition(chr(10))[0]}")
    sys.stdout.flush()
    termios.tcsetattr(terminal, termios.TCSANOW, usual)
    try:
        # What was pressed before the terminal took lines comes without its end.
        while "\n" not in begun and (more := os.read(terminal, 1024)):
            begun += more.decode(errors="replace")
    finally:
        tty.setcbreak(terminal, termios.TCSANOW)
    line, _, rest = begun.partition("\n")
    return line, rest
