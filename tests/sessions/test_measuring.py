"""What responses cost: added up by stage, kept for a response to come, and measured from the input (K24-K28)."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch
from antiphon.events.metrics import StageCost, Usage
from antiphon.sessions.measuring import KEPT_INTERVALS, added, folded, spent

from tests.rules import rule
from tests.sessions.world import World, kinds, only


def measure(world: World, *costs: StageCost, usage: Usage | None = None) -> list[ev.AnyEvent]:
    (request,) = world.session.requests
    return world.do(cmd.StageMeasured(request=request, costs=costs, usage=usage or Usage()))


@rule("K24")
def test_every_stage_has_one_entry_in_the_response_that_it_served() -> None:
    world = World()
    world.begin()
    measure(world, StageCost(stage="llm", output_tokens=3, total_ms=10.0))
    world.produce("Well, ", 100)
    measure(world, StageCost(stage="llm", output_tokens=4, total_ms=20.0), StageCost(stage="shown", outputs=1))
    finished = cmd.StageFinished(
        request=world.request, costs=(StageCost(stage="tts", audio_s=0.1),), usage=Usage(output_text=7)
    )
    ended = only(world.do(finished), ev.ResponseEnded)
    assert [cost.stage for cost in ended.costs] == ["llm", "shown", "tts"]
    assert (ended.costs[0].output_tokens, ended.costs[0].total_ms) == (7, 30.0)
    assert ended.usage == Usage(output_text=7)


@rule("K24")
def test_what_is_measured_comes_in_the_order_of_the_outputs_and_is_shown_with_the_next_sound() -> None:
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(extras={"return_stage_metrics": "true"})))
    world.begin()
    assert only(world.produce("a", 20), ev.AudioDelta).costs == ()
    cost = StageCost(stage="llm", output_tokens=3)
    assert kinds(measure(world, cost)) == ["CostsNoted"]
    assert only(world.produce("b", 20), ev.AudioDelta).costs == (cost,)
    assert only(world.finish(), ev.ResponseEnded).shows_costs


def test_a_session_that_did_not_ask_sees_no_costs() -> None:
    world = World()
    world.begin()
    measure(world, StageCost(stage="llm", output_tokens=3))
    assert only(world.produce("b", 20), ev.AudioDelta).costs == ()
    ended = only(world.finish(), ev.ResponseEnded)
    assert not ended.shows_costs
    assert ended.costs


@rule("K25")
def test_what_was_spent_before_a_response_is_kept_for_the_first_one_that_opens() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    measure(world, StageCost(stage="llm", output_tokens=1), usage=Usage(input_audio=5))
    measure(world, StageCost(stage="llm", output_tokens=2), usage=Usage(input_audio=6))  # two silent turns
    world.produce("Hm.", 20, world.resident)
    ended = only(world.finish(world.resident), ev.ResponseEnded)
    assert ended.costs == (StageCost(stage="llm", output_tokens=3),)
    assert ended.usage == Usage(input_audio=11)
    world.append()
    world.produce("Hm.", 20, world.resident)
    assert only(world.finish(world.resident), ev.ResponseEnded).costs == ()


@rule("K25", "G36", "A5")
def test_an_interruption_drops_it() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.produce("Hm.", 1_000, world.resident)
    world.finish(world.resident)
    world.append()
    measure_on = world.resident
    world.do(cmd.StageMeasured(request=measure_on, costs=(StageCost(stage="llm", outputs=1),)))
    assert world.session.costs
    world.barge_in()
    assert world.session.costs == ()
    assert world.session.usage == Usage()


def test_nothing_measured_is_no_event() -> None:
    world = World()
    world.begin()
    assert measure(world) == []
    request = world.request
    world.finish()
    assert world.do(cmd.StageMeasured(request=request, costs=(StageCost(stage="llm"),))) == []


@rule("K26")
def test_folding_two_measurements_of_a_stage() -> None:
    one = StageCost(
        stage="tts",
        queue_ms=5,
        first_output_ms=0,
        first_token_ms=7,
        total_ms=10,
        postprocess_ms=1,
        outputs=2,
        output_unit="frame",
        input_tokens=3,
        output_tokens=11,
        token_ms=2,
        token_intervals_ms=(1.0, 2.0),
        output_intervals_ms=(5.0,),
        audio_frames=4,
        audio_s=0.5,
        audio_rate=24_000,
        image_pixels=100,
    )
    two = StageCost(
        stage="tts",
        queue_ms=9,
        first_output_ms=3,
        first_token_ms=8,
        total_ms=20,
        postprocess_ms=2,
        outputs=1,
        output_type="audio",
        input_tokens=4,
        output_tokens=1,
        token_ms=13,
        token_intervals_ms=(3.0,),
        audio_frames=1,
        audio_s=0.25,
        audio_rate=22_050,
        image_pixels=1,
    )
    assert folded(one, two) == StageCost(
        stage="tts",
        queue_ms=9,  # the last value stands
        first_output_ms=3,  # the first positive one
        first_token_ms=7,
        total_ms=30,  # added
        postprocess_ms=3,
        outputs=3,
        output_unit="frame",
        output_type="audio",
        input_tokens=7,
        output_tokens=12,
        token_ms=3,  # (2 * 10 + 13 * 1) / 11
        token_intervals_ms=(1.0, 2.0, 3.0),
        output_intervals_ms=(5.0,),
        audio_frames=5,
        audio_s=0.75,
        audio_rate=22_050,
        image_pixels=101,
    )


@rule("K26")
def test_a_mean_of_which_there_is_only_one_is_kept() -> None:
    known, unknown = StageCost(stage="llm", token_ms=4, output_tokens=9), StageCost(stage="llm", output_tokens=1)
    assert folded(known, unknown).token_ms == folded(unknown, known).token_ms == 4


numbers = st.floats() | st.integers(-(10**12), 10**12).map(float)
costs = st.builds(
    StageCost,
    stage=st.sampled_from(["a", "b"]),
    total_ms=numbers,
    token_ms=numbers,
    first_output_ms=numbers,
    output_tokens=st.integers(),
    token_intervals_ms=st.lists(numbers, max_size=3).map(tuple),
)


@rule("K28")
@given(st.lists(costs, max_size=5))
def test_no_number_of_a_stage_makes_an_output_fail(given: list[StageCost]) -> None:
    assert len(added((), given)) == len({cost.stage for cost in given})


def test_tokens_are_summed() -> None:
    one = Usage(input_text=1, input_audio=2, cached=3, output_text=4, output_audio=5)
    assert spent(one, one) == Usage(input_text=2, input_audio=4, cached=6, output_text=8, output_audio=10)


@rule("K27")
def test_the_first_word_and_the_first_sound_are_measured_once_from_the_turn_s_input() -> None:
    world = World()
    world.append(30)
    world.commit(create_response=True)
    world.wait(250)
    world.produce("Well, ")
    world.wait(100)
    world.produce("all is well.", 500)
    world.wait(100)
    world.produce("Bye.", 500)
    latency = only(world.finish(), ev.ResponseEnded).latency
    assert (latency.first_text_ms, latency.first_audio_ms) == (250, 350)
    assert latency.since == "the turn was submitted"


@rule("K27")
def test_nothing_said_is_nothing_measured() -> None:
    world = World()
    world.begin()
    latency = only(world.finish(), ev.ResponseEnded).latency
    assert (latency.first_text_ms, latency.first_audio_ms) == (None, None)


@rule("K27")
def test_a_model_that_listens_is_measured_from_the_unit_before_its_first_output() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.accept()
    world.wait(500)
    world.append()  # the latest accepted unit of the turn counts
    world.accept()
    world.wait(70)
    world.produce("Hm.", 20, world.resident)
    world.wait(100)
    world.append()  # once the response exists, no later one does
    world.accept()
    world.produce("Yes.", 20)
    latency = only(world.finish(world.resident), ev.ResponseEnded).latency
    assert (latency.first_text_ms, latency.first_audio_ms) == (70, 70)
    assert latency.since == "the unit was handed over"


@rule("G11", "K26")
def test_a_delta_shows_means_and_the_end_shows_the_lists() -> None:
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(extras={"return_stage_metrics": "true"})))
    world.begin()
    measure(world, StageCost(stage="llm", outputs=1, token_intervals_ms=(1.0, 3.0), output_intervals_ms=(80.0,)))
    assert only(world.produce("Well.", 100), ev.AudioDelta).costs == (
        StageCost(stage="llm", outputs=1, token_interval_ms=2.0, output_interval_ms=80.0),
    )
    (whole,) = only(world.finish(), ev.ResponseEnded).costs
    assert (whole.token_intervals_ms, whole.token_interval_ms) == ((1.0, 3.0), 0.0)


@rule("K25", "K26")
def test_what_a_listening_model_measures_is_bounded() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    sizes: list[int] = []
    for number in range(12):
        measure(world, StageCost(stage="llm", outputs=1, output_intervals_ms=(float(number),) * 400))
        sizes.append(len(world.session.costs[0].output_intervals_ms))
    assert sizes[3:] == [KEPT_INTERVALS] * 9
    assert world.session.costs[0].output_intervals_ms[-1] == 11.0
    assert world.session.costs[0].outputs == 12
