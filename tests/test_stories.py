"""Stories: what can come comes, and nothing else; a story that fails is cut down to what it takes."""

from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stories import Machine, initialize, invariant, precondition, rule, tell


class Stack(Machine):
    """A stack of numbers whose lowest one stays, and that must not be too high."""

    most: ClassVar[int] = 99
    came: ClassVar[set[str]] = set()
    ended: ClassVar[list[list[int]]] = []

    @initialize(first=st.integers(5, 9))
    def begin(self, first: int) -> None:
        self.held = [first]

    @rule(number=st.integers(0, 3))
    def push(self, number: int) -> None:
        self.came.add("push")
        self.held.append(number)

    @rule(data=st.data())
    @precondition(lambda self: len(self.held) > 1)
    def take(self, data: st.DataObject) -> None:
        self.came.add("take")
        assert self.held.pop(data.draw(st.integers(1, len(self.held) - 1))) < 4

    @invariant()
    def stands(self) -> None:
        assert self.held[0] > 3
        assert len(self.held) < self.most

    def teardown(self) -> None:
        self.ended.append(self.held)


@given(data=st.data())
def test_steps_come_when_they_can_and_every_story_is_ended(data: st.DataObject) -> None:
    before = len(Stack.ended)
    tell(Stack, data, steps=20)
    assert len(Stack.ended) == before + 1


def test_all_of_them_come() -> None:
    test_steps_come_when_they_can_and_every_story_is_ended()
    assert Stack.came == {"push", "take"}


def test_a_story_that_fails_is_told_as_short_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(database=None)
    @given(data=st.data())
    def story(data: st.DataObject) -> None:
        tell(Stack, data, steps=20)

    monkeypatch.setattr(Stack, "most", 4)
    with pytest.raises(AssertionError) as failed:
        story()
    assert Stack.ended[-1] == [5, 0, 0, 0]
    told = [note for note in failed.value.__notes__ if "push" in note]
    assert told == ["then: 'push'", "push: {'number': 0}"] * 3
