"""The client's outbox: everything is kept until it is known to be applied, and sent again until then."""

import json

import pytest

from antiphon.transport import client_outbox
from antiphon.transport.client_outbox import WINDOW, Outbox, Overfull
from antiphon.transport.wire_client import ClearBuffer, HeartbeatIn, ResponseCancel


def numbers(outbox: Outbox) -> list[int]:
    return [json.loads(frame)["client_seq"] for frame in outbox.take()]


def filled(*events: object) -> Outbox:
    outbox = Outbox()
    for event in events:
        assert isinstance(event, ClearBuffer | HeartbeatIn | ResponseCancel)
        outbox.put(event)
    return outbox


def test_commands_are_numbered_and_taken_once() -> None:
    outbox = filled(ClearBuffer(), ResponseCancel(response_id="r"))
    frames = [json.loads(frame) for frame in outbox.take()]
    assert frames == [
        {"type": "input_audio_buffer.clear", "client_seq": 1},
        {"type": "response.cancel", "client_seq": 2, "response_id": "r"},
    ]
    assert numbers(outbox) == []
    outbox.put(ClearBuffer())
    assert numbers(outbox) == [3]


def test_a_new_socket_sends_what_was_not_applied() -> None:
    outbox = filled(ClearBuffer(), ClearBuffer(), ClearBuffer())
    assert numbers(outbox) == [1, 2, 3]
    outbox.restart(2)
    assert numbers(outbox) == [3]
    outbox.restart(0)
    assert numbers(outbox) == [3]


def test_what_was_not_sent_yet_may_turn_out_to_be_applied() -> None:
    outbox = filled(ClearBuffer(), ClearBuffer())
    outbox.restart(1)
    assert numbers(outbox) == [2]


def test_an_answered_heartbeat_frees_what_came_before_it() -> None:
    outbox = filled(ClearBuffer(), HeartbeatIn(), ClearBuffer())
    list(outbox.take())
    outbox.heartbeat_answered()
    outbox.restart(0)
    assert numbers(outbox) == [3]
    outbox.heartbeat_answered()
    assert outbox.size > 0


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_outbox, "LARGEST", 10)
    outbox = filled(ClearBuffer())
    with pytest.raises(Overfull):
        outbox.put(ClearBuffer())
    assert outbox.last == 1


def test_a_long_queue_is_handed_over_window_by_window_and_nothing_is_lost() -> None:
    outbox = Outbox()
    for _ in range(3 * WINDOW):
        outbox.put(ClearBuffer())
    sent: list[bytes] = []
    rounds = 0
    while frames := list(outbox.take()):
        assert len(frames) <= WINDOW
        sent += frames
        rounds += 1
        for frame in frames:
            if b"heartbeat" in frame:
                outbox.heartbeat_answered()
    assert rounds > 2
    assert len(sent) == outbox.last >= 3 * WINDOW + 3
    assert [json.loads(frame)["client_seq"] for frame in sent] == list(range(1, outbox.last + 1))
