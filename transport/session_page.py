"""The page of a session: one file that needs nothing else, neither a network nor a server.

What the log says stands in it as compressed bytes in base64, which no browser takes for markup or script. Its own
script shows it as text; the hash of that is all that the policy lets run.
"""

import base64
import hashlib
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache, partial
from html import escape
from importlib.resources import files

import msgspec
import numpy as np
from anyio import from_thread, to_thread
from msgspec import Struct

from antiphon.events import commands as cmd
from antiphon.events.audio import SampleRef
from antiphon.events.log import Transaction, Unavailable, UnknownSession, to_json

from .entries import is_quiet
from .levels import Read, levels_of, scores_of, step_ms
from .moments import moment
from .placing import Placed, of_heard, of_unheard, of_user
from .tableau import Tableau, tableau
from .timeline import Story, tell

BLOCK = 256
"""Entries that are compressed together: one of them is shown after these are unpacked, and no others."""

EVERY = 50_000
"""Of a log with more entries than these, pieces of sound and acknowledgements are not in the page word for word."""

SCRIPTS = ("data.js", "view.js", "voices.js", "lanes.js", "page.js")
"""They are one script, in this order."""


LAST = (1 << 32) - 1
"""Tenths of milliseconds that the page can tell: almost five days."""

NUMBERS = 7
"""Columns of the list before the numbers."""


class _Group:
    """Whose word an entry is; QUIET is added to what is most of a log and says least."""

    CLIENT, STAGE, ENGINE, QUIET = 0, 1, 2, 4


class Index(Struct, kw_only=True):
    """How the bytes of the page are to be read."""

    tableau: Tableau
    commands: list[str]
    events: list[str]
    steps: int
    step_ms: int
    blocks: list[int]
    block: int = BLOCK
    left_out: bool


async def session_page(
    transactions: Sequence[Transaction], samples: Callable[[SampleRef], Awaitable[bytes]]
) -> bytes:
    """Return the page of a log, which must not be empty; `samples` reads its sound, as `Samples.read` does.

    It is made in a thread: the loop is free meanwhile.
    """

    async def sound(ref: SampleRef) -> bytes | None:
        try:
            return await samples(ref)
        except (Unavailable, UnknownSession):
            return None

    return await to_thread.run_sync(partial(_page, transactions, lambda ref: from_thread.run(sound, ref)))


def _page(transactions: Sequence[Transaction], read: Read) -> bytes:
    story = tell(transactions)
    step = step_ms(story.end_s)
    voices = [of_user(story), of_heard(story.answers), of_unheard(story)]
    seconds = _seconds(story, voices)
    steps = int(seconds * 1000) // step + 1
    levels = [levels_of(voice, steps, step, read) for voice in voices]
    levels.append(scores_of(story.scores, steps, step))
    commands = sorted({type(transaction.command).__name__ for transaction in transactions})
    events = sorted({type(event).__name__ for transaction in transactions for event in transaction.events})
    left_out = len(transactions) > EVERY
    blocks = list(_blocks(transactions, left_out))
    index = Index(
        tableau=tableau(story, transactions),
        commands=commands,
        events=events,
        steps=steps,
        step_ms=step,
        blocks=[len(block) for block in blocks],
        left_out=left_out,
    )
    return _assemble(
        _title(index.tableau),
        {
            "index": zlib.compress(msgspec.json.encode(index), 9),
            "levels": zlib.compress(b"".join(one.tobytes() for one in levels), 9),
            "entries": zlib.compress(_entries(transactions, commands, events), 9),
            "blocks": b"".join(blocks),
        },
    )


def _seconds(story: Story, voices: list[list[Placed]]) -> float:
    """Return how much time is shown: of what nobody heard, only a little behind the end."""
    user, heard, unheard = (max((one.end_s for one in voice), default=0.0) for voice in voices)
    last = max(story.end_s, user, heard)
    return max(last, min(unheard, last * 1.05 + 1))


def _entries(transactions: Sequence[Transaction], commands: list[str], events: list[str]) -> bytes:
    """Return columns: times (tenths of milliseconds), numbers of events, commands, groups; then all events."""
    command_of = {name: place for place, name in enumerate(commands)}
    event_of = {name: place for place, name in enumerate(events)}
    origin = transactions[0].at
    times = np.array([_tenths(transaction.at - origin) for transaction in transactions], "<u4")
    said = bytes(command_of[type(transaction.command).__name__] for transaction in transactions)
    groups = bytes(_group(transaction) for transaction in transactions)
    counts = np.array([len(transaction.events) for transaction in transactions], "<u2")
    kinds = bytes(event_of[type(event).__name__] for transaction in transactions for event in transaction.events)
    return times.tobytes() + counts.tobytes() + said + groups + kinds


def _tenths(at_us: int) -> int:
    """Return a time in tenths of milliseconds; what is later than the page can tell stands at its end."""
    return min(max(0, at_us // 100), LAST)


def _group(transaction: Transaction) -> int:
    command = transaction.command
    if isinstance(command, cmd.ClientCommand):
        return _Group.CLIENT | (_Group.QUIET if is_quiet(transaction) else 0)
    return _Group.STAGE if isinstance(command, cmd.StageReport) else _Group.ENGINE


def _blocks(transactions: Sequence[Transaction], left_out: bool) -> Iterator[bytes]:
    for start in range(0, len(transactions), BLOCK):
        block = transactions[start : start + BLOCK]
        lines = [b"" if left_out and is_quiet(transaction) else to_json(transaction) for transaction in block]
        yield zlib.compress(b"\n".join(lines), 9)


def _title(shown: Tableau) -> str:
    return f"{shown.session} · {moment(shown.opened_us, '%Y-%m-%d %H:%M')}"


def list_page(rows: Sequence[tuple[str, ...]], count: int) -> bytes:
    """Return the list of sessions; each row is one of them, its columns are markup."""
    fixed = parts()
    lines = "\n".join(f"<tr>{' '.join(_cell(place, cell) for place, cell in enumerate(row))}</tr>" for row in rows)
    title = f"{count:,} sessions" if count != 1 else "1 session"
    if count > len(rows):
        title += f", the newest {len(rows):,} of them"
    page = fixed.list_template
    for place, text in (("style", fixed.style), ("title", title), ("data", lines)):
        page = page.replace(f"<!--{place}-->", text)
    return page.encode()


def _cell(place: int, cell: str) -> str:
    kind = "number" if place >= NUMBERS else "open" if cell == "open" else ""
    return f'<td class="{kind}">{cell}</td>' if kind else f"<td>{cell}</td>"


# -- the file ------------------------------------------------------------------------------------------------


class Parts(Struct, frozen=True):
    """What is the same in the page of every session, and the policy that lets it work."""

    template: str
    list_template: str
    style: str
    script: str
    policy: str


@cache
def parts() -> Parts:
    """Return the parts, read once."""
    own = files("antiphon.transport") / "session_files"
    # The colours and the type of the page at `/`: its sheet up to where its own places begin.
    inks = (files("antiphon.transport") / "page" / "style.css").read_text("utf-8").split("/* -- head")[0]
    style = inks + (own / "style.css").read_text("utf-8")
    script = "\n".join((own / name).read_text("utf-8") for name in SCRIPTS)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    templates = [(own / name).read_text("utf-8") for name in ("page.html", "list.html")]
    return Parts(templates[0], templates[1], style, script, policy)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _assemble(title: str, data: dict[str, bytes]) -> bytes:
    fixed = parts()
    bodies = "\n".join(
        f'<script type="text/plain" id="{name}">{base64.b64encode(body).decode()}</script>'
        for name, body in data.items()
    )
    page = fixed.template
    for place, text in (
        ("policy", fixed.policy),
        ("style", fixed.style),
        ("script", fixed.script),
        ("data", bodies),
        ("title", escape(title)),  # last: what it says is never looked through for places
    ):
        page = page.replace(f"<!--{place}-->", text)
    return page.encode()
