"""Identifiers: derived, shaped, and inverted (BEHAVIOURS A)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import ids

from tests.rules import rule

SESSION = st.from_regex(r"(sess_|duplex-)[0-9a-f]{1,32}", fullmatch=True)
COUNT = st.integers(0, 2**40)


@rule("A9")
def test_a9_ids_depend_on_nothing_but_their_arguments() -> None:
    assert ids.response_id("s", 1) == ids.response_id("s", 1)
    assert ids.response_id("s", 1) != ids.response_id("s", 2)
    assert ids.response_id("s", 1)[5:] != ids.item_id("s", 1)[5:]
    assert ids.derive("a", "b", 1) != ids.derive("a\0b", "", 1)


def test_wire_3_ids_have_their_shape() -> None:
    for made, prefix in (
        (ids.response_id("s", 1), "resp_"),
        (ids.item_id("s", 1), "item_"),
        (ids.conversation_id("s"), "conv_"),
        (ids.event_id(1, 2, 3), "event_"),
        (ids.session_id("sess_", b"secret", "c", 0), "sess_"),
        (ids.session_id("duplex-", b"secret", "c", 0), "duplex-"),
    ):
        assert re.fullmatch(prefix + "[0-9a-f]{32}", made)
    assert ids.assistant_item_id("resp_x") == "item_resp_x"


def test_the_name_of_a_call_is_no_longer_than_clients_take() -> None:
    assert re.fullmatch("call_[0-9a-f]{24}", ids.call_id("s", 1))
    assert len(ids.call_id("s", 10**9)) <= ids.LONGEST_CALL_ID
    assert ids.call_id("s", 1) != ids.call_id("s", 2)


@rule("A1")
def test_a1_session_ids_follow_from_the_secret_and_their_prefix_is_checked() -> None:
    made = {
        ids.session_id("sess_", secret, control_id, attempt)
        for secret in (b"one", b"two")
        for control_id in ("a", "b")
        for attempt in (0, 1)
    }
    assert len(made) == 8
    assert ids.session_id("sess_", b"one", "a", 0) in made
    with pytest.raises(ValueError, match="not with 'other'"):
        ids.session_id("other", b"one", "a", 0)


@rule("A10", "A11", "P14")
@given(SESSION, COUNT, COUNT)
def test_a11_a_request_id_says_whose_it_is(session: str, epoch: int, turn: int) -> None:
    assert ids.parse_request(ids.turn_request(session, epoch, turn)) == ids.RequestName(session, epoch, turn)
    assert ids.parse_request(ids.resident_request(session, epoch)) == ids.RequestName(session, epoch, None)
    preview = ids.preview_request(session, epoch, turn)
    assert ids.parse_request(preview) == ids.RequestName(session, epoch, preview=turn)


@rule("A10", "A11", "P14")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "s.e",
        ".e1",
        "s.e01",
        "s.e1.turn",
        "s.e1.turn01",
        "s.e1.turnx",
        "s.e1x",
        "s.e-1",
        "s.e١",
        "s.e1.turn١",
        "s.e1.preview",
        "s.e1.preview01",
    ],
)
def test_a11_look_alikes_are_nobodys(text: str) -> None:
    assert ids.parse_request(text) is None


@given(st.integers(0, 2**63), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_an_event_id_can_be_inverted(seq: int, index: int, part: int) -> None:
    assert ids.parse_event_id(ids.event_id(seq, index, part)) == ids.EventPosition(seq, index, part)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1))
def test_the_ids_of_a_pair_are_those_of_its_messages(seq: int, index: int) -> None:
    first, second = ids.pair_of_event_ids(seq, index)
    assert (first.decode(), second.decode()) == (ids.event_id(seq, index, 0), ids.event_id(seq, index, 1))


@given(
    st.integers(1, 2**40 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(1, 60_000),
    st.integers(0),
)
def test_the_id_of_any_message_says_up_to_where_its_client_has_seen_everything(
    seq: int, index: int, part: int, attachment: int, count: int
) -> None:
    here = ids.EventPosition(seq, index, part)
    logged, unlogged = ids.event_id(seq, index, part), ids.unlogged_id(here, attachment, count)
    assert ids.last_seen(logged) == ids.last_seen(unlogged) == here
    assert logged != unlogged != ids.unlogged_id(here, attachment + 1, count)
    assert unlogged != ids.unlogged_id(here, attachment, count + 1)
    assert ids.through(seq) >= here
    assert ids.through(seq) < ids.EventPosition(seq + 1, 0, 0)


@pytest.mark.parametrize("text", ["", "item_1", ids.event_id(0, 0, 1)])
def test_an_id_that_says_nothing_of_what_was_seen(text: str) -> None:
    assert ids.last_seen(text) is None


@pytest.mark.parametrize(
    "text", ["", "event_", "event_" + "g" * 32, "0" * 32, "event_" + "0" * 31, "event_" + "F" * 32]
)
def test_what_is_not_an_event_id(text: str) -> None:
    assert ids.parse_event_id(text) is None


@rule("B20")
def test_b20_a_fingerprint_tells_bodies_apart() -> None:
    assert ids.fingerprint(b"a") == ids.fingerprint(b"a") != ids.fingerprint(b"b")
    assert len(ids.fingerprint(b"")) == 32


def test_b28_a_request_is_told_from_a_conversation_by_its_id() -> None:
    assert ids.is_request(ids.session_id(ids.REQUEST_PREFIX, b"secret", "open", 0))
    assert not ids.is_request(ids.session_id("sess_", b"secret", "open", 0))
