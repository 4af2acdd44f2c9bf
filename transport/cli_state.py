"""A state, and what differs between two, as somebody reads it at a terminal."""

from collections.abc import Sequence

import msgspec
from msgspec import UnsetType
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from antiphon.engine.changes import Change, Plain

from .plain import plain

WIDEST = 100
"""Characters of a value; `--json` shows all."""


def tree(name: str, state: Plain) -> Tree:
    """Return a state as a tree. What is empty, nought or no is left out: most of a state is, most of the time."""
    root = Tree(f"[bold]{escape(plain(name))}[/]", guide_style="dim")
    _grow(root, state)
    return root


def _grow(branch: Tree, state: Plain) -> None:
    named: list[tuple[str, Plain]] = []
    if isinstance(state, dict):
        named = list(state.items())
    elif isinstance(state, list):
        named = [(str(index), value) for index, value in enumerate(state)]
    for name, value in named:
        if isinstance(value, (dict, list)) and not _is_short(value):
            if _is_empty(value):
                continue
            _grow(branch.add(f"[cyan]{escape(plain(name))}[/]"), value)
        elif isinstance(state, list) or not _is_empty(value):
            branch.add(f"[cyan]{escape(plain(name))}[/] {shown(value)}")


def _is_empty(value: Plain) -> bool:
    if isinstance(value, dict):
        return all(_is_empty(part) for part in value.values())
    return not value


def _is_short(value: dict[str, Plain] | list[Plain]) -> bool:
    """Return whether a list is of plain values, and fits into its line."""
    if not isinstance(value, list) or any(isinstance(part, (dict, list)) for part in value):
        return False
    return bool(value) and len(msgspec.json.encode(value)) <= WIDEST


def shown(value: Plain | UnsetType) -> str:
    """Return a value as markup, in one line and cut where it is long."""
    if isinstance(value, UnsetType):
        return "[dim]nothing[/]"
    text = plain(msgspec.json.encode(value).decode())
    return escape(text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…")


def print_changes(console: Console, changes: Sequence[Change], most: int | None = None) -> None:
    """Print what changed, a place in each line; `most` of them."""
    width = max((len(change.path) for change in changes[:most]), default=0)
    for change in changes[:most]:
        path = escape(plain(f"{change.path:<{width}}"))
        console.print(f"  [cyan]{path}[/]  {shown(change.before)} [dim]→[/] {shown(change.after)}")
    if most is not None and len(changes) > most:
        console.print(f"  [dim]… and {len(changes) - most:,} more[/]")
