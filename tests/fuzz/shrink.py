"""From a plan that breaks something to a short one that breaks the same."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from .place import Broken, carry_out
from .plan import Plan, Step

Fails = Callable[[Plan], str | None]
"""Carries a plan out; says what it broke, None if nothing."""


def broken_by(plan: Plan) -> str | None:
    """Return what a plan breaks, without what differs from seed to seed."""
    try:
        carry_out(plan)
    except Broken as broken:
        return sort(str(broken))
    return None


def sort(message: str) -> str:
    """Return a failure's message without its seed, numbers and names."""
    return re.sub(r"[0-9a-f]{6,}|\d+", "N", message.partition(": ")[2])[:60]


def shrink(plan: Plan, fails: Fails = broken_by) -> Plan:
    """Cut steps from a plan, then the waiting and the bytes, as long as it breaks the same."""
    about = fails(plan)
    if about is None:
        return plan

    def still(steps: list[Step]) -> bool:
        return fails(replace(plan, steps=tuple(steps))) == about

    steps = _fewer(list(plan.steps), still)
    for index in range(len(steps)):
        for shorter in _shorter(steps[index]):
            if still([*steps[:index], shorter, *steps[index + 1 :]]):
                steps[index] = shorter
    return replace(plan, steps=tuple(steps), about=about)


def _fewer(steps: list[Step], still: Callable[[list[Step]], bool]) -> list[Step]:
    size = max(len(steps) // 2, 1)
    while steps:
        at, cut = 0, False
        while at < len(steps):
            candidate = steps[:at] + steps[at + size :]
            if still(candidate):
                steps, cut = candidate, True
            else:
                at += size
        if size == 1 and not cut:
            break
        size = max(size // 2, 1)
    return steps


def _shorter(step: Step) -> list[Step]:
    """Return shorter forms of a step; each is tried on its own."""
    half = len(step.data) // 2
    forms = [replace(step, gap_us=0)] if step.gap_us else []
    if not step.message and half:
        forms += [replace(step, data=step.data[:half]), replace(step, data=step.data[half:])]
    return forms
