"""The rules that sessions keep, by number, and the tests that hold each of them.

python -m tests.rules            name the rules that no test holds; fails if there are any
python -m tests.rules --write    write docs/rules.md again
python -m tests.rules --check    say whether docs/rules.md is what the tests are marked with
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rules.md"
WIDEST = 110
"""Characters that the summary of a rule may have."""


def rule(*ids: str) -> pytest.MarkDecorator:
    """Mark a test that fails when one of these rules is broken. An id that is not in rules.toml stops the run."""
    return pytest.mark.rule(*ids)


class Group(NamedTuple):
    """Rules of one subject, in their order: what each says in one line."""

    name: str
    title: str
    rules: Mapping[str, str]


class Catalogue(NamedTuple):
    """Every rule, and why some cannot be broken in an engine with one log and one writer."""

    groups: tuple[Group, ...]
    impossible: Mapping[str, str]

    def __contains__(self, name: str) -> bool:
        return any(name in group.rules for group in self.groups)

    def count(self) -> int:
        return sum(len(group.rules) for group in self.groups)


def catalogue() -> Catalogue:
    """Read rules.toml."""
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    impossible: dict[str, str] = read.pop("impossible")
    groups = [Group(name, table["title"], table["rules"]) for name, table in read.items()]
    return Catalogue(tuple(groups), impossible)


class Marked(NamedTuple):
    """A test, its variants taken together, and the rules that it is marked with."""

    test: str
    ids: tuple[str, ...]


def marked(items: Iterable[pytest.Item]) -> list[Marked]:
    """Return the collected tests that are marked, each variant."""
    found: list[Marked] = []
    for item in items:
        ids = tuple(str(name) for mark in item.iter_markers("rule") for name in mark.args)
        if ids:
            found.append(Marked(item.nodeid.partition("[")[0], ids))
    return found


def unknown(tests: Iterable[Marked], known: Catalogue) -> list[str]:
    """Return a line for each id that no rule has."""
    faults = {(test.test, name) for test in tests for name in test.ids if name not in known}
    return [f"{test} is marked with {name}, which is no rule of tests/rules.toml" for test, name in sorted(faults)]


def holders(tests: Iterable[Marked]) -> dict[str, list[str]]:
    """Return the tests of each rule; of a test with variants, one."""
    held: dict[str, set[str]] = {}
    for test in tests:
        for name in test.ids:
            held.setdefault(name, set()).add(test.test)
    return {name: sorted(names) for name, names in held.items()}


def missing(known: Catalogue, held: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the rules without a test, by group."""
    gaps = {group.name: [name for name in group.rules if name not in held] for group in known.groups}
    return {name: ids for name, ids in gaps.items() if ids}


LEGEND = """\
# The rules, and the tests that hold them

Written by `python -m tests.rules --write` out of `tests/rules.toml` and the `@rule(...)` marks of the tests; a test
fails when this page is stale. A rule is a promise that a session keeps, whoever talks to it. A test stands beside a
rule if it fails when the rule is broken; variants of one test count as one. Numbers are stable: code and tests cite
them.

Rules marked † cannot be broken in an engine with one log and one writer for each session; why is said below their
table. Their scenario is played all the same.
"""


def rendered(known: Catalogue, held: Mapping[str, list[str]]) -> str:
    """Return the page."""
    tests = {test for names in held.values() for test in names}
    total, open_ = known.count(), sum(map(len, missing(known, held).values()))
    lines = [
        LEGEND,
        f"{total} rules, {total - open_} of them held by {len(tests)} tests; {open_} without a test.",
        "",
    ]
    for group in known.groups:
        lines += [f"## {group.name}. {group.title}", "", "| rule | what holds | tests |", "| --- | --- | --- |"]
        for name, says in group.rules.items():
            shown = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in held.get(name, ())) or "**none**"
            lines.append(f"| {name}{' †' if name in known.impossible else ''} | {says} | {shown} |")
        reasons = [f"- {name}: {known.impossible[name]}" for name in group.rules if name in known.impossible]
        lines += ["", "† Cannot happen:", "", *reasons, ""] if reasons else [""]
    return "\n".join(lines)


class _Collected:
    """Catches what pytest collected."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def collect() -> list[Marked]:
    """Collect every test as pytest does, and return those that are marked. Raises SystemExit if that fails."""
    os.chdir(ROOT)
    caught, said = _Collected(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "tests"], plugins=[caught])
    if code != pytest.ExitCode.OK:
        sys.stderr.write(said.getvalue())
        raise SystemExit(2)
    return marked(caught.items)


def report(known: Catalogue, held: Mapping[str, list[str]]) -> tuple[str, int]:
    """Return what to say of the rules without a test, and the exit status."""
    gaps = missing(known, held)
    lines = [f"{name:<3}{len(ids):>3} without a test: {' '.join(ids)}" for name, ids in gaps.items()]
    open_ = sum(map(len, gaps.values()))
    lines.append(f"{known.count()} rules, {known.count() - open_} held by a test, {open_} not.")
    return "\n".join(lines) + "\n", 1 if gaps else 0


def main(arguments: list[str]) -> int:
    """Do what the module's first lines say; return the exit status."""
    known, held = catalogue(), holders(collect())
    page = rendered(known, held)
    match arguments:
        case []:
            said, status = report(known, held)
        case ["--write"]:
            PAGE.write_text(page, encoding="utf-8")
            said, status = report(known, held)
        case ["--check"]:
            stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page
            said, status = ("docs/rules.md is stale: python -m tests.rules --write\n", 1) if stale else ("", 0)
        case _:
            said, status = __doc__ or "", 2
    sys.stdout.write(said)
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
