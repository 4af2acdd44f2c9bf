"""From a script that breaks a rule to a short one that breaks the same rule."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from .script import Script, Step
from .world import Broken, live

Fails = Callable[[Script], str | None]
"""Runs a script; says which rule it broke, None if it broke none."""


def broken_by(script: Script) -> str | None:
    """Return what a script breaks: the rules and words of the failure, without its numbers and names."""
    try:
        live(script)
    except Broken as broken:
        return kind(str(broken))
    return None


def kind(message: str) -> str:
    """Return a failure's message without what differs from seed to seed."""
    said = message.partition(": ")[2]
    rules = re.match(r"\w+: ((?:[A-Z]\d+(?:\.\d+)?(?:, )?)+)", said)
    return rules[1] if rules else re.sub(r"[0-9a-f]{6,}|\d+", "N", said)[:80]


def shrink(script: Script, fails: Fails = broken_by, told: Callable[[int], None] = lambda _: None) -> Script:
    """Cut steps from a script as long as it breaks the same rule (Zeller's delta debugging), then the waiting.

    `told` hears how many steps are left. A script that breaks nothing is returned as it is.
    """
    rule = fails(script)
    if rule is None:
        return script
    steps = list(script.steps)

    def still(candidate: list[Step]) -> bool:
        return fails(replace(script, steps=tuple(candidate))) == rule

    size = max(len(steps) // 2, 1)
    while True:
        at, cut = 0, False
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if still(fewer):
                steps, cut = fewer, True
                told(len(steps))
            else:
                at += size
        if size > 1:
            size = max(size // 2, 1)
        elif not cut:
            break
    for at, step in enumerate(steps):
        if step.gap_us:
            quicker = [*steps[:at], replace(step, gap_us=0), *steps[at + 1 :]]
            if still(quicker):
                steps = quicker
    return replace(script, steps=tuple(steps), about=rule)
