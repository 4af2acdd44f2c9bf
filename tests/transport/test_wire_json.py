"""JSON of strangers: whatever it holds, reading it takes time in proportion to its length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_in import decode
from antiphon.transport.wire_json import LONGEST_NUMBER, MOST_MARKS, MOST_VALUES, check_numbers
from antiphon.transport.wire_read import Reading, Undecided

READING = Reading(dialect="duplex", attachment=1)


def test_digits_are_looked_at_once() -> None:
    """Were a search begun at each of them, this would take minutes."""
    for length in (LONGEST_NUMBER, LONGEST_NUMBER // 2 + 1, LONGEST_NUMBER + 1):
        text = b'"' + (b"1" * length + b"a") * 3_000 + b'"'
        check_numbers(text, len(text))


@pytest.mark.parametrize("number", [b"1" * (LONGEST_NUMBER + 1), b"[0,-" + b"7" * (LONGEST_NUMBER + 1) + b"]"])
def test_a_number_that_is_too_long_is_refused_wherever_it_stands(number: bytes) -> None:
    check_numbers(number.replace(b"1", b"", 1).replace(b"7", b"", 1), len(number))
    check_numbers(b'"' + number + b'"', len(number))
    with pytest.raises(WireError, match="not valid JSON"):
        check_numbers(number, len(number))


@given(
    begin=st.integers(0, 3 * LONGEST_NUMBER),
    digits=st.integers(LONGEST_NUMBER - 3, LONGEST_NUMBER + 3),
    behind=st.integers(0, LONGEST_NUMBER),
)
def test_a_number_is_as_long_as_it_is_wherever_it_begins(begin: int, digits: int, behind: int) -> None:
    text = b"[" + b" " * begin + b"7" * digits + b" " * behind + b"]"
    if digits <= LONGEST_NUMBER:
        check_numbers(text, len(text))
    else:
        with pytest.raises(WireError, match="not valid JSON"):
            check_numbers(text, len(text))


class TestManyValues:
    """What takes time are not the bytes of a sound, but many small things."""

    @pytest.mark.parametrize(
        "value",
        [
            "[" + "0," * MOST_VALUES + "0]",
            "[" + "[]," * MOST_VALUES + "[]]",
            "{" + ",".join(f'"{number}":""' for number in range(MOST_VALUES + 1)) + "}",
            "[" + '"\\\\",' * MOST_VALUES + "0]",
            "[" + '"\\"[",' * MOST_VALUES + "0]",
            "[" + "[]," * 4_000_000 + "[]]",
            '"' + "," * (MOST_MARKS + 1) + '"',
        ],
        ids=["numbers", "lists", "keys", "escapes", "quotes", "far more", "marks in a text that nobody keeps"],
    )
    def test_more_than_any_event_has_are_refused_before_they_are_read(self, value: str) -> None:
        with pytest.raises(WireError) as refused:
            decode(f'{{"type":"session.close","reason":{value}}}', READING)
        assert (refused.value.code, refused.value.numbered) == ("event_too_large", False)

    @pytest.mark.parametrize(
        "text", ["," * 900_000, "[{" * 400_000, '\\",' * 300_000, "\\\\" * 300_000 + "[" * 300_000]
    )
    def test_marks_in_a_text_are_no_values(self, text: str) -> None:
        event = f'{{"type":"session.update","session":{{"instructions":"{text}"}}}}'
        decoded = decode(event, READING)
        assert isinstance(decoded, Undecided)

    def test_what_is_nested_too_deeply_is_told_so_however_much_there_is(self) -> None:
        with pytest.raises(WireError) as refused:
            decode('{"type":"session.close","reason":' + "[" * 6_000_000, READING)
        assert refused.value.code == "invalid_json"


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ('{"type":"session.close","reason":NaN}', "reason"),
        ('{"type":"session.close","reason":[{},[1,{"a":Infinity}],NaN]}', "reason[1][1].a"),
        ('{"type":"session.close","":-Infinity}', ""),
    ],
)
def test_no_number_is_named_by_its_path(text: str, param: str) -> None:
    with pytest.raises(WireError) as refused:
        decode(text, READING)
    assert (refused.value.code, refused.value.param) == ("bad_event", param)


@pytest.mark.parametrize(
    "text", ['"event_id":"\\ud800","type":NaN', '"\\udfff":NaN', '"type":"session.heartbeat","a\\ud8ff":Infinity']
)
def test_half_a_character_beside_no_number_is_no_json(text: str) -> None:
    """It could be told back to nobody, and would end the session that tries."""
    with pytest.raises(WireError) as refused:
        decode("{" + text + "}", READING)
    assert (refused.value.code, refused.value.param, refused.value.event_id) == ("invalid_json", None, None)


def test_the_path_of_no_number_is_made_once() -> None:
    """Were it made for each value on the way, this would copy terabytes."""
    key = "k" * 4_000_000
    with pytest.raises(WireError) as refused:
        decode(f'{{"type":"session.close","{key}":[{"0," * 60_000}NaN]}}', READING)
    assert refused.value.param == key[:128]
