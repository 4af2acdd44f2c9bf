"""Plays the scenes, and holds what is recorded of them against the golden logs, or writes these.

`make histories` compares; `make histories RECORD=1` writes what differs, `RECORD="tools asides"` only of these.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .broken import broken
from .compare import differences
from .golden import BROKEN, FOLDER, UNSHIPPED, WIRE, home, recorded
from .scene import scenes

README = FOLDER / "README.md"
BEGIN, END = "<!-- logs -->", "<!-- end of logs -->"


def files(names: Sequence[str]) -> dict[Path, str]:
    """Return what the files of these scenes should hold: their logs, and the messages of these."""
    wanted: dict[Path, str] = {}
    for name in names:
        if (missing := scenes()[name].missing) is not None:
            _say(f"{name}.jsonl: left as it is: {missing}")
            continue
        recording = recorded(scenes()[name])
        wanted[home(scenes()[name])] = recording.log
        wanted[WIRE / f"{name}.txt"] = recording.wire
        for broken_name, text in broken(name, recording.log).items():
            wanted[BROKEN / f"{broken_name}.jsonl"] = text
    wanted[README] = with_table(README.read_text())
    return wanted


def with_table(readme: str) -> str:
    """Return the page with a line for each scene."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = "".join(f"| `{scene.name}` | {scene.says} |\n" for scene in scenes().values())
    return f"{before}{BEGIN}\n\n| log | what happens |\n| --- | --- |\n{rows}\n{END}{after}"


def main() -> int:
    """Compare, or write; return 1 if something differs and nothing was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (all, if none is named)")
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    names: list[str] = given.names or list(scenes())
    if unknown := [name for name in names if name not in scenes()]:
        parser.error(f"there is no scene {unknown[0]}; there are {', '.join(scenes())}")
    changed = 0
    for path, text in files(names).items():
        old = path.read_text() if path.exists() else ""
        if old == text:
            continue
        changed += 1
        _tell(path, old, text)
        if not given.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    if not given.names:
        changed += _leftovers(check=given.check)
    _sum_up(len(names), changed, check=given.check)
    return 1 if changed and given.check else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _tell(path: Path, old: str, new: str) -> None:
    _say(f"{path.relative_to(FOLDER)}:{'' if old else ' new'}")
    if old and path.parent != BROKEN and path != README:
        for line in differences(old, new):
            _say(f"    {line}")


def _leftovers(*, check: bool) -> int:
    """Remove the files of scenes that there are no more."""
    logs = {home(scene) for scene in scenes().values()}
    left = {*FOLDER.glob("*.jsonl"), *UNSHIPPED.glob("*.jsonl")} - logs
    left |= {path for path in WIRE.glob("*.txt") if path.stem not in scenes()}
    for path in sorted(left):
        _say(f"{path.relative_to(FOLDER)}: no scene has this name")
        if not check:
            path.unlink()
    return len(left)


def _sum_up(count: int, changed: int, *, check: bool) -> None:
    if not changed:
        _say(f"{count} golden logs: nothing has changed")
    elif check:
        _say(f"{changed} files differ; nothing was written: make histories RECORD=1 writes them")
    else:
        _say(f"{changed} files written; the difference belongs into the message of the commit")


if __name__ == "__main__":
    sys.exit(main())
