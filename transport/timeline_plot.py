"""The picture of a session: who spoke when, what was asked of the stages, what was sent and what was heard.

matplotlib belongs to the `demo` extra and is imported when something is drawn.
"""

# matplotlib leaves its keyword arguments untyped, so that every drawing method is partly unknown.
# pyright: reportUnknownMemberType=false

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .plain import plain
from .timeline import Answer, Story
from .timeline_spans import spans, waits
from .wav import Pcm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, PAPER = "#1f2933", "#9aa5b1", "#ffffff"
USER, SPEECH, SCORE = "#2563eb", "#dbeafe", "#f59e0b"
THINK, WORK, SENT, HEARD = "#c4b5fd", "#7c3aed", "#5eead4", "#0f766e"
ALARM, LINE = "#dc2626", "#e4e7eb"
BINS_PER_SECOND = 60
CHARACTERS_PER_INCH = 15.0

Read = Callable[[int, int], Pcm]
"""Return the samples between two byte positions of a stream; shorter or empty where there are none."""


class Sound(NamedTuple):
    """Where the sound of a session can be read: the user's, and the assistant's."""

    user: Read
    assistant: Read


def _silent(start: int, end: int) -> Pcm:
    return np.zeros(0, np.int16)


SILENCE = Sound(_silent, _silent)
"""An exported log holds no sound: the lanes are drawn as bars then."""

LANES = {
    "connection": 0.45,
    "user": 1.5,
    "turns": 0.75,
    "at the stages": 0.75,
    "sent": 0.9,
    "heard": 1.5,
    "commands": 1.35,
}
"""The lanes and their heights, from above."""
TALL = 8.6
"""Inches of the picture with all of them."""


def draw(story: Story, path: Path, sound: Sound = SILENCE) -> None:
    """Write the picture to exactly this file, as PNG or what its name ends with.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
        ValueError: no picture can be what its name ends with.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    width = float(np.clip(story.end_s * 0.62, 13, 34))
    lanes = _lanes(story)
    tall = 1.4 + (TALL - 1.4) * sum(lanes.values()) / sum(LANES.values())
    with plt.rc_context({"font.size": 9, "axes.edgecolor": LINE, "hatch.linewidth": 0.6, "text.parse_math": False}):
        figure, axes = plt.subplots(
            len(lanes), 1, sharex=True, figsize=(width, tall), height_ratios=list(lanes.values()), facecolor=PAPER
        )
        figure.subplots_adjust(
            left=1.35 / width, right=1 - 0.3 / width, top=1 - 1.16 / tall, bottom=0.53 / tall, hspace=0.1
        )
        at = dict(zip(lanes, axes, strict=True))
        for name, axis in at.items():
            _prepare(axis, name)
        axes[-1].tick_params(axis="x", labelbottom=True)
        scale = _Scale(max(story.end_s, 1.0), width - 1.65)
        _connections(at["connection"], story, scale)
        _user(at["user"], story, sound)
        _turns(at["turns"], story, scale)
        _sent(at["sent"], story, scale)
        _heard(at["heard"], story, scale, sound)
        if "at the stages" in at:
            _stages(at["at the stages"], story, scale)
        if "commands" in at:
            _commands(at["commands"], story)
        _interruptions(axes, story)
        axes[-1].set_xlim(-0.01 * scale.seconds, scale.seconds * 1.01)
        axes[-1].set_xlabel("seconds of session time", color=INK)
        axes[-1].tick_params(axis="x", length=3, color=FAINT, labelcolor=INK, bottom=True)
        _title(figure, story)
        _save(figure, path)
        plt.close(figure)


def _save(figure: "Figure", path: Path) -> None:
    """Write the picture. What was said stands in it word for word; a letter that no font has is an empty box."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(plain(text.get_text(), lines=True))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        figure.savefig(path, format=path.suffix.removeprefix(".") or "png", dpi=110, facecolor=PAPER)


def _lanes(story: Story) -> dict[str, float]:
    """Return the lanes of a picture: a client knows nothing of the stages, and keeps no commands."""
    empty = {name for name, known in (("at the stages", story.work), ("commands", story.commands)) if not known}
    return {name: height for name, height in LANES.items() if name not in empty}


class _Scale(NamedTuple):
    """The width of the picture, for the length of labels."""

    seconds: float
    inches: float

    def fit(self, text: str, start_s: float, end_s: float) -> str:
        """Cut a label to the room between two moments; nothing if there is no room."""
        room = int((end_s - start_s) * self.inches / self.seconds * CHARACTERS_PER_INCH)
        return shorten(text, room, placeholder="…") if room >= 4 else ""


def _prepare(axis: "Axes", name: str) -> None:
    axis.set_yticks([])
    axis.set_ylim(-1.0, 1.0)
    axis.set_ylabel(name, rotation=0, ha="right", va="center", color=INK, labelpad=8, fontweight="bold")
    axis.tick_params(axis="x", length=0, labelbottom=False)
    axis.grid(axis="x", color=LINE, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _title(figure: "Figure", story: Story) -> None:
    answers = len(story.answers)
    cut = sum(answer.status == "cancelled" or answer.heard_ms is not None for answer in story.answers)
    facts = [
        f"{story.end_s:.1f} s",
        _count(len(story.turns), "turn"),
        _count(answers, "answer"),
        f"{cut} cut short",
        _count(len(story.connections), "connection"),
        f"{story.transactions:,} transactions, {story.events:,} events"
        if story.transactions
        else f"{story.events:,} events",
    ]
    if story.plugin:
        facts.insert(0, f"plugin {story.plugin}")
    left, tall = figure.subplotpars.left, float(figure.get_figheight())
    figure.text(left, 1 - 0.33 / tall, story.session, fontsize=13, fontweight="bold", color=INK)
    figure.text(left, 1 - 0.56 / tall, "   ·   ".join(facts), fontsize=9.5, color="#52606d")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- lanes ---------------------------------------------------------------------------------------------------


def _connections(axis: "Axes", story: Story, scale: _Scale) -> None:
    for index, link in enumerate(story.connections):
        end = story.end_s if link.end_s is None else link.end_s
        _bar(axis, link.start_s, end, "#cbd5e1", -0.5, 1.0)
        label = scale.fit(f"attachment {link.attachment}", link.start_s, end)
        axis.text(link.start_s, 0, f"  {label}", va="center", color=INK, fontsize=8)
        following = story.connections[index + 1 : index + 2]
        if following and following[0].start_s > end:
            axis.axvspan(end, following[0].start_s, color="#fee2e2", zorder=0)
            axis.text(
                following[0].start_s, 0.72, f"{link.reason}  ", ha="right", va="bottom", color=ALARM, fontsize=8
            )


def _user(axis: "Axes", story: Story, sound: Sound) -> None:
    for turn in story.turns:
        end = turn.stop_s if turn.stop_s is not None else turn.committed_s
        axis.axvspan(turn.start_s, story.end_s if end is None else end, color=SPEECH, zorder=0)
    if story.pieces:
        first, last = story.pieces[0].ref.start, story.pieces[-1].ref.end
        _wave(axis, _envelope(sound.user(first, last), story.input_format.rate), _warp(story), USER)
    if story.scores:
        times, values = zip(*story.scores, strict=True)
        axis.plot(times, [2 * value - 1 for value in values], color=SCORE, linewidth=0.9, alpha=0.85)
        axis.text(1.002, 0.95, "1", transform=axis.transAxes, color=SCORE, fontsize=7, va="top")
        axis.text(1.002, 0.05, "0", transform=axis.transAxes, color=SCORE, fontsize=7)
        _caption(axis, "probability\nof speech", "#b45309")


def _turns(axis: "Axes", story: Story, scale: _Scale) -> None:
    for index, turn in enumerate(story.turns):
        room = story.turns[index + 1].start_s if index + 1 < len(story.turns) else scale.seconds
        end = turn.stop_s if turn.stop_s is not None else turn.committed_s or story.end_s
        _bar(axis, turn.start_s, end, USER, 0.05, 0.6)
        text = scale.fit(f"“{turn.text}”" if turn.text else "(no words)", turn.start_s, room - 0.2)
        axis.text(turn.start_s, -0.1, text, va="top", color=INK, fontsize=9)
    for wait in waits(story):
        axis.annotate(
            "", (wait.until_s, 0.35), (wait.from_s, 0.35), arrowprops={"arrowstyle": "->", "color": INK, "lw": 0.9}
        )
        label = f"{(wait.until_s - wait.from_s) * 1000:.0f} ms"
        axis.text((wait.from_s + wait.until_s) / 2, 0.6, label, ha="center", va="bottom", color=INK, fontsize=8)


def _stages(axis: "Axes", story: Story, scale: _Scale) -> None:
    _caption(axis, "light: until the\nfirst output", "#52606d")
    for index, work in enumerate(story.work):
        end = story.end_s if work.end_s is None else work.end_s
        first = end if work.first_s is None else min(work.first_s, end)
        _bar(axis, work.start_s, first, THINK, 0.05, 0.6)
        _bar(axis, first, end, WORK, 0.05, 0.6)
        if work.end == "aborted":
            axis.plot([end], [0.35], marker="X", color=ALARM, markersize=8, clip_on=False, zorder=5)
        answer = story.answer(work.response_id)
        room = story.work[index + 1].start_s if index + 1 < len(story.work) else scale.seconds
        axis.text(
            *(work.start_s, -0.1, scale.fit(_costs(answer), work.start_s, room - 0.15)),
            va="top",
            color="#52606d",
            fontsize=8,
        )


def _caption(axis: "Axes", text: str, colour: str) -> None:
    """Write a second, small line under the name of a lane."""
    axis.text(-0.0065, 0.3, text, transform=axis.transAxes, ha="right", va="top", color=colour, fontsize=7)


def _costs(answer: Answer | None) -> str:
    if answer is None or not answer.costs:
        return ""
    return "first output: " + " · ".join(f"{cost.stage} {cost.first_output_ms:.0f} ms" for cost in answer.costs)


def _sent(axis: "Axes", story: Story, scale: _Scale) -> None:
    """Each piece of sound at the moment of its sending, as high as it is long; one pixel wide at least."""
    longest = max((delta.end_ms - delta.start_ms for a in story.answers for delta in a.deltas), default=1)
    for answer in story.answers:
        times = [delta.at_s for delta in answer.deltas]
        tall = [1.3 * (delta.end_ms - delta.start_ms) / longest for delta in answer.deltas]
        axis.bar(
            times, tall, width=max(0.02, scale.seconds / 900), bottom=-0.9, color=SENT, edgecolor=HEARD, lw=0.3
        )
        if answer.deltas:
            took = times[-1] - times[0]
            text = f"{answer.sent_ms / 1000:.1f} s of sound in {took:.1f} s"
            axis.text(times[0], 0.95, text, va="top", color=HEARD, fontsize=8)


def _heard(axis: "Axes", story: Story, scale: _Scale, sound: Sound) -> None:
    for index, answer in enumerate(story.answers):
        stretches = list(spans(answer))
        for span in stretches:
            axis.axvspan(span.start_s, span.end_s, ymin=0.18, color="#ccfbf1", zorder=0)
            _wave_of(axis, answer, span.start_s, span.from_ms, span.to_ms, sound, HEARD)
        start = stretches[0].start_s if stretches else answer.first_s
        if start is None:
            continue
        end = stretches[-1].end_s if stretches else start
        later = [other.first_s for other in story.answers[index + 1 :] if other.first_s is not None]
        room = later[0] if later else scale.seconds
        if answer.heard_ms is not None and answer.sent_ms > answer.heard_ms:
            _unheard(axis, answer, end, room, scale, sound)
        said = answer.text if answer.heard_text is None else answer.heard_text
        text = f"“{said}”" if said else "(nothing of it was heard)"
        axis.text(start, -0.72, scale.fit(text, start, room - 0.2), va="top", color=INK, fontsize=9)


def _unheard(axis: "Axes", answer: Answer, end_s: float, until_s: float, scale: _Scale, sound: Sound) -> None:
    """What was sent and never heard, drawn where it would have been, as far as there is room."""
    lost = (answer.sent_ms - answer.played_ms) / 1000
    shown = max(0.0, min(lost, until_s - end_s))
    axis.axvspan(
        end_s, end_s + shown, ymin=0.18, facecolor="none", edgecolor="#d1d5db", hatch="////", linewidth=0.5
    )
    _wave_of(axis, answer, end_s, answer.played_ms, answer.played_ms + int(shown * 1000), sound, "#c3c9d1")
    axis.text(
        end_s + 0.1 * scale.seconds / scale.inches,
        0.93,
        f"{lost:.1f} s never heard",
        va="top",
        color=ALARM,
        fontsize=8.5,
        zorder=6,
    )


def _wave_of(
    axis: "Axes", answer: Answer, start_s: float, from_ms: float, to_ms: float, sound: Sound, colour: str
) -> None:
    if answer.format.encoding != "pcm16" or not answer.deltas:
        return
    origin = answer.deltas[0].ref.start
    first, last = (origin + answer.format.bytes_for(int(ms)) for ms in (from_ms, to_ms))
    envelope = _envelope(sound.assistant(first, last), answer.format.rate)
    times = start_s + np.arange(len(envelope) + 1) / BINS_PER_SECOND
    _wave(axis, envelope, times, colour)


def _commands(axis: "Axes", story: Story) -> None:
    """Every kind that is rare has a line of its own; sound and acknowledgements share the lowest ones."""
    names = sorted(dict.fromkeys(mark.label for mark in story.commands), key=_rank)
    rows = {name: row for row, name in enumerate(names)}
    axis.set_ylim(len(names) - 0.4, -0.6)
    for name, row in rows.items():
        times = [mark.at_s for mark in story.commands if mark.label == name]
        often = len(times) > 40
        axis.plot(
            *(times, [row] * len(times)),
            linestyle="none",
            marker="|" if often else "D",
            markersize=5 if often else 4,
            markeredgewidth=0.5 if often else 0.8,
            color=FAINT if often else INK,
        )
    axis.set_yticks(range(len(names)), names, fontsize=6.8, color="#52606d")
    axis.tick_params(axis="y", length=0, pad=2)
    axis.set_ylabel("")


def _rank(name: str) -> bool:
    return name in ("AppendAudio", "AckPlayback")


def _interruptions(axes: Sequence["Axes"], story: Story) -> None:
    for mark in story.interruptions:
        for axis in axes:
            axis.axvline(mark.at_s, color=ALARM, linewidth=1.1, linestyle=(0, (4, 2)), zorder=4)
        axes[0].annotate(
            f"interrupted: {mark.label.replace('_', ' ')}",
            *((mark.at_s, 1.0), (mark.at_s, 1.9)),
            annotation_clip=False,
            color=ALARM,
            ha="center",
            fontsize=9,
            fontweight="bold",
        )
    for mark in story.errors:
        axes[-1].axvline(mark.at_s, color=ALARM, linewidth=0.8)
        axes[-1].text(mark.at_s, -0.5, f" {mark.label}", color=ALARM, fontsize=7.5, va="top")


# -- shapes --------------------------------------------------------------------------------------------------


def _bar(axis: "Axes", start: float, end: float, colour: str, bottom: float, height: float) -> None:
    axis.broken_barh([(start, max(end - start, 0.0))], (bottom, height), facecolors=colour, edgecolor="none")


def _envelope(samples: Pcm, rate: int) -> NDArray[np.float64]:
    """Return the loudest sample of each bin, 0 to 1, with the quiet parts raised so that they show."""
    size = max(1, rate // BINS_PER_SECOND)
    whole = len(samples) // size * size
    if not whole:
        return np.zeros(0)
    peaks = np.abs(samples[:whole].astype(np.float64)).reshape(-1, size).max(axis=1) / 32768
    return np.asarray(np.sqrt(peaks), np.float64)


def _warp(story: Story) -> NDArray[np.float64]:
    """Return the edges of the user's bins in session time: sound that came late is drawn when it came."""
    first, last = story.pieces[0].ref.start, story.pieces[-1].ref.end
    step = max(1, story.input_format.rate // BINS_PER_SECOND) * story.input_format.width
    ends = [piece.ref.end for piece in story.pieces]
    starts = [piece.end_s - story.input_format.ms(piece.ref.size) / 1000 for piece in story.pieces]
    known = np.array([[piece.ref.start, end] for piece, end in zip(story.pieces, ends, strict=True)]).ravel()
    times = np.array([[start, piece.end_s] for piece, start in zip(story.pieces, starts, strict=True)]).ravel()
    return np.interp(np.arange(first, last + 1, step), known, np.maximum.accumulate(times))


def _wave(axis: "Axes", envelope: NDArray[np.float64], edges: NDArray[np.float64], colour: str) -> None:
    count = min(len(envelope), len(edges) - 1)
    if count <= 0:
        return
    middles = (edges[:count] + edges[1 : count + 1]) / 2
    low, high = 0.15 - 0.8 * envelope[:count], 0.15 + 0.8 * envelope[:count]
    axis.fill_between(middles, low, high, color=colour, linewidth=0.4)
