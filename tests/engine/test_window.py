"""The window of recent sound."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.window import SoundWindow
from antiphon.events.audio import SampleRef


def ref(start: int, size: int) -> SampleRef:
    return SampleRef("in", start, size)


def test_it_gives_what_it_holds_and_nothing_in_part() -> None:
    window = SoundWindow(100)
    window.append(ref(100, 4), b"abcd")
    window.append(ref(104, 2), b"ef")
    assert window.get(ref(101, 4)) == b"bcde"
    assert window.get(ref(99, 2)) is None
    assert window.get(ref(105, 2)) is None
    assert window.get(SampleRef("out", 101, 1)) is None
    window.trim(103)
    assert window.get(ref(102, 1)) is None
    assert window.get(ref(103, 3)) == b"def"
    window.trim(1_000)
    assert (window.start, window.end) == (106, 106)


def test_a_gap_begins_anew() -> None:
    window = SoundWindow()
    window.append(ref(0, 2), b"ab")
    window.append(ref(10, 2), b"cd")
    assert (window.start, window.get(ref(10, 2))) == (10, b"cd")


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 30)), max_size=30))
def test_it_is_the_tail_of_everything(steps: list[tuple[bytes, int]]) -> None:
    window, everything = SoundWindow(), b""
    for data, trim in steps:
        window.append(ref(len(everything), len(data)), data)
        everything += data
        window.trim(len(everything) - trim)
        assert window.get(ref(window.start, window.end - window.start)) == everything[window.start :]
        assert window.end == len(everything)
