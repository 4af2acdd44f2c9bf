"""`GET /metrics`: a fold over what is published, and a count of what there is."""

import urllib.request

import anyio.to_thread
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from antiphon.engine.clock import VirtualClock
from antiphon.engine.published import Published, published
from antiphon.events import commands as cmd
from antiphon.events.metrics import StageCost, Usage
from antiphon.transport.access import Access
from antiphon.transport.keys import Keys
from antiphon.transport.metrics import Metrics

from .held import HeldStage
from .serving import Serving, Wire, becomes, serving
from tests.sessions.world import QUICK_VAD, World

Figures = dict[str, float]

DUPLEX = "?duplex=1&model=m"


def read(text: str) -> Figures:
    """Return each sample under its name and labels, without those that say the model."""
    figures: Figures = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "model_name"}
            shown = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            figures[sample.name.removeprefix("vllm_omni:") + (f"{{{shown}}}" if shown else "")] = sample.value
            if sample.name.startswith("vllm_omni:"):
                assert sample.labels["model_name"] == "antiphon"
    return figures


async def scraped(served: Serving, **headers: str) -> Figures:
    def fetch() -> str:
        with urllib.request.urlopen(urllib.request.Request(served.http + "/metrics", headers=headers)) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            return str(answer.read().decode())

    return read(await anyio.to_thread.run_sync(fetch))


async def measured(world: World) -> Figures:
    """Return the figures of a session's log."""
    async with serving() as served:
        metrics = Metrics(served.hub)
        for transaction in world.log:
            metrics.take("duplex-1", published(transaction, {}))
        return read(metrics.text().decode())


@pytest.fixture
def spoken() -> World:
    """A turn that the detector ends, an answer with a gap in it, and speech that interrupts the next one."""
    world = World(vad=replace(QUICK_VAD, interrupt_response=True))
    for score in [20] * 3 + [900] * 10 + [20] * 12:
        world.append(1, score=score)
    world.wait(100)
    world.produce("Well", 300)
    world.wait(700)
    world.produce(" said.", 300)
    spent = Usage(input_text=7, input_audio=5, output_text=3)
    cost = StageCost(stage="voice", total_ms=250.0, audio_s=0.5, audio_frames=8)
    world.do(cmd.StageFinished(request=world.request, usage=spent, costs=(cost,)))
    return world


async def test_a_turn_is_measured(spoken: World) -> None:
    figures = await measured(spoken)
    assert figures["requests_success_total{finished_reason=stop}"] == 1
    assert figures["prompt_tokens_total"] == 12
    assert figures["generation_tokens_total"] == 3
    assert figures["e2e_request_latency_s_sum"] == pytest.approx(0.85, abs=0.05)
    assert figures["audio_duration_s_sum"] == pytest.approx(0.6)
    assert figures["audio_underrun_s_sum"] == pytest.approx(0.4)
    assert "audio_continuity_ok_total{threshold_ms=100}" not in figures
    assert figures["stage_gen_time_s_sum{stage=voice}"] == pytest.approx(0.25)
    assert figures["audio_rtf_sum{stage=voice}"] == pytest.approx(0.5)
    assert figures["audio_frames_total{stage=voice}"] == 8
    assert figures["realtime_vad_endpoint_delay_s_sum"] == pytest.approx(0.32, abs=0.04)
    assert figures["realtime_vad_endpoint_delay_s_count"] == 1


async def test_histograms_are_cumulative(spoken: World) -> None:
    figures = await measured(spoken)
    assert figures["audio_underrun_s_bucket{le=0.25}"] == 0
    assert figures["audio_underrun_s_bucket{le=0.5}"] == 1
    assert figures["audio_underrun_s_bucket{le=+Inf}"] == figures["audio_underrun_s_count"] == 1


async def test_an_interruption_is_measured_from_its_first_speech(spoken: World) -> None:
    for score in [900] * 10 + [20] * 12:
        spoken.append(1, score=score)
    spoken.produce("Another answer", 4000)
    spoken.wait(500)
    for _ in range(6):
        spoken.append(1, score=900)
    figures = await measured(spoken)
    assert figures["requests_success_total{finished_reason=abort}"] == 1
    assert figures["realtime_barge_in_latency_s_count"] == 1
    assert figures["realtime_barge_in_latency_s_sum"] <= 0.1


@pytest.mark.parametrize(("code", "reason"), [("engine_error", "engine_error"), ("\x1b]0;their own word", "other")])
async def test_a_failure_is_counted_by_a_code_that_is_ours(code: str, reason: str) -> None:
    world = World()
    world.begin()
    world.produce("It", 80)
    world.fail(code=code)
    figures = await measured(world)
    assert figures[f"requests_failed_total{{reason={reason}}}"] == 1


async def test_sessions_are_counted_as_they_are_and_nobody_needs_a_key() -> None:
    clock = VirtualClock()
    async with serving(access=Access(keys=Keys.of("k")), clock=clock, stage=HeldStage()) as served:
        key = {"additional_headers": {"api-key": "k"}}
        async with Wire.to(served.url + DUPLEX, **key) as duplex, Wire.to(served.url, **key) as ga:
            created = await duplex.next()
            await ga.next()
            await ga.send("conversation.item.create", item={"type": "message", "role": "user", "content": []})
            await ga.send("response.create")
            await ga.until("response.output_audio.delta")
            figures = await scraped(served)
            assert figures["realtime_sessions{dialect=duplex,state=attached}"] == 1
            assert figures["realtime_sessions{dialect=ga,state=attached}"] == 1
            assert figures["realtime_vad_active_sessions"] == 1
            assert figures["num_requests_running"] == 1
            assert figures["num_requests_waiting"] == 0
            assert figures["realtime_journal_bytes"] > 0
            assert figures["realtime_listening_beats_total"] == 0
        await becomes(lambda: served.hub.statistics().attached == 0)
        figures = await scraped(served)
        assert figures["realtime_sessions{dialect=duplex,state=detached}"] == 1
        assert "realtime_sessions{dialect=ga,state=attached}" not in figures
        for token in ("wrong", created["resume_token"]):
            async with Wire.to(served.url + "?resume=1", **key) as again:
                await again.send(
                    "session.resume",
                    session_id=created["session"]["id"],
                    resume_token=token,
                    last_received_server_event_seq=0,
                )
                await again.next()
        figures = await scraped(served)
        assert figures["realtime_resumes_total{outcome=refused}"] == 1
        assert figures["realtime_resumes_total{outcome=resumed}"] == 1
        assert (await scraped(served))["realtime_resumes_total{outcome=refused}"] == 1
        assert figures["process_open_fds"] > 0


async def test_what_a_client_says_is_no_label() -> None:
    async with serving() as served, Wire.to(served.url + "?model=their-own") as wire:
        await wire.next()
        assert "their-own" not in str(await scraped(served))


async def test_a_reader_that_fails_harms_no_session() -> None:
    def failing(_name: str, _entry: Published) -> None:
        raise RuntimeError("a fault of a reader")

    async with serving() as served:
        served.hub.measure(failing)
        with capture_logs() as told:
            async with Wire.to(served.url) as wire:
                await wire.next()
                await wire.send("input_audio_buffer.clear")
                await wire.until("input_audio_buffer.cleared")
        assert {line["event"] for line in told} == {"a reader of what is published failed"}


async def test_a_session_that_was_lost_is_forgotten() -> None:
    async with serving() as served:
        metrics = Metrics(served.hub)
        world = World()
        metrics.take("gone", published(world.log[0], {}))
        metrics.text()
        assert metrics._sessions == {}  # pyright: ignore[reportPrivateUsage]
        assert isinstance(world.log[0].command, cmd.OpenSession)
