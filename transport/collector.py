"""What a session looked like from its client: the times of its answers, and a picture of it."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from msgspec import UNSET, Struct

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import StageCost

from . import timeline_plot
from . import wire_server as out
from .client import SessionClient
from .client_events import Missed, Received
from .timeline import Answer, Connection, Delta, Mark, Story, Turn
from .wire_formats import ENCODINGS

GAP_MS = 60
"""A shorter silence inside an answer is not heard as one."""


class Gap(Struct, frozen=True):
    """Where an answer had to wait for its own sound: behind `at_ms` of it, for `ms`."""

    at_ms: int
    ms: int


class AnswerTimes(Struct, frozen=True, kw_only=True):
    """One answer. Times count from the end of the turn that it answers, as far as that was told, else from its
    creation, as they arrived here. `real_time_factor`: how long its sound took to come, to how long it is.
    `heard_ms` is set where it was cut; `stages` is what the server says that each stage spent on it."""

    response_id: str
    status: str
    reason: str | None
    words: str
    audio_ms: int
    first_words_ms: float | None
    first_sound_ms: float | None
    real_time_factor: float | None
    gaps: tuple[Gap, ...]
    heard_ms: int | None
    stages: tuple[StageCost, ...]


class Summary(Struct, frozen=True, kw_only=True):
    """A session. `suspicions`: how often an answer stood still for speech that might interrupt it; `missed`: the
    events that nobody read in time."""

    session: str
    seconds: float
    events: int
    answers: tuple[AnswerTimes, ...]
    interruptions: int
    suspicions: int
    resumes: int
    missed: int
    errors: tuple[str, ...]

    @property
    def first_sound_ms(self) -> float | None:
        """The median of the answers' times to their first sound."""
        times = [answer.first_sound_ms for answer in self.answers if answer.first_sound_ms is not None]
        return median(times) if times else None


class _Notes(Struct):
    """What is noted of an answer beside its story."""

    asked_s: float
    reason: str | None = None
    first_words_s: float | None = None
    last_s: float = 0.0
    runs_out_s: float = 0.0
    gaps: list[Gap] = msgspec.field(default_factory=list[Gap])


class Collector:
    """Listens to a client, from when it is made (best before the client is entered) until `stop`.

    `gap_ms`: which silences inside an answer are worth telling.
    """

    def __init__(self, client: SessionClient, *, gap_ms: int = GAP_MS) -> None:
        self.story = Story()
        """What happened when, in seconds since the session was opened; a picture is drawn of it."""
        self.stop = client.listen(self._hear)
        self._client = client
        self._gap_ms = gap_ms
        self._begin_us = client.clock.monotonic_us()
        self._notes: dict[str, _Notes] = {}
        self._committed_s: float | None = None
        self._suspicions = self._missed = 0

    # -- what comes of it ------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        """Return what is known so far."""
        story = self.story
        return Summary(
            session=self._client.session_id,
            seconds=story.end_s,
            events=story.events,
            answers=tuple(self._times(answer) for answer in story.answers),
            interruptions=len(story.interruptions),
            suspicions=self._suspicions,
            resumes=max(0, len(story.connections) - 1),
            missed=self._missed,
            errors=tuple(mark.label for mark in story.errors),
        )

    def text(self) -> str:
        """Return the summary as lines for a terminal."""
        return in_words(self.summary())

    def plot(self, path: Path) -> None:
        """Draw the session as its client saw it, as PNG or what the name ends with.

        Raises:
            ImportError: matplotlib is not installed (`pip install 'antiphon[demo]'`).
            OSError: the file cannot be written.
            ValueError: no picture can be what its name ends with.
        """
        self.story.session = self._client.session_id
        timeline_plot.draw(self.story, path)

    def _times(self, answer: Answer) -> AnswerTimes:
        notes = self._notes[answer.response_id]
        took = notes.last_s - (answer.first_s or 0.0)
        return AnswerTimes(
            response_id=answer.response_id,
            status=answer.status,
            reason=notes.reason,
            words=answer.text,
            audio_ms=answer.sent_ms,
            first_words_ms=_since(notes.asked_s, notes.first_words_s),
            first_sound_ms=_since(notes.asked_s, answer.first_s),
            real_time_factor=round(took * 1000 / answer.sent_ms, 3) if answer.sent_ms else None,
            gaps=tuple(notes.gaps),
            heard_ms=answer.heard_ms,
            stages=answer.costs,
        )

    # -- what comes in ---------------------------------------------------------------------------------------

    def _hear(self, event: Received) -> None:
        now = (self._client.clock.monotonic_us() - self._begin_us) / 1e6
        story = self.story
        story.end_s = now
        story.events += 1
        match event:
            case out.SessionCreated() | out.SessionResumed():
                self._connected(event, now)
            case out.SessionClosedOut() | out.SessionExpired():
                story.closed = event.reason
                story.connections[-1:] = [_ended(link, now, event.reason) for link in story.connections[-1:]]
            case out.ErrorOut():
                story.errors.append(Mark(now, event.error.code or event.error.message))
            case Missed():
                self._missed += event.count
            case out.OutputPaused():
                self._suspicions += 1
            case _:
                self._turn(event, now)

    def _connected(self, event: out.SessionCreated | out.SessionResumed, now: float) -> None:
        links = self.story.connections
        links[-1:] = [_ended(link, now, "disconnect") for link in links[-1:]]
        generation = event.attachment_generation
        links.append(Connection(1 if generation is UNSET else generation, now))

    def _turn(self, event: Received, now: float) -> None:
        turns = self.story.turns
        match event:
            case out.SpeechStartedOut():
                turns.append(Turn(event.item_id, now))
            case out.SpeechStoppedOut():
                self._of_item(event.item_id, now).stop_s = now
            case out.BufferCommitted():
                self._committed_s = self._of_item(event.item_id, now).committed_s = now
            case out.TranscriptionCompleted():
                self._of_item(event.item_id, now).text = event.transcript.strip()
            case _:
                self._answered(event, now)

    def _of_item(self, item_id: str, now: float) -> Turn:
        for turn in reversed(self.story.turns):
            if turn.item_id == item_id:
                return turn
        self.story.turns.append(Turn(item_id, now))
        return self.story.turns[-1]

    def _answered(self, event: Received, now: float) -> None:
        story = self.story
        match event:
            case out.ResponseCreatedOut():
                asked = now if self._committed_s is None else self._committed_s
                self._committed_s = None
                self._notes[event.response_id] = _Notes(asked)
                story.answers.append(Answer(event.response_id, "", now, _format(event.response)))
            case out.AudioDeltaOut() if event.delta:
                self._sound(event, now)
            case out.TranscriptDelta() | out.TextDeltaOut() if event.delta:
                answer = story.answer(event.response_id)
                if answer is not None:
                    answer.text += event.delta
                    notes = self._notes[event.response_id]
                    notes.first_words_s = now if notes.first_words_s is None else notes.first_words_s
            case out.ItemTruncatedOut():
                for answer in story.answers:
                    if answer.item_id == event.item_id:
                        answer.heard_ms, answer.basis = event.audio_end_ms, "truncate"
            case out.PlaybackAcknowledgedOut():
                answer = story.answer(event.event.response_id)
                if answer is not None:
                    answer.points.append((now, event.event.played_ms))
            case out.OutputClearedOut():
                story.interruptions.append(Mark(now, "cleared"))
            case out.ResponseDone():
                self._done(event, now)
            case _:
                pass

    def _sound(self, event: out.AudioDeltaOut, now: float) -> None:
        answer, notes = self.story.answer(event.response_id), self._notes.get(event.response_id)
        if answer is None or notes is None:
            return
        size = len(event.delta) * 3 // 4 - event.delta[-2:].count("=")
        start_ms = answer.sent_ms
        end_ms = start_ms + answer.format.ms(size)
        answer.item_id = event.item_id
        if answer.first_s is None:
            answer.first_s = notes.runs_out_s = now
        elif (now - notes.runs_out_s) * 1000 > self._gap_ms:
            notes.gaps.append(Gap(start_ms, round((now - notes.runs_out_s) * 1000)))
        notes.last_s = now
        notes.runs_out_s = max(notes.runs_out_s, now) + (end_ms - start_ms) / 1000
        answer.deltas.append(Delta(now, SampleRef("out", start_ms, end_ms - start_ms), start_ms, end_ms))

    def _done(self, event: out.ResponseDone, now: float) -> None:
        answer = self.story.answer(event.response_id)
        if answer is None:
            return
        response = event.response
        answer.ended_s, answer.status = now, response.status
        if response.status_details is not None and response.status_details.reason is not UNSET:
            self._notes[event.response_id].reason = response.status_details.reason
        if response.status == "cancelled":
            self.story.interruptions.append(Mark(now, self._notes[event.response_id].reason or "cancelled"))
        answer.costs = _costs(response)


def in_words(summary: Summary) -> str:
    """Return a summary as lines for a terminal."""
    rows = [("answer", "first words", "first sound", "sound", "real time", "gaps", "ended")]
    for number, answer in enumerate(summary.answers, 1):
        rows.append(
            (
                str(number),
                _ms(answer.first_words_ms),
                _ms(answer.first_sound_ms),
                f"{answer.audio_ms / 1000:.1f} s",
                "-" if answer.real_time_factor is None else f"x {answer.real_time_factor:.2f}",
                " ".join(f"{gap.ms} ms" for gap in answer.gaps) or "none",
                _ending(answer),
            )
        )
    lines = _aligned(rows) if summary.answers else ["no answer"]
    for number, answer in enumerate(summary.answers, 1):
        spent = " · ".join(f"{cost.stage} {cost.first_output_ms:.0f} ms" for cost in answer.stages)
        if spent:
            lines.append(f"first output for {number}: {spent}")
    counts = [
        f"{summary.events:,} events in {summary.seconds:.1f} s",
        f"interruptions: {summary.interruptions}",
        f"resumes: {summary.resumes}",
        f"errors: {', '.join(summary.errors) or 'none'}",
    ]
    if summary.missed:
        counts.append(f"not read in time: {summary.missed}")
    return "\n".join([*lines, "; ".join(counts)])


def _ending(answer: AnswerTimes) -> str:
    said = answer.status if answer.reason is None else f"{answer.status} ({answer.reason.replace('_', ' ')})"
    return said if answer.heard_ms is None else f"{said}, {answer.heard_ms / 1000:.1f} s heard"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"


def _since(begin_s: float, end_s: float | None) -> float | None:
    return None if end_s is None else round((end_s - begin_s) * 1000, 1)


def _ended(link: Connection, now: float, reason: str) -> Connection:
    link.end_s, link.reason = now, reason
    return link


def _format(response: out.ResponseOut) -> AudioFormat:
    shown = response.audio.output.format
    encoding = ENCODINGS.get(shown.type, "pcm16")
    return AudioFormat(encoding, shown.rate or 8_000)


def _costs(response: out.ResponseOut) -> tuple[StageCost, ...]:
    told = (response.metadata or {}).get("stage_costs")
    try:
        return msgspec.convert(told or (), tuple[StageCost, ...])
    except msgspec.ValidationError:  # of a server that means something else by it
        return ()
