"""Deliberate faults: each is put into one module of the product, and the simulator has to find it.

`python -m tests.simulation.mutants` (or `make mutants`) puts them in one at a time, each in processes of its
own, and says how many worlds it took. The disk stays as it is: a module's source is changed as it is imported.
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from types import ModuleType

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from tests.pieces import positive

WITHIN = 5000
"""So many worlds may be needed to find a fault."""

CHUNK = 20


class Mutant(Struct, frozen=True):
    """A fault: in `module`, `old` (which stands there once) becomes `new`."""

    name: str
    module: str
    old: str
    new: str


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an interruption begins no epoch",
        "antiphon.sessions.ending",
        "            epoch=draft.session.epoch + 1,\n            cause=cause,",
        "            epoch=draft.session.epoch,\n            cause=cause,",
    ),
    Mutant(
        "commands of a replaced connection are carried out",
        "antiphon.sessions.core",
        " or command.attachment != lease.attachment:",
        ":",
    ),
    Mutant(
        "a stage's word that it has let go is lost",
        "antiphon.engine.roster",
        "        if live is not None:\n            live.runner.post(report, sound)",
        "        if live is not None and not isinstance(report, StageReleased):\n"
        "            live.runner.post(report, sound)",
    ),
    Mutant(
        "a failed answer ends twice",
        "antiphon.sessions.ending",
        '    end_response(draft, response, "failed", failure=failure)\n\n\ndef _mute',
        '    end_response(draft, response, "failed", failure=failure)\n'
        '    end_response(draft, response, "failed", failure=failure)\n\n\ndef _mute',
    ),
    Mutant(
        "the bytes of a turn are never given back",
        "antiphon.sessions.fold_input",
        "    session.input.unanswered, session.input.retained = None, 0\n    fold_units",
        "    session.input.unanswered = None\n    fold_units",
    ),
    Mutant(
        "what is decided is shown before it is durable",
        "antiphon.engine.runner",
        "        self._log.append(self.name, transaction, writes, self._settled)",
        "        self._log.append(self.name, transaction, writes, lambda _: None)\n        self._settled(None)",
    ),
    Mutant(
        "a command that comes twice is not dropped",
        "antiphon.sessions.core",
        "command.client_seq <= lease.client_seq:",
        "command.client_seq < lease.client_seq:",
    ),
    Mutant(
        "a replay lacks its last transaction",
        "antiphon.engine.attachment",
        "        last = self.entry.seq - 1\n",
        "        last = self.entry.seq - 2\n",
    ),
    Mutant(
        "the store takes records of an older term",
        "antiphon.engine.log_head",
        "transaction.term != self.term",
        "transaction.term > self.term",
    ),
    Mutant(
        "a resume token is used up unheard",
        "antiphon.sessions.lifecycle",
        "(lease.token, *lease.earlier_tokens)",
        "(lease.token,)",
    ),
    Mutant(
        "an opening never gives its place back",
        "antiphon.engine.hub",
        "            self._admitting[request] -= 1",
        "            pass",
    ),
    Mutant(
        "sound leaves behind its interruption",
        "antiphon.transport.wire_project",
        "    return event.epoch < epoch and not event.aside",
        "    return False",
    ),
    Mutant(
        "a withdrawn activation has no grace",
        "antiphon.sessions.fold_life",
        "    lease.confirm_by = None  # both",
        "    lease.confirm_by = None\n    return  # both",
    ),
    Mutant(
        "a restart does not fail the answer that was open",
        "antiphon.sessions.lifecycle",
        "        for response in session.open_responses:\n            fail_response(draft, response, failure)",
        "        pass",
    ),
    Mutant(
        "sound is stored at the wrong place",
        "antiphon.engine.runner",
        "                at += size\n",
        "                at += 0\n",
    ),
)


class _Changed(importlib.abc.SourceLoader):
    """Loads a module with one fault in it."""

    def __init__(self, mutant: Mutant, path: str) -> None:
        self._mutant = mutant
        self._path = path

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str) -> bytes:
        if path != self._path:
            raise OSError("no cache")
        with open(path, encoding="utf-8") as file:
            source = file.read()
        if source.count(self._mutant.old) != 1:
            raise ImportError(f"{self._mutant.name}: what is to be changed does not stand there once")
        return source.replace(self._mutant.old, self._mutant.new).encode()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            return None
        return importlib.util.spec_from_loader(fullname, _Changed(self._mutant, found.origin))


def put_in(mutant: Mutant) -> None:
    """Let the module be imported with the fault in it, from here on in this process.

    Raises:
        ImportError: it is imported already.
    """
    if mutant.module in sys.modules:
        raise ImportError(f"{mutant.module} is imported already")
    sys.meta_path.insert(0, _Finder(mutant))


def _search(task: tuple[int, range]) -> tuple[int, str] | None:
    """Look for the fault in some worlds; return the seed that finds it, and what it says."""
    number, seeds = task
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        put_in(MUTANTS[number])
    from .script import script
    from .world import Broken, live

    for seed in seeds:
        try:
            live(script(seed))
        except Broken as broken:
            return seed, str(broken)
    return None


def found(number: int, jobs: int, within: int) -> tuple[int, str] | None:
    """Return the first seed that finds a fault, and how; None: no world did."""
    work = [(number, range(first, min(first + CHUNK, within))) for first in range(0, within, CHUNK)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            return next((answer for answer in pool.map(_search, work) if answer is not None), None)
        finally:
            pool.shutdown(cancel_futures=True)


def main(words: list[str] | None = None) -> int:
    """Carry the command line out; return 1 if a fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--within", type=int, default=WITHIN, metavar="N", help="worlds that each fault may need")
    parser.add_argument("--jobs", type=positive, default=multiprocessing.cpu_count(), metavar="N", help="processes")
    parser.add_argument("--only", default="", metavar="WORDS", help="only faults whose name holds these words")
    asked = parser.parse_args(words)
    if not any(asked.only in mutant.name for mutant in MUTANTS):
        parser.error(f"no fault has {asked.only!r} in its name")
    console, table, missed = Console(), Table("fault", "found by seed", "seconds", "as"), 0
    for number, mutant in enumerate(MUTANTS):
        if asked.only not in mutant.name:
            continue
        begun = time.monotonic()
        with console.status(mutant.name):
            answer = found(number, asked.jobs, asked.within)
        missed += answer is None
        seed, message = (
            ("-", "NOT FOUND") if answer is None else (str(answer[0]), answer[1].partition(": ")[2][:80])
        )
        table.add_row(mutant.name, seed, f"{time.monotonic() - begun:.1f}", message)
        console.print(f"{mutant.name}: {seed} {message}", markup=False)
    console.print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
