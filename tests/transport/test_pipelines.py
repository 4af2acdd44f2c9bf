"""Pipelines as data, and the server that is put together from one."""

from argparse import Namespace
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from msgspec.structs import replace
from structlog.testing import capture_logs

from antiphon.events.audio import AudioFormat
from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient, SessionOptions
from antiphon.transport.pipelines import PipelineError, VoiceActivity, load, read, shipped, with_models
from antiphon.transport.serve import LateScorer, ServeSettings, hub_for, made
from antiphon.transport.server import Listening, Server

from .serving import served_by
from tests.rules import rule

NARROW = AudioFormat("pcm16", 8_000)


def test_what_is_shipped() -> None:
    assert shipped() == ["echo", "voice"]
    assert [load(name).name for name in shipped()] == shipped()
    assert load("echo").stage.hosting == "inline"


def test_a_pipeline_that_is_not_there() -> None:
    with pytest.raises(PipelineError, match="there are: echo, voice"):
        load("../../etc/passwd")


@rule("B26")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('name = "x"', "model"),
        ('name = "x"\nmodel = "m"\nplugin = "p"\nmax_sessions = 1\ntypo = 2\n', "typo"),
        ("=", "wrong"),
    ],
)
def test_a_wrong_description_says_what_is_wrong(text: str, named: str) -> None:
    with pytest.raises(PipelineError, match=named):
        read(text)


def test_a_pipeline_of_ones_own_is_a_file(root: Path, tmp_path: Path) -> None:
    text = (root / "stages/pipelines/echo.toml").read_text("utf-8").replace('name = "echo"', 'name = "mine"')
    file = tmp_path / "mine.toml"
    file.write_text(text, "utf-8")
    assert load(str(file)).name == "mine"
    with pytest.raises(PipelineError, match="cannot read the pipeline"):
        load(str(tmp_path / "absent.toml"))


def test_each_model_of_the_voice_pipeline_can_be_replaced() -> None:
    changed = with_models(load("voice"), {"asr": "base", "llm": "./m.gguf", "tts": "v", "vad": "d.onnx"})
    assert changed.stage.arguments == {"asr": "base", "llm": "./m.gguf", "tts": "v"}
    assert changed.voice_activity.arguments == {"vad": "d.onnx"}


@rule("B26")
def test_a_pipeline_without_the_model_says_so() -> None:
    with pytest.raises(PipelineError, match="no model 'asr' to replace"):
        with_models(load("echo"), {"asr": "base"})


def test_a_name_is_called() -> None:
    assert made("argparse:Namespace", a=1) == Namespace(a=1)


@pytest.mark.parametrize(
    ("factory", "arguments", "why"),
    [
        ("nosuch:Thing", {}, "No module named 'nosuch'"),
        ("antiphon.stages.echo:Nope", {}, "no attribute 'Nope'"),
        ("antiphon.stages.echo", {}, "no attribute ''"),
        ("antiphon.stages.echo:EchoStage", {"volume": 11}, "unexpected keyword argument 'volume'"),
    ],
)
def test_a_factory_that_cannot_be_called_is_named(factory: str, arguments: dict[str, object], why: str) -> None:
    with pytest.raises(PipelineError, match=f"the factory '{factory}' cannot be called.*{why}"):
        made(factory, **arguments)


def test_a_scorer_that_cannot_be_loaded_is_replaced_by_loudness() -> None:
    scorer = LateScorer(VoiceActivity(factory="antiphon.stages.no_such_module:scorer"))
    stream = scorer.new_stream()
    with capture_logs() as logged:
        assert scorer.score([stream], [bytes(1024)]) == [0.0]
    assert [entry["log_level"] for entry in logged] == ["warning"]
    assert scorer.score([stream], [b"\x00\x40" * 512]) == [1.0]


@pytest.mark.anyio
@pytest.mark.parametrize("durable", [False, True])
async def test_the_echo_over_both_stores(tmp_path: Path, durable: bool) -> None:
    settings = ServeSettings(pipeline="echo", port=0, data=tmp_path / "data" if durable else None)
    async with hub_for(load("echo"), settings) as hub, served_by(Server(hub, Listening(port=0))) as url:
        async with RealtimeClient(url, SessionOptions(modalities=["text"])) as client:
            client.send_text("hello")
            client.create_response()
            done = await client.wait_for(out.ResponseDone)
            assert done.response.status == "completed"
        assert hub.settings.max_sessions == 1000
    assert (tmp_path / "data" / "log.sqlite3").exists() == durable


@rule("M15")
@pytest.mark.anyio
async def test_a_session_outlives_its_server(tmp_path: Path) -> None:
    settings = ServeSettings(pipeline="echo", data=tmp_path)

    gone = anyio.Event()

    async def live(port: int, stop: anyio.Event, *, task_status: TaskStatus[str]) -> None:
        async with hub_for(load("echo"), settings) as hub:
            await hub.recovered.wait()
            async with served_by(Server(hub, Listening(port=port))) as url:
                task_status.started(url)
                await stop.wait()
        gone.set()

    async with anyio.create_task_group() as group:
        first, second = anyio.Event(), anyio.Event()
        url = await group.start(live, 0, first)
        options = SessionOptions(modalities=["text"], turn_detection=None)
        async with RealtimeClient(url, options) as client:
            client.send_text("before")
            client.create_response()
            await client.wait_for(out.ResponseDone)
            first.set()
            await client.wait_for(out.SessionGoingAway)
            await gone.wait()
            await group.start(live, int(url.rpartition(":")[2]), second)
            client.send_text("after")
            client.create_response()
            done = await client.wait_for(out.ResponseDone)
            assert "after" in str(done.response.output)
            assert client.generation >= 2
        second.set()


@rule("F9", "B26")
@pytest.mark.anyio
async def test_a_detector_chosen_by_name_is_never_silently_replaced_f9(tmp_path: Path) -> None:
    chosen = with_models(load("voice"), {"vad": str(tmp_path / "absent.onnx")})
    with pytest.raises(PipelineError, match="the voice detector cannot be loaded"):
        async with hub_for(chosen, ServeSettings()):
            pytest.fail("it must not serve")
    text = tmp_path / "readme.onnx"
    text.write_text("# No model.")
    with pytest.raises(PipelineError, match="cannot be read as an ONNX model"):
        async with hub_for(with_models(load("voice"), {"vad": str(text)}), ServeSettings()):
            pytest.fail("it must not serve")


def test_why_there_is_no_detector_can_be_known_beforehand() -> None:
    scorer = LateScorer(VoiceActivity(factory="antiphon.stages.no_such_module:scorer"))
    assert "no_such_module" in (scorer.prepare() or "")
    assert "no_such_module" in (scorer.prepare() or "")
    with capture_logs() as logged:
        assert scorer.score([scorer.new_stream()], [bytes(1024)]) == [0.0]
    assert logged == []
    assert LateScorer(load("echo").voice_activity).prepare() is None


@pytest.mark.anyio
@pytest.mark.parametrize("strict", [False, True])
async def test_the_pipeline_s_name_is_a_model_too(strict: bool) -> None:
    for model, aliases in ((None, ()), ("other", ("echo",))):
        settings = ServeSettings(model=model, strict_model=strict)
        async with hub_for(load("echo"), settings) as hub:
            assert hub.settings.served_model == (model or "echo")
            assert hub.settings.aliases == aliases
            assert hub.settings.wildcard is not strict


@pytest.mark.anyio
async def test_what_is_left_to_resume_is_counted_at_the_end(tmp_path: Path) -> None:
    left: list[int] = []
    settings = ServeSettings(data=tmp_path)
    async with (
        hub_for(load("echo"), settings, left=left.append) as hub,
        served_by(Server(hub, Listening(port=0))) as url,
        RealtimeClient(url) as client,
    ):
        await hub.shutdown()
        await client.wait_for(out.SessionGoingAway)
        client.drop_socket()
        assert left == []
    assert left == [1]


@rule("B26")
async def test_a_server_whose_halves_do_not_fit_is_not_started() -> None:
    echo = load("echo")
    with pytest.raises(PipelineError, match="names no plugin: 'nobody'"):
        async with hub_for(replace(echo, plugin="nobody"), ServeSettings()):
            pass
    other = replace(
        echo.stage, factory="antiphon.stages.scripted:ScriptedStage", arguments={"input_format": NARROW}
    )
    with pytest.raises(PipelineError, match="the stage takes pcm16 at 8000 Hz"):
        async with hub_for(replace(echo, stage=other), ServeSettings()):
            pass


@rule("B27")
async def test_a_pipeline_may_ask_for_a_warm_up() -> None:
    described = replace(load("echo"), warm_up=2)
    async with hub_for(described, ServeSettings()) as hub:
        assert hub.settings.warm_up_units == 2
