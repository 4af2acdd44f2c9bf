"""Projection: how many messages, in which order, by which names, in each dialect."""

import base64
import json
from typing import Any, get_args

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import SampleRef
from antiphon.events.items import AudioPart, TextPart
from antiphon.transport import wire_server as out
from antiphon.transport.wire_out import PROJECTED, Reader, form_of, notice, project, refusal, welcome
from antiphon.transport.wire_project import Form

from .scenes import (
    AUDIO,
    CALL,
    CUT_CALL,
    EVENTS,
    HEAD,
    OPENED,
    RESUMED,
    SESSION,
    SOUND,
    SPOKEN_ITEM,
    TICK,
    ended,
    entry,
)
from tests.rules import rule

FORMS: tuple[Form, ...] = ("ga", "beta", "duplex", "plain")


def reader(form: Form = "duplex", attachment: int = 2, token: str | None = "t" * 43) -> Reader:
    return Reader(session=SESSION, form=form, attachment=attachment, token=token)


def messages(
    *events: ev.AnyEvent,
    form: Form = "duplex",
    command: cmd.AnyCommand = TICK,
    epoch: int = 1,
    asked_to_close: bool = False,
) -> list[dict[str, Any]]:
    who = reader(form)
    who.asked_to_close = asked_to_close
    return [json.loads(message.data) for message in project(entry(*events, command=command), who, epoch)]


def types(*events: ev.AnyEvent, form: Form = "duplex", **more: Any) -> list[str]:
    return [message["type"] for message in messages(*events, form=form, **more)]


def test_every_public_event_has_a_row_and_an_example() -> None:
    public = {kind for kind in get_args(ev.AnyEvent) if issubclass(kind, ev.PublicEvent)}
    assert public == PROJECTED
    assert {type(event) for event in EVENTS} == public


@rule("D12")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_the_duplex_dialect_has_as_many_messages_as_the_core_counted(event: Any) -> None:
    made = project(entry(event), reader(), 1)
    assert len(made) == event.count
    numbers = [message.number for message in made]
    assert numbers == ([event.number + part for part in range(event.count)] if event.number else [0] * event.count)
    for part, message in enumerate(made):
        body = json.loads(message.data)
        assert body.get("server_event_seq", 0) == message.number
        assert body["event_id"] == ids.event_id(5, 0, part)


@pytest.mark.parametrize("form", ["ga", "beta", "plain"])
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_other_forms_have_no_numbers(event: Any, form: Form) -> None:
    made = messages(event, form=form)
    assert not any("server_event_seq" in message for message in made)
    if form != "plain":
        extensions = ("response.speak", "response.listen", "overlap.decision", "session.expired")
        assert not any(message["type"] in extensions for message in made)


@rule("G9")
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("ga", ["conversation.item.added", "conversation.item.done"]),
        ("beta", ["conversation.item.created"]),
        (
            "duplex",
            ["conversation.item.added", "conversation.item.created", "conversation.item.done"],
        ),
    ],
)
def test_item_notices(form: Form, expected: list[str]) -> None:
    event = next(event for event in EVENTS if isinstance(event, ev.ItemCreated))
    assert types(event, form=form) == expected


START = {
    "ga": [
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
    ],
    "beta": [
        "response.output_item.added",
        "conversation.item.created",
        "response.content_part.added",
    ],
    "duplex": [
        "response.output_item.added",
        "conversation.item.added",
        "conversation.item.created",
        "response.content_part.added",
        "response.speak",
    ],
}
END = {
    "ga": [
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
        "rate_limits.updated",
    ],
    "beta": [
        "response.audio.done",
        "response.audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ],
}
END["duplex"] = END["ga"]


@rule("G9", "P19")
@pytest.mark.parametrize("form", ["ga", "beta", "duplex"])
def test_the_order_inside_a_response(form: Form) -> None:
    started = next(event for event in EVENTS if isinstance(event, ev.OutputStarted))
    assert types(started, form=form) == START[form]
    assert types(ended(HEAD, SPOKEN_ITEM, 7), form=form) == END[form]


@rule("J9")
@pytest.mark.parametrize("form", ["ga", "beta", "duplex"])
def test_a_call_is_an_item_of_the_response_and_names_its_function_in_the_end(form: Form) -> None:
    started, written, done = (
        next(event for event in EVENTS if isinstance(event, kind))
        for kind in (ev.CallStarted, ev.CallDelta, ev.CallEnded)
    )
    added = {
        "ga": ["conversation.item.added"],
        "beta": ["conversation.item.created"],
        "duplex": ["conversation.item.added", "conversation.item.created"],
    }
    assert types(started, form=form) == ["response.output_item.added", *added[form]]
    (delta,) = messages(written, form=form)
    assert delta["type"] == "response.function_call_arguments.delta"
    assert (delta["call_id"], delta["output_index"], delta["delta"]) == ("call_1", 1, '{"a":')
    ended_by = messages(done, form=form)
    closed = [] if form == "beta" else ["conversation.item.done"]
    assert [message["type"] for message in ended_by] == [
        "response.function_call_arguments.done",
        "response.output_item.done",
        *closed,
    ]
    assert (ended_by[0]["name"], ended_by[0]["arguments"]) == ("look", '{"a": 1}')


@rule("J9")
def test_the_terminal_closes_a_call_that_was_cut_and_lists_every_item_in_order() -> None:
    event = ended(HEAD, SPOKEN_ITEM, 5, item_done=True, calls=(CALL,), cut=CUT_CALL, status="cancelled")
    made = messages(event)
    assert [message["type"] for message in made] == [
        "response.function_call_arguments.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
        "rate_limits.updated",
    ]
    assert made[0]["output_index"] == made[1]["output_index"] == 2
    assert made[1]["item"]["status"] == "incomplete"
    assert made[2]["previous_item_id"] == "item_c"
    output = made[3]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "function_call"]


@rule("G10", "G11")
def test_a_delta_and_its_words() -> None:
    sound, words = messages(AUDIO)
    assert base64.b64decode(sound["delta"]) == SOUND
    assert (sound["format"], sound["sample_rate_hz"]) == ("pcm16", 24_000)
    assert sound["metadata"]["audio_duration_ms"] == 80
    assert sound["metadata"]["audio_text_marks"] == [{"text_chars": 3, "audio_end_ms": 80}]
    assert sound["metadata"]["playback"] == {
        "generated_ms": 80,
        "sent_ms": 80,
        "played_ms": 0,
        "committed_ms": 0,
    }
    assert words["delta"] == "Hel"
    where = {"response_id": "resp_1", "item_id": "item_resp_1", "output_index": 0, "content_index": 0}
    assert all(where.items() <= message.items() for message in (sound, words))


def test_the_openai_dialects_have_no_extra_keys_in_a_delta() -> None:
    ga, _ = messages(AUDIO, form="ga")
    assert set(ga) == {
        "type",
        "event_id",
        "response_id",
        "item_id",
        "output_index",
        "content_index",
        "delta",
    }
    assert types(AUDIO, form="beta") == ["response.audio.delta", "response.audio_transcript.delta"]


@rule("P15")
def test_stale_sound_is_blanked_where_numbers_must_stay_whole_and_skipped_elsewhere() -> None:
    published = entry(AUDIO)
    live = project(published, reader(), 1)
    stale = project(published, reader(), 2)
    assert [message.number for message in live] == [message.number for message in stale]
    assert json.loads(stale[0].data)["delta"] == ""
    assert json.loads(stale[1].data)["delta"] == "Hel"
    assert types(AUDIO, form="ga", epoch=2) == ["response.output_audio_transcript.delta"]


def test_messages_are_encoded_once_for_each_dialect() -> None:
    published = entry(AUDIO)
    assert project(published, reader(), 1) is project(published, reader(), 1)
    assert project(published, reader("ga"), 1) is not project(published, reader(), 1)


@rule("F19", "F21")
def test_wire_3_5_a_commit_says_what_became_of_the_overlap() -> None:
    event = ev.InputCommitted(
        number=1,
        count=1,
        session="s",
        item_id="item_u",
        previous_item_id=None,
        ref=None,
        epoch=0,
        turn=1,
        overlap_deferred=True,
        response_create_deferred=True,
    )
    (duplex,) = messages(event)
    flags = {key: duplex["event"][key] for key in ("overlap_ack", "overlap_deferred", "response_create_deferred")}
    assert flags == {"overlap_ack": False, "overlap_deferred": True, "response_create_deferred": True}
    (ga,) = messages(event, form="ga")
    assert "event" not in ga


@rule("F14")
def test_wire_6_4_a_decision_says_what_becomes_of_the_sound() -> None:
    event = ev.OverlapDecided(
        number=1,
        count=1,
        session="s",
        epoch=0,
        policy="barge_in_on_speech",
        action="barge_in",
        reason="server_vad_speech_started",
        duration_ms=64,
        overlap_ms=96,
        buffer=True,
        cancel="turn_detected",
    )
    (told,) = messages(event)
    assert told["metadata"] == {
        "duration_ms": 64,
        "overlap_speech_ms": 96,
        "buffer_audio": True,
        "defer_runtime_append": False,
        "force_listen": False,
        "preserve_realtime_input": False,
        "cancel_reason": "turn_detected",
    }
    assert messages(event, form="ga") == []


def test_the_response_object_is_complete() -> None:
    done = messages(ended(HEAD, SPOKEN_ITEM, 7), form="ga")[-2]["response"]
    assert done["object"] == "realtime.response"
    assert done["status"] == "completed"
    assert done["status_details"] is None
    assert done["metadata"] == {"mine": "1"}
    assert done["output"][0]["content"] == [{"type": "output_audio", "transcript": "Hello."}]
    assert done["usage"]["input_token_details"]["cached_tokens_details"]["image_tokens"] == 0
    assert done["max_output_tokens"] == "inf"
    assert "modalities" not in done
    duplex = messages(ended(HEAD, SPOKEN_ITEM, 7))[-2]["response"]
    assert duplex["modalities"] == ["audio", "text"]
    assert {"mine", "type", "session_id", "response_id", "epoch", "committed", "playback"} <= set(
        duplex["metadata"]
    )
    beta = messages(ended(HEAD, SPOKEN_ITEM, 7), form="beta")[-2]["response"]
    assert beta["output"][0]["content"][0]["type"] == "audio"
    assert beta["output_audio_format"] == "pcm16"


@pytest.mark.parametrize(
    ("fields", "details"),
    [
        (
            {"status": "cancelled", "reason": "turn_detected", "cause": "barge_in"},
            {"type": "cancelled", "reason": "turn_detected", "cause": "barge_in"},
        ),
        (
            {"status": "cancelled", "reason": "client_cancelled"},
            {"type": "cancelled", "reason": "client_cancelled"},
        ),
        (
            {"status": "incomplete", "reason": "max_output_tokens"},
            {"type": "incomplete", "reason": "max_output_tokens"},
        ),
        (
            {"status": "failed", "failure": ev.Failure("engine_error", "m")},
            {"type": "failed", "error": {"type": "server_error", "code": "engine_error", "message": "m"}},
        ),
    ],
)
def test_status_details(fields: dict[str, object], details: dict[str, object]) -> None:
    made = messages(ended(HEAD, None, 2, **fields))
    assert made[0]["response"]["status_details"] == details


def test_opening() -> None:
    (created,) = messages(OPENED)
    assert created["type"] == "session.created"
    assert created["attachment_generation"] == 1
    assert created["resume_token"] == "t" * 43
    made = project(entry(OPENED, seq=1), reader("beta", token=None), 0)
    created, conversation = (json.loads(message.data) for message in made)
    assert "resume_token" not in created
    assert "attachment_generation" not in created
    assert conversation["conversation"]["object"] == "realtime.conversation"


@rule("D18")
def test_resuming_is_told_to_both_connections() -> None:
    (resumed,) = messages(RESUMED)
    assert resumed["type"] == "session.resumed"
    assert resumed["attachment_generation"] == 2
    assert resumed["last_client_seq"] == 3
    (replaced,) = project(entry(RESUMED), reader(attachment=1), 1)
    assert json.loads(replaced.data) == {
        "type": "session.replaced",
        "event_id": ids.event_id(5, 0, 0),
        "session_id": SESSION,
        "attachment_generation": 2,
    }


@rule("M18")
def test_a_close_shows_the_clients_word_and_the_reason_from_the_list() -> None:
    said = ev.SessionClosed(
        number=1, count=1, session=SESSION, reason="client_close", expired=False, words="I am tired."
    )
    (closed,) = messages(said)
    assert closed["reason"] == "I am tired."
    assert closed["event"] == {
        "type": "session.closed",
        "session_id": SESSION,
        "reason": "client_close",
        "detail": "I am tired.",
    }
    (plain,) = messages(ev.SessionClosed(number=1, count=1, session=SESSION, reason="shutdown", expired=False))
    assert (plain["reason"], plain["event"]) == (
        "shutdown",
        {"type": "session.closed", "session_id": SESSION, "reason": "shutdown"},
    )


def test_the_end_of_a_session() -> None:
    closed = ev.SessionClosed(number=1, count=1, session=SESSION, reason="client_close", expired=False)
    assert types(closed) == ["session.closed"]
    assert types(closed, form="ga") == []
    assert types(closed, form="ga", asked_to_close=True) == ["session.closed"]
    expired = ev.SessionClosed(number=1, count=1, session=SESSION, reason="max_duration", expired=True)
    assert types(expired) == ["session.expired"]
    (error,) = messages(expired, form="ga")
    assert error["error"]["code"] == "session_expired"


def test_output_cleared_is_volunteered_only_where_it_is_known() -> None:
    event = next(event for event in EVENTS if isinstance(event, ev.OutputCleared))
    assert types(event) == ["output_audio_buffer.cleared"]
    assert types(event, form="ga") == []


def test_5_13_a_pause_of_the_speaker_is_told_in_the_duplex_dialect_alone() -> None:
    suspected, dismissed, over, doubted = [
        event
        for event in EVENTS
        if isinstance(event, ev.InterruptionSuspected | ev.InterruptionDismissed | ev.InterruptionDoubted)
    ]
    told = messages(suspected, dismissed, over, doubted)
    assert [(m["type"], m["response_id"], m["at_ms"], m["reason"]) for m in told] == [
        ("output_audio_buffer.paused", "resp_1", 40, "interruption_suspected"),
        ("output_audio_buffer.resumed", "resp_1", 40, "too_short"),
        ("output_audio_buffer.resumed", "resp_1", 40, "no_words"),
    ]
    assert types(suspected, dismissed, over, doubted, form="ga") == []


SPELLINGS: list[tuple[str, str | None, str | None, cmd.AnyCommand, str | None, str | None]] = [
    ("bad_event", None, "type_missing", cmd.Tick(), "invalid_event", None),
    ("bad_event", "x", "missing", cmd.Tick(), "missing_required_parameter", "x"),
    ("bad_event", "x", "wrong_type", cmd.Tick(), "invalid_type", "x"),
    ("bad_event", "x", "value", cmd.Tick(), "invalid_value", "x"),
    ("unknown_event", None, None, cmd.Tick(), "invalid_value", "type"),
    ("bad_audio", None, None, cmd.Tick(), "invalid_value", "audio"),
    ("unsupported_turn_detection", "p", None, cmd.Tick(), "invalid_value", "p"),
    ("response_not_active", None, None, cmd.Tick(), "response_cancel_not_active", None),
    ("response_already_active", None, None, cmd.Tick(), "conversation_already_has_active_response", None),
    ("input_audio_buffer_empty", None, None, cmd.Tick(), "input_audio_buffer_commit_empty", None),
    ("input_backpressure", None, None, cmd.Tick(), "rate_limit_exceeded", None),
    (
        "item_not_found",
        "item_id",
        None,
        cmd.DeleteItem(attachment=1, item_id="i"),
        "item_delete_invalid_item_id",
        None,
    ),
    (
        "bad_event",
        "item_id",
        "value",
        cmd.TruncateItem(attachment=1, item_id="i", audio_end_ms=0),
        None,
        None,
    ),
    ("barge_in_unsupported", None, None, cmd.Tick(), "barge_in_unsupported", None),
]


@pytest.mark.parametrize(("code", "param", "detail", "command", "spelled", "at"), SPELLINGS)
def test_errors_are_spelled_by_dialect(
    code: str,
    param: str | None,
    detail: Any,
    command: cmd.AnyCommand,
    spelled: str | None,
    at: str | None,
) -> None:
    event = ev.ErrorReported(number=1, count=1, code=code, message="m", param=param, event_id="e", detail=detail)
    (ga,) = messages(event, form="ga", command=command)
    assert (ga["error"]["code"], ga["error"]["param"], ga["error"]["event_id"]) == (spelled, at, "e")
    (duplex,) = messages(event, command=command)
    assert (duplex["error"]["code"], duplex["error"]["param"]) == (code, param)
    assert {"type", "code", "message", "param", "event_id"} <= set(duplex["error"])


@rule("B22")
def test_what_may_be_tried_again_says_so() -> None:
    event = ev.ErrorReported(number=1, count=1, code="input_backpressure", message="m")
    (error,) = messages(event)
    assert error["error"]["retryable"] is True
    assert error["error"]["type"] == "rate_limit_error"


def test_notices_are_in_no_log_and_have_ids_of_their_own() -> None:
    first = notice(refusal("config_timeout", "m", None, None, "duplex"), 1)
    second = notice(out.RateLimits(), 2)
    assert json.loads(first.data)["event_id"] != json.loads(second.data)["event_id"]
    assert first.number == 0


def test_a_notice_to_a_client_without_numbers_says_what_it_has_seen() -> None:
    behind = ids.EventPosition(7, 1, 2)
    first, second = (json.loads(notice(out.RateLimits(), count, behind, 2).data)["event_id"] for count in (1, 2))
    assert first != second
    assert ids.last_seen(first) == ids.last_seen(second) == behind


@rule("D23", "D24")
@pytest.mark.parametrize("form", ["ga", "beta"])
def test_a_dialect_without_a_word_for_it_shows_a_resumed_session_once_more(form: Form) -> None:
    assert messages(RESUMED, form=form) == []
    shown = json.loads(welcome(entry(RESUMED), reader(form), ids.EventPosition(3, 0, 1)).data)
    assert shown["type"] == "session.created"
    assert (shown["attachment_generation"], shown["last_client_seq"], shown["resumed"]) == (2, 3, True)
    assert ids.last_seen(shown["event_id"]) == ids.EventPosition(3, 0, 1)


def test_only_what_can_be_resumed_is_numbered() -> None:
    assert form_of("duplex", resumable=True) == "duplex"
    assert form_of("duplex", resumable=False) == "plain"
    assert form_of("ga", resumable=False) == "ga"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_what_is_sent_can_be_read_as_what_it_says(event: Any, form: Form) -> None:
    for message in project(entry(event), reader(form), 1):
        body = json.loads(message.data)
        assert isinstance(body["type"], str)
        assert len(message.data) < 1_000_000


# -- what only the duplex dialect tells of the conversation (WIRE 0.3, 3.2, 3.5) ------------------------------

COMMITTED = ev.InputCommitted(
    number=1,
    count=1,
    session=SESSION,
    item_id="item_u",
    previous_item_id=None,
    ref=SampleRef("in", 0, 320),
    epoch=2,
    turn=1,
    transcript="Look:",
    content=(AudioPart("Look:", SampleRef("in", 0, 320), 16_000, 10), TextPart("this.")),
    history_len=7,
)


@rule("E36")
def test_a_commit_says_what_the_model_is_told_without_its_sound() -> None:
    (told,) = messages(COMMITTED)
    content = [{"type": "input_audio", "transcript": "Look:"}, {"type": "input_text", "text": "this."}]
    assert told["event"] == {
        "type": "input.committed",
        "session_id": SESSION,
        "turn_id": 1,
        "epoch": 2,
        "history_len": 7,
        "realtime_item_id": "item_u",
        "message": {"role": "user", "content": content},
        "transcript": "Look:",
        "is_speech": True,
        **dict.fromkeys(
            ("empty", "no_response", "overlap_ack", "overlap_deferred", "response_create_deferred"), False
        ),
    }
    empty = msgspec.structs.replace(COMMITTED, content=(), empty=True)
    assert messages(empty)[0]["event"]["message"] is None
    for form in ("ga", "beta"):
        assert "event" not in messages(COMMITTED, form=form)[0]


def test_deleting_and_truncating_tell_the_engines_own_events() -> None:
    deleted = ev.ItemDeleted(number=1, count=1, item_id="item_u")
    own = {"type": "conversation.item.deleted", "session_id": SESSION, "item_id": "item_u", "deleted": True}
    assert messages(deleted)[0]["event"] == own
    truncated = ev.ItemTruncated(
        number=1,
        count=1,
        item_id="item_r",
        response_id="r",
        content_index=3,
        audio_end_ms=40,
        text="He",
        epoch=1,
    )
    cut = {"item_id": "item_r", "content_index": 3, "audio_end_ms": 40}
    (told,) = messages(truncated)
    assert told["event"] == {
        "type": "conversation.item.truncated",
        "session_id": SESSION,
        **cut,
        "truncated": True,
    }
    assert {key: told[key] for key in cut} == cut
    for form in ("ga", "beta"):
        assert "event" not in messages(deleted, form=form)[0]
        assert "event" not in messages(truncated, form=form)[0]


@pytest.mark.parametrize("changes", [{}, {"final": False}, {"text": "", "error": "deaf"}])
def test_a_transcription_names_the_part_that_is_the_sound(changes: dict[str, Any]) -> None:
    values: dict[str, Any] = {"number": 1, "count": 1, "item_id": "i", "text": "hi", "seconds": 1.0, **changes}
    words = ev.UserTranscribed(**values, content_index=2)
    assert messages(words)[0]["content_index"] == 2
