"""Answers out of band, listen decisions and costs, as clients see them (WIRE 2.6, 3.3, 3.7, 3.8)."""

import json
from typing import Any

import msgspec
import pytest

from antiphon.events import events as ev
from antiphon.events.items import FunctionCall, Message
from antiphon.events.metrics import Latency, StageCost
from antiphon.transport.wire_metrics import stage_metrics
from antiphon.transport.wire_out import Reader, project
from antiphon.transport.wire_project import Form

from .scenes import AUDIO, HEAD, SESSION, SPOKEN_ITEM, entry
from tests.rules import rule

ASIDE = msgspec.structs.replace(HEAD, conversation_id=None)
FORMS: tuple[Form, ...] = ("ga", "beta", "duplex", "plain")
OPEN_ITEM = Message(id="item_resp_1", role="assistant", status="in_progress")
CALL = FunctionCall(id="item_c", call_id="call_c", name="look", arguments="{}")


def messages(*events: ev.AnyEvent, form: Form = "duplex", epoch: int = 1) -> list[dict[str, Any]]:
    who = Reader(session=SESSION, form=form, attachment=2, token="t" * 43)
    return [json.loads(message.data) for message in project(entry(*events), who, epoch)]


def ended(**changes: Any) -> ev.ResponseEnded:
    return ev.ResponseEnded(
        **{
            "number": 1,
            "count": 6,
            "session": SESSION,
            "head": ASIDE,
            "status": "completed",
            "item": SPOKEN_ITEM,
            "text": "Hello.",
            "reason": "stop",
            **changes,
        }
    )


BESIDE: list[ev.AnyEvent] = [
    ev.OutputStarted(
        number=1,
        count=3,
        session=SESSION,
        response_id="resp_1",
        item=OPEN_ITEM,
        previous_item_id=None,
        part="audio",
        epoch=1,
        aside=True,
    ),
    ended(),
    ended(item=None, calls=(), cut=CALL, text="", count=4),
    ev.OutputEnded(
        number=1,
        count=4,
        response_id="resp_1",
        item=SPOKEN_ITEM,
        previous_item_id=None,
        part="audio",
        text="Hello.",
        aside=True,
    ),
    ev.CallStarted(
        number=1, count=1, response_id="resp_1", output_index=0, item=CALL, previous_item_id=None, aside=True
    ),
    ev.CallEnded(
        number=1, count=2, response_id="resp_1", output_index=0, item=CALL, previous_item_id=None, aside=True
    ),
]


@rule("G5")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("event", BESIDE, ids=lambda event: type(event).__name__)
def test_no_conversation_item_is_told_of_an_answer_out_of_band(event: Any, form: Form) -> None:
    told = messages(event, form=form)
    assert not [message["type"] for message in told if message["type"].startswith("conversation.item")]
    if form == "duplex":
        assert len(told) == event.count


def test_its_response_object_has_no_conversation() -> None:
    done = next(message for message in messages(ended()) if message["type"] == "response.done")
    assert done["response"]["conversation_id"] is None
    assert done["response"]["output"][0]["id"] == "item_resp_1"


def test_its_sound_outlives_an_interruption() -> None:
    mine = msgspec.structs.replace(AUDIO, aside=True)
    assert messages(AUDIO, epoch=2)[0]["delta"] == ""
    assert messages(mine, epoch=2)[0]["delta"]
    assert messages(mine, epoch=2, form="ga")[0]["delta"]


@rule("G17", "G18")
def test_a_listen_decision_says_who_decided() -> None:
    told = ev.ListenDecided(number=1, count=1, session=SESSION, epoch=1, reason="model_listen", model=True)
    (message,) = messages(told)
    assert message["response"]["metadata"] == {
        "type": "response.listen",
        "reason": "model_listen",
        "model_listen": True,
    }
    assert "response_id" not in message
    waits = ev.ListenDecided(number=1, count=1, session=SESSION, epoch=1, reason="prefill", buffering=True)
    (message,) = messages(waits)
    assert message["response"]["metadata"]["model_listen"] is False
    assert message["response"]["metadata"]["buffering"] is True
    last = ev.ListenDecided(
        number=1, count=1, session=SESSION, epoch=1, reason="model_listen", response_id="resp_1"
    )
    (message,) = messages(last)
    assert message["response_id"] == message["response"]["id"] == "resp_1"
    assert messages(told, form="ga") == []


@rule("K27")
def test_the_times_of_a_response_are_told_with_their_origin() -> None:
    latency = Latency(since="the turn was submitted", first_text_ms=250.0, first_audio_ms=350.0)
    metadata = messages(ended(latency=latency))[-2]["response"]["metadata"]
    assert metadata["finish_reason"] == "stop"
    assert metadata["vllm_omni"] == {
        "response_request_metrics": {
            "source": "server_monotonic_request_start",
            "ttft_ms": 250.0,
            "ttfp_ms": 350.0,
            "measurement_origin": {"ttft": "the turn was submitted", "ttfp": "the turn was submitted"},
        }
    }


@rule("G11", "K24")
def test_what_stages_spent_is_told_if_the_session_wants_to_see_it() -> None:
    costs = (
        StageCost(stage="asr", total_ms=5.0),
        StageCost(stage="llm", output_tokens=3, token_intervals_ms=(1.0, 3.0)),
        StageCost(stage="tts", audio_s=0.5, output_intervals_ms=(80.0,)),
    )
    silent = messages(ended(costs=costs))[-2]["response"]["metadata"]
    assert "stage_metrics" not in silent["vllm_omni"]
    shown = messages(ended(costs=costs, shows_costs=True))[-2]["response"]["metadata"]["vllm_omni"]["stage_metrics"]
    assert shown == {
        "0": {"stage_name": "llm", "num_tokens_out": 3, "vllm_itls_ms": [1.0, 3.0], "vllm_itl_ms": 2.0},
        "1": {"stage_name": "asr", "stage_gen_time_ms": 5.0},
        "2": {
            "stage_name": "tts",
            "audio_duration_s": 0.5,
            "inter_output_latencies_ms": [80.0],
            "time_per_output_unit_ms": 80.0,
        },
    }
    delta = messages(msgspec.structs.replace(AUDIO, costs=costs))[0]
    assert delta["metadata"]["vllm_omni"]["stage_metrics"] == shown
    assert "vllm_omni" not in messages(AUDIO)[0]["metadata"]


def test_a_pipeline_without_a_language_model_has_no_stage_0() -> None:
    assert list(stage_metrics([StageCost(stage="echo")])) == ["1"]
