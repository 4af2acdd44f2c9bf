"""A session for the ear: to the sample what was said, what was heard, and what was made."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.log import Transaction, Unavailable
from antiphon.transport.listening import write_generated, write_heard
from antiphon.transport.placing import Placed, of_generated, of_heard, of_user
from antiphon.transport.timeline import Answer, Delta, Piece, Story, tell
from antiphon.transport.wav import Pcm, WavError

from tests.rules import rule
from tests.sessions.world import QUICK_VAD, World

IN, OUT = 16_000, 24_000


class Memory:
    """Samples that say where they lie: sample `n` of a stream is `n % 30,000`, negative in the user's."""

    def __init__(self, lost: Sequence[SampleRef] = ()) -> None:
        self.lost = lost

    async def __call__(self, ref: SampleRef) -> bytes:
        if any(ref.stream == gone.stream and ref.start < gone.end and gone.start < ref.end for gone in self.lost):
            raise Unavailable("gone")
        return numbered(ref.stream, ref.start // 2, ref.size // 2).astype("<i2").tobytes()


def numbered(stream: str, start: int, count: int) -> Pcm:
    values = np.arange(start, start + count) % 30_000 + 1
    return np.asarray(-values if stream == "in" else values, np.int16)


def heard(log: list[Transaction]) -> list[tuple[int, int, int]]:
    """Return what was heard of all answers: (sample of the clock, first sample of the stream, samples)."""
    return [_flat(one) for one in of_heard(tell(log).answers)]


def _flat(one: Placed) -> tuple[int, int, int]:
    (ref,) = one.refs
    return one.start, ref.start // one.format.width, one.samples


def at(world: World) -> int:
    """Return now as a sample of the assistant's clock."""
    return (world.now - world.log[0].at) * OUT // 1_000_000


def speaking(ms: int = 300, pieces: int = 3, **options: object) -> World:
    """A session whose model has begun to speak, faster than it is played."""
    world = World(**options)  # type: ignore[arg-type]
    world.wait(100)
    world.begin()
    world.wait(250)
    for _ in range(pieces):
        world.produce("some words ", ms)
    return world


@rule("I16")
def test_what_an_interruption_cut_is_silent_from_that_sample_on() -> None:
    world = speaking()
    begin = at(world)
    world.wait(412)
    world.barge_in()
    world.wait(1_000)
    assert heard(world.log) == [(begin, 0, 412 * OUT // 1000)]


def test_a_truncation_says_better_what_was_heard_than_the_model() -> None:
    world = speaking(dialect="ga")
    begin = at(world)
    world.wait(412)
    (cut,) = [event for event in world.cancel() if isinstance(event, ev.HistoryCut)]
    assert (cut.ms, cut.basis) == (412, "playout")
    world.wait(20)
    world.truncate(cut.item_id, 350)
    assert heard(world.log) == [(begin, 0, 350 * OUT // 1000)]
    world.log.pop()
    world = speaking(dialect="ga")
    world.wait(412)
    world.cancel()
    world.truncate(cut.item_id, 500)
    assert heard(world.log) == [(begin, 0, 500 * OUT // 1000)], "it had played more than we thought"


def test_a_late_acknowledgement_corrects_what_the_model_thought_and_one_may_cut() -> None:
    world = speaking(dialect="ga")
    begin = at(world)
    world.wait(2)
    response = world.session.response
    assert response is not None
    world.cancel()
    world.wait(600)
    world.ack(500, response_id=response.head.id)
    assert sum(count for _, _, count in heard(world.log)) == 500 * OUT // 1000
    world = speaking()
    response = world.session.response
    assert response is not None
    world.wait(800)
    world.ack(700, response_id=response.head.id)
    world.ack(400, response_id=response.head.id, truncate=True)
    assert heard(world.log) == [(begin + 100 * OUT // 1000, 0, 400 * OUT // 1000)]
    (answer,) = tell(world.log).answers
    assert (answer.heard_ms, answer.basis) == (400, "ack")


def test_acknowledgements_say_when_it_began() -> None:
    world = speaking()
    response = world.session.response
    assert response is not None
    for ms in (100, 200, 300):
        world.wait(130 if ms == 100 else 100)
        world.ack(ms, response_id=response.head.id)
    world.wait(50)
    world.barge_in()
    begin = at(world) - (50 + 300) * OUT // 1000
    assert heard(world.log) == [(begin, 0, 300 * OUT // 1000)]


def test_what_is_made_while_nobody_is_there_is_heard_after_the_resume() -> None:
    world = speaking(pieces=1)
    begin = at(world)
    world.wait(200)
    world.detach()
    world.produce("not for nobody", 300)
    world.wait(2_000)
    world.resume()
    again = at(world)
    world.finish()
    world.wait(1_000)
    world.tick()
    assert heard(world.log) == [
        (begin, 0, 300 * OUT // 1000),
        (again, 300 * OUT // 1000, 300 * OUT // 1000),
    ]


def test_a_deferred_turn_is_answered_behind_what_plays() -> None:
    world = World(plugin="echo", dialect="ga")
    world.wait(100)
    first = world.begin()
    world.produce("one", 1_000)
    begin = at(world)
    world.finish()
    world.wait(300)
    world.begin("And?")
    world.produce("two", 500)
    world.finish()
    assert first
    spans = heard(world.log)
    assert spans == [(begin, 0, 1_500 * OUT // 1000)], "the second waits for the last sample of the first"


def test_a_speaker_that_paused_is_a_gap_and_nothing_is_lost() -> None:
    answer = Answer("r", "i", 0.0, AudioFormat("pcm16", OUT))
    answer.first_s = 1.0
    answer.deltas = [Delta(1.0, SampleRef("out", 0, 2 * OUT), 0, 1_000)]
    answer.points = [(1.4, 400), (2.4, 900), (2.5, 1_000)]
    assert [_flat(one) for one in of_heard([answer])] == [(OUT, 0, 9_600), (OUT * 19 // 10, 9_600, 14_400)]


def test_5_13_what_is_held_for_speech_that_is_no_interruption_plays_on_at_the_same_sample() -> None:
    world = World(vad=msgspec.structs.replace(QUICK_VAD, silence_duration_ms=640, false_interruption=True))
    world.begin()
    begin = at(world)
    world.produce("All is well. ", 1_000)
    world.wait(400 - 64)
    world.append(2, score=950)
    assert world.logged(ev.InterruptionSuspected)
    world.append(6, score=950)
    while not (world.logged(ev.InterruptionDismissed) or world.logged(ev.InterruptionDoubted)):
        world.append(1, score=10)
    again = at(world)
    world.wait(2_000)
    world.finish()
    played = 400 * OUT // 1000
    assert heard(world.log) == [(begin, 0, played), (again, played, OUT - played)]


def test_sound_is_never_heard_before_it_was_sent_nor_behind_the_cut() -> None:
    world = speaking(ms=400, pieces=1, dialect="ga")
    begin = at(world)
    world.wait(1_000)
    world.produce("late", 1_000)
    late = at(world)
    world.wait(300)
    world.cancel()
    assert heard(world.log) == [(begin, 0, 9_600), (late, 9_600, 300 * OUT // 1000)]


def test_the_end_of_a_session_ends_what_plays() -> None:
    world = speaking(ms=1_000, pieces=1, dialect="ga")
    begin = at(world)
    open_ended = heard(world.log)
    world.wait(250)
    world.close()
    assert open_ended == [(begin, 0, OUT)], "of a session that goes on, what was sent plays on"
    assert heard(world.log) == [(begin, 0, OUT // 4)]


# -- the user ------------------------------------------------------------------------------------------------


def said(*pieces: tuple[float, int]) -> list[tuple[int, int, int]]:
    """Place pieces that are given as (arrival, samples)."""
    story, start = Story(), 0
    for when, count in pieces:
        story.pieces.append(Piece(SampleRef("in", start * 2, count * 2), when))
        start += count
    return [_flat(one) for one in of_user(story)]


def test_the_user_is_placed_where_the_sound_arrived() -> None:
    assert said((1.0, 1_600), (1.1, 1_600), (5.0, 1_600)) == [(14_400, 0, 3_200), (78_400, 3_200, 1_600)]


def test_jitter_is_no_gap_and_a_network_that_stood_still_none_either() -> None:
    assert said((1.02, 1_600), (1.1, 1_600), (1.21, 1_600)) == [(14_400, 0, 4_800)]
    late = [(1.0, 1_600), (2.0, 1_600), *((2.0, 1_600),) * 9]
    assert said(*late) == [(14_400, 0, 11 * 1_600)]


def test_what_came_faster_than_it_was_spoken_begins_at_the_beginning() -> None:
    assert said((0.1, 16_000), (0.1, 16_000)) == [(0, 0, 32_000)]


# -- files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    """A spoken turn whose answer is interrupted after 412 ms of 900."""
    world = World(vad=QUICK_VAD)
    for score in [20] * 3 + [900] * 10 + [20] * 12:
        world.append(1, score=score)
    world.wait(200)
    for _ in range(3):
        world.produce("some words ", 300)
    world.wait(412)
    world.barge_in()
    world.wait(500)
    world.close()
    return world


def sound_of(path: Path, channels: int) -> Pcm:
    return np.frombuffer(path.read_bytes()[44:], "<i2").reshape(-1, channels).astype(np.int16)


async def test_both_voices_lie_on_the_clock_of_the_session(world: World, tmp_path: Path) -> None:
    story = tell(world.log)
    written = await write_heard(tmp_path / "a.wav", story, Memory())
    sound = sound_of(written.path, 2)
    assert (written.rate, written.missing.user, written.missing.assistant) == (OUT, 0, 0)
    assert len(sound) == round(story.end_s * OUT)
    first = next(event for event in world.logged(ev.AudioDelta))
    begin = round((story.answers[0].first_s or 0) * OUT)
    count = 412 * OUT // 1000
    assert not sound[:begin, 1].any()
    assert np.array_equal(sound[begin : begin + count, 1], numbered("out", first.ref.start // 2, count))
    assert not sound[begin + count :, 1].any(), "cut at the interruption"
    ends = 25 * 512 * OUT // IN
    assert np.abs(sound[100 : ends - 100, 0]).min() > 0, "25 frames of the user, from the beginning"
    assert not sound[ends + 1 :, 0].any()


async def test_what_was_made_is_whole(world: World, tmp_path: Path) -> None:
    story = tell(world.log)
    written = await write_generated(tmp_path / "b.wav", story, Memory())
    sound = sound_of(written.path, 1)[:, 0]
    begin = round((story.answers[0].first_s or 0) * OUT)
    assert np.array_equal(sound[begin : begin + 900 * OUT // 1000], numbered("out", 0, 900 * OUT // 1000))
    assert not sound[:begin].any()


async def test_sound_past_its_retention_is_silence_and_is_told(world: World, tmp_path: Path) -> None:
    gone = SampleRef("out", 0, 100 * OUT // 1000 * 2)
    story = tell(world.log)
    written = await write_heard(tmp_path / "a.wav", story, Memory([gone]))
    assert written.missing.assistant == pytest.approx(0.1, abs=0.05)
    assert written.missing.user == 0
    sound = sound_of(written.path, 2)[:, 1]
    begin = round((story.answers[0].first_s or 0) * OUT)
    assert not sound[begin : begin + 2_400].any()
    assert sound[begin + 412 * OUT // 1000 - 1], "the rest is there"


async def test_g711_is_expanded_and_the_highest_rate_is_the_files(tmp_path: Path) -> None:
    story = Story(session="s", end_s=2.0)
    answer = Answer("r", "i", 0.0, AudioFormat("g711_ulaw", 8_000), first_s=0.5)
    answer.deltas = [Delta(0.5, SampleRef("out", 0, 8_000), 0, 1_000)]
    story.answers = [answer]
    story.pieces = [Piece(SampleRef("in", 0, 3_200), 1.0)]
    written = await write_heard(tmp_path / "a.wav", story, Memory())
    assert (written.rate, written.seconds) == (IN, 2.0)
    sound = sound_of(written.path, 2)
    assert sound[IN // 2 + 100 : IN // 2 + IN - 100, 1].any()
    assert np.array_equal(sound[IN * 9 // 10 : IN, 0], numbered("in", 0, 1_600))


async def test_a_session_that_is_longer_than_a_file_is_refused(tmp_path: Path) -> None:
    story = Story(session="s", end_s=200_000.0)
    with pytest.raises(WavError, match=r"55\.6 hours"):
        await write_heard(tmp_path / "a.wav", story, Memory())
    assert not (tmp_path / "a.wav").exists()


def test_all_that_was_made_never_overlaps() -> None:
    form = AudioFormat("pcm16", OUT)
    first, second = Answer("a", "i", 0.0, form, first_s=1.0), Answer("b", "j", 0.0, form, first_s=1.5)
    first.deltas = [Delta(1.0, SampleRef("out", 0, 2 * OUT), 0, 1_000)]
    second.deltas = [Delta(1.5, SampleRef("out", 2 * OUT, 2 * OUT), 0, 1_000)]
    assert [_flat(one) for one in of_generated([second, first])] == [(OUT, 0, 2 * OUT)]
