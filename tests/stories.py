"""Any story of a machine: steps drawn one after another, as by `hypothesis.stateful`, in half of its time.

That one asks at every step which rules are switched off, one by one and again. Here it is drawn once for a story
which steps may be in it, and a step is one choice among those that can come now.
"""

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, ClassVar, TypeVar

from hypothesis import note
from hypothesis import strategies as st

F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")

Step = Callable[..., None]
Condition = Callable[[Any], bool]
Arguments = st.SearchStrategy[dict[str, Any]]

_first: dict[Step, Arguments] = {}
_steps: dict[Step, Arguments] = {}
_conditions: dict[Step, Condition] = {}
_always: list[Step] = []
_more: set[Step] = set()


def _arguments(step: Step, given: dict[str, st.SearchStrategy[Any]]) -> Arguments:
    if given.get("data") is st.data():
        _more.add(step)
    return st.fixed_dictionaries({name: drawn for name, drawn in given.items() if name != "data"})


def initialize(**arguments: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Let a method be how the story begins."""

    def decorate(step: F) -> F:
        _first[step] = _arguments(step, arguments)
        return step

    return decorate


def rule(**arguments: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Let a method be a step of the story, with these arguments. `data=st.data()`: it draws more by itself."""

    def decorate(step: F) -> F:
        _steps[step] = _arguments(step, arguments)
        return step

    return decorate


def precondition(holds: Condition) -> Callable[[F], F]:
    """Say when the step below can come."""

    def decorate(step: F) -> F:
        _conditions[step] = holds
        return step

    return decorate


def invariant() -> Callable[[F], F]:
    """Let a method be asked behind every step."""

    def decorate(method: F) -> F:
        _always.append(method)
        return method

    return decorate


class Machine:
    """What a story is about. The methods of a subclass are marked with the four above."""

    begins: ClassVar[list[Step]] = []
    steps: ClassVar[list[Step]] = []
    asked: ClassVar[list[Step]] = []

    def __init_subclass__(cls) -> None:
        named = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
        methods = [value for value in named.values() if isinstance(value, FunctionType)]
        cls.begins = [method for method in methods if method in _first]
        cls.steps = [method for method in methods if method in _steps]
        cls.asked = [method for method in methods if method in _always]

    def teardown(self) -> None:
        """End the story, whatever has become of it."""


class Draws(st.DataObject):
    """Draws as `st.data()` does, without looking each time whether somebody has used `random`."""

    def draw(self, strategy: st.SearchStrategy[T], label: str = "") -> T:
        """Draw a value; it is told if the story fails."""
        value = self.conjecture_data.draw(strategy)
        note(_Drawn(label, value))
        return value


class _Drawn:
    """A value, told in one line if it is told at all."""

    def __init__(self, label: str, value: object) -> None:
        self._label, self._value = label, value

    def __repr__(self) -> str:
        return f"{self._label}: {self._value!r}" if self._label else f"  {self._value!r}"


def tell(machine: type[Machine], data: st.DataObject, steps: int) -> None:
    """Draw a story of so many steps (hardly ever of fewer) and live through it."""
    story, data = machine(), Draws(data.conjecture_data)
    try:
        for begin in machine.begins:
            begin(story, **data.draw(_first[begin], label=begin.__name__))
        _ask(story)
        part = _part(machine, data)
        for _ in range(data.draw(_lengths(steps), label="steps")):
            names = _able(story, part) or _able(story, machine.steps)
            step: Step = getattr(machine, data.draw(_among(names), label="then"))
            more = {"data": data} if step in _more else {}
            step(story, **data.draw(_steps[step], label=step.__name__), **more)
            _ask(story)
    finally:
        story.teardown()


def _ask(story: Machine) -> None:
    for method in story.asked:
        method(story)


def _able(story: Machine, steps: list[Step]) -> tuple[str, ...]:
    return tuple(step.__name__ for step in steps if step not in _conditions or _conditions[step](story))


def _part(machine: type[Machine], data: st.DataObject) -> list[Step]:
    """Draw which steps are in a story at all: without some of them, the others meet more often."""
    rare = data.draw(_QUARTERS, label="left out, of four")
    if not rare:
        return machine.steps
    lots = data.draw(_lots(len(machine.steps)), label="lots")
    return [step for step, lot in zip(machine.steps, lots, strict=True) if lot < 4 - rare]


_QUARTERS = st.integers(0, 3)


@lru_cache
def _lots(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[_QUARTERS] * count)


@lru_cache
def _lengths(most: int) -> st.SearchStrategy[int]:
    """Any number up to `most`, so that a failing story can be cut short; but hardly any other than `most`."""
    return st.integers(0, 40 * most).map(lambda n: min(n, most))


@lru_cache(maxsize=4096)
def _among(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(names)
