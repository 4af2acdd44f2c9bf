"""JSON of strangers: whatever it holds, reading it takes time in proportion to its length."""

import pytest

from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_in import decode
from antiphon.transport.wire_json import LONGEST_NUMBER, check_numbers
from antiphon.transport.wire_read import Reading

READING = Reading(dialect="duplex", attachment=1)


def test_digits_are_looked_at_once() -> None:
    """Were a search begun at each of them, this would take minutes."""
    text = b'"' + (b"1" * LONGEST_NUMBER + b"a") * 3_000 + b'"'
    check_numbers(text, len(text))


@pytest.mark.parametrize("number", [b"1" * (LONGEST_NUMBER + 1), b"[0,-" + b"7" * (LONGEST_NUMBER + 1) + b"]"])
def test_a_number_that_is_too_long_is_refused_wherever_it_stands(number: bytes) -> None:
    check_numbers(number.replace(b"1", b"", 1).replace(b"7", b"", 1), len(number))
    check_numbers(b'"' + number + b'"', len(number))
    with pytest.raises(WireError, match="not valid JSON"):
        check_numbers(number, len(number))


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


def test_the_path_of_no_number_is_made_once() -> None:
    """Were it made for each value on the way, this would copy terabytes."""
    key = "k" * 4_000_000
    with pytest.raises(WireError) as refused:
        decode(f'{{"type":"session.close","{key}":[{"0," * 1_000_000}NaN]}}', READING)
    assert refused.value.param == key[:128]
