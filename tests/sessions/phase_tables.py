"""The phase tables as Markdown, for `docs/design.md`; `python tests/sessions/phase_tables.py` writes them there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from antiphon.events.events import Event
from antiphon.sessions import phases

BEGIN, END = "<!-- phases: written by tests/sessions/phase_tables.py -->", "<!-- end of phases -->"
# Each table has phases of its own; as keys of a mapping they have no common type.
TABLES: Mapping[str, Mapping[Any, Mapping[type[Event], str]]] = {
    "Session": phases.SESSION,
    "Attachment": phases.ATTACHMENT,
    "Input": phases.INPUT,
    "Response": phases.RESPONSE,
    "Delivery": phases.DELIVERY,
    "Request at a stage": phases.REQUEST,
}


def rendered() -> str:
    """Return all tables: phase, event, next phase."""
    parts: list[str] = []
    for title, table in TABLES.items():
        rows = [
            f"| {phase} | {event.__name__} | {target} |"
            for phase, row in table.items()
            for event, target in sorted(row.items(), key=lambda pair: pair[0].__name__)
        ]
        parts.append("\n".join([f"**{title}**", "", "| phase | event | next |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(parts)


def section(page: str) -> str:
    """Return what stands between the marks of a page."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def main() -> None:
    """Write the tables into the design page."""
    path = Path(__file__).parents[2] / "docs" / "design.md"
    page = path.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n\n{rendered()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
