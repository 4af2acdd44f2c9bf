"""The turns of a session, one row each: when it was said, what was answered; and how two sessions' rows differ."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from antiphon.events.events import ItemCreated
from antiphon.events.items import Message, is_user, text_of
from antiphon.events.log import Transaction

from .timeline import Answer, Story, Turn, tell

FAR = 40
"""Characters that two answers begin with in common, beyond which they are not shown again."""

LEAST_MS = 1
"""A shift in time of less is none."""


class TurnRow(Struct, frozen=True, kw_only=True):
    """A turn of the user, and the answer to it. Times are seconds of session time.

    `first_ms` is how long after the end of the turn the first sound of the answer came. `interruptions` are their
    causes, until the next turn ends; `heard_ms` is None without sound.
    """

    item_id: str
    start_s: float
    end_s: float | None
    words: str
    answer: str = ""
    status: str | None = None
    first_ms: int | None = None
    heard_ms: int | None = None
    interruptions: tuple[str, ...] = ()


def rows(transactions: Sequence[Transaction]) -> list[TurnRow]:
    """Return the turns of a log in their order, spoken and written ones."""
    story = tell(transactions)
    origin = transactions[0].at if transactions else 0
    spoken = {turn.item_id for turn in story.turns}
    written = [turn for turn in _written(transactions, origin) if turn.item_id not in spoken]
    turns = sorted([*story.turns, *written], key=_end)
    ends = [_end(turn) for turn in turns[1:]] + [float("inf")]
    return [_row(story, turn, until) for turn, until in zip(turns, ends, strict=False)]


def _end(turn: Turn) -> float:
    known = turn.stop_s if turn.stop_s is not None else turn.committed_s
    return turn.start_s if known is None else known


def _written(transactions: Iterable[Transaction], origin: int) -> list[Turn]:
    found: list[Turn] = []
    for transaction in transactions:
        for event in transaction.events:
            if isinstance(event, ItemCreated) and isinstance(event.item, Message) and is_user(event.item):
                at = (transaction.at - origin) / 1e6
                found.append(Turn(event.item.id, at, at, at, text_of(event.item)))
    return found


def _row(story: Story, turn: Turn, until: float) -> TurnRow:
    end = _end(turn)
    known = [answer for answer in story.answers if end <= answer.created_s < until]
    answer: Answer | None = known[0] if known else None
    first = None if answer is None or answer.first_s is None else round((answer.first_s - end) * 1000)
    return TurnRow(
        item_id=turn.item_id,
        start_s=turn.start_s,
        end_s=None if turn.stop_s is None and turn.committed_s is None else end,
        words=turn.text,
        answer=" ".join(known.text for known in known if known.text),
        status=None if answer is None else answer.cause or answer.status,
        first_ms=first,
        heard_ms=_heard(answer),
        interruptions=tuple(mark.label for mark in story.interruptions if end <= mark.at_s < until),
    )


def _heard(answer: Answer | None) -> int | None:
    """Return how much of an answer was heard, None where there was nothing to hear."""
    return answer.played_ms if answer is not None and answer.deltas else None


def counterparts(
    before: Sequence[TurnRow], after: Sequence[TurnRow], same: Callable[[str], str | None]
) -> dict[str, str]:
    """Return which turn of one log is which of another: by name, else by the time at which it was said.

    Items that clients named themselves have the same name in both.
    """
    theirs = {row.item_id for row in after}
    named = {row.item_id: same(row.item_id) or row.item_id for row in before}
    found = {ours: name for ours, name in named.items() if name in theirs}
    free = [row for row in after if row.item_id not in found.values()]
    for row in before:
        if row.item_id not in found and free:
            best = max(free, key=lambda other: _together(row, other))
            if _together(row, best) >= 0:
                found[row.item_id] = best.item_id
                free.remove(best)
    return found


def _together(one: TurnRow, other: TurnRow) -> float:
    """Return for how long two turns were said at the same time; below 0: how far they are apart (seconds)."""
    ends = [row.start_s if row.end_s is None else row.end_s for row in (one, other)]
    return min(ends) - max(one.start_s, other.start_s)


def changes(before: Sequence[TurnRow], after: Sequence[TurnRow], same: Callable[[str], str | None]) -> list[str]:
    """Return in sentences how turns have changed; `same` gives the item in `after` that is one of `before`."""
    theirs = {row.item_id: (number, row) for number, row in enumerate(after, 1)}
    said: list[str] = []
    seen: set[str] = set()
    for number, row in enumerate(before, 1):
        found = theirs.get(same(row.item_id) or "")
        if found is None:
            said.append(f"turn {number} ({_quoted(row.words)}) is not there any more")
            continue
        seen.add(found[1].item_id)
        name = f"turn {number}" if found[0] == number else f"turn {number} (now {found[0]})"
        said += _turn_changes(name, row, found[1])
    said += [
        f"turn {number} ({_quoted(row.words)}) is new: it ended at {_s(row.end_s)}"
        for number, row in enumerate(after, 1)
        if row.item_id not in seen
    ]
    return said


def _turn_changes(name: str, before: TurnRow, after: TurnRow) -> list[str]:
    said: list[str] = []
    for verb, then, now in (("began", before.start_s, after.start_s), ("ended", before.end_s, after.end_s)):
        if then is None or now is None:
            if then is not now:
                said.append(f"{name} {verb} {'never' if now is None else f'at {_s(now)}, which it never had'}")
        elif abs(moved := round((now - then) * 1000)) >= LEAST_MS:
            said.append(f"{name} {verb} {_moved(moved)} (at {_s(now)} instead of {_s(then)})")
    if before.words != after.words:
        said.append(f"{name} was heard as {_quoted(after.words)} instead of {_quoted(before.words)}")
    if before.answer != after.answer:
        was, is_now = _apart(before.answer, after.answer)
        said.append(f"the answer to {name} was {_quoted(is_now)} instead of {_quoted(was)}")
    if before.status != after.status:
        said.append(f"the answer to {name} ended as {after.status or 'none'} instead of {before.status or 'none'}")
    if before.first_ms != after.first_ms:
        said.append(
            f"the first sound behind {name} came {_after(after.first_ms)} instead of {_after(before.first_ms)}"
        )
    if before.heard_ms != after.heard_ms:
        said.append(f"of the answer to {name} {_ms(after.heard_ms)} was heard instead of {_ms(before.heard_ms)}")
    if before.interruptions != after.interruptions:
        said.append(f"behind {name}: {_causes(after)} instead of {_causes(before)}")
    return said


def _moved(ms: int) -> str:
    return f"{abs(ms):,} ms {'later' if ms > 0 else 'earlier'}"


def _s(seconds: float | None) -> str:
    return "no time" if seconds is None else f"{seconds:.3f} s"


def _ms(ms: int | None) -> str:
    return "nothing" if ms is None else f"{ms:,} ms"


def _after(ms: int | None) -> str:
    return "never" if ms is None else f"after {ms:,} ms"


def _causes(row: TurnRow) -> str:
    return f"interrupted by {', '.join(row.interruptions)}" if row.interruptions else "no interruption"


def _apart(before: str, after: str) -> tuple[str, str]:
    """Return two texts from a little before the place where they part, if that is far behind their beginning."""
    pairs = enumerate(zip(before, after, strict=False))
    parting = next((index for index, (one, other) in pairs if one != other), min(len(before), len(after)))
    shown = before[: max(parting - FAR // 2, 0)].rfind(" ") + 1
    return (before, after) if parting < FAR else (f"…{before[shown:]}", f"…{after[shown:]}")


def _quoted(text: str) -> str:
    short = text if len(text) <= 60 else f"{text[:59]}…"
    return f"“{short}”" if text else "nothing"
