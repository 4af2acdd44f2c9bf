"""Voice activity as a service: order, batching, and a scorer that fails."""

import threading

import anyio
import pytest

from antiphon.engine.scoring import FRAME_BYTES, LevelScorer, Scores, ScoringService, ScoringStream

from tests.rules import rule

pytestmark = pytest.mark.anyio

LOUD = b"\x00\x40" * 512
QUIET = bytes(FRAME_BYTES)


class Marked:
    """A scorer whose score is the frame's first byte in hundredths; it notes who was scored together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.next = 0
        self.gate: threading.Event | None = None
        self.fails = False

    def new_stream(self) -> object:
        self.next += 1
        return self.next

    def score(self, streams: list[object], frames: list[bytes]) -> list[float]:
        if self.gate is not None:
            self.gate.wait(10)
        if self.fails:
            raise ValueError("as asked")
        self.batches.append([stream for stream in streams if isinstance(stream, int)])
        return [frame[0] / 100 for frame in frames]


def frame(value: int) -> bytes:
    return bytes([value]) * FRAME_BYTES


async def scores_of(service: ScoringService, stream: ScoringStream, pcm16: bytes) -> tuple[list[int], int]:
    """Score what `pcm16` completes, and wait for it."""
    told, answers = anyio.Event(), list[Scores]()

    def done(scores: Scores) -> None:
        answers.append(scores)
        told.set()

    service.submit(stream, pcm16, done)
    await told.wait()
    return list(answers[0].values), answers[0].lead


@rule("F4")
async def test_an_append_gets_the_scores_of_the_frames_it_completes_and_their_lead() -> None:
    async with ScoringService(Marked()) as service:
        stream = service.new_stream()
        assert await scores_of(service, stream, frame(10)[:600]) == ([], 0)
        assert await scores_of(service, stream, frame(10)[600:] + frame(20) + frame(30)[:2]) == ([100, 200], 300)
        assert await scores_of(service, stream, frame(30)[2:]) == ([300], 1)
        assert await scores_of(service, stream, b"") == ([], 0)


async def test_scores_are_clipped_to_thousandths() -> None:
    async with ScoringService(Marked()) as service:
        assert await scores_of(service, service.new_stream(), frame(250)) == ([1000], 0)


@rule("F9")
async def test_sessions_are_scored_together_and_each_in_its_order() -> None:
    scorer = Marked()
    scorer.gate = threading.Event()
    async with ScoringService(scorer) as service:
        first, second = service.new_stream(), service.new_stream()
        seen: list[tuple[str, Scores]] = []
        service.submit(first, frame(1), lambda scores: seen.append(("warm", scores)))
        service.submit(first, frame(2) + frame(3), lambda scores: seen.append(("a", scores)))
        service.submit(second, frame(4), lambda scores: seen.append(("b", scores)))
        # Nothing is complete, but something of the stream is on its way: it must wait its turn.
        service.submit(first, frame(5)[:8], lambda scores: seen.append(("c", scores)))
        assert seen == []
        scorer.gate.set()
        await scores_of(service, second, frame(6))
    assert [(name, scores.values) for name, scores in seen] == [
        ("warm", (10,)),
        ("a", (20, 30)),
        ("b", (40,)),
        ("c", ()),
    ]
    assert [1, 2] in scorer.batches


@rule("F10")
async def test_a_scorer_that_raises_costs_only_the_scores() -> None:
    scorer = Marked()
    scorer.fails = True
    async with ScoringService(scorer) as service:
        stream = service.new_stream()
        assert await scores_of(service, stream, frame(1)) == ([], 0)
        scorer.fails = False
        assert await scores_of(service, stream, frame(2)) == ([20], 0)


async def test_without_a_thread_the_answer_is_there_at_once() -> None:
    service = ScoringService(LevelScorer(), threaded=False)
    seen: list[Scores] = []
    service.submit(service.new_stream(), QUIET + LOUD, seen.append)
    assert seen == [Scores((0, 1000), 0)]
