"""What must hold of any model's session after every step: its configuration, its memory, its function outputs."""

from msgspec import Struct

from antiphon.events.config import SessionConfig
from antiphon.sessions import core
from antiphon.sessions.models.base import SessionPlugin


class Known(Struct, frozen=True):
    """What a model's session was before a step."""

    config: SessionConfig
    locked: bool
    started: bool
    generation: int


def known(session: core.Session) -> Known:
    """Return what is to be compared."""
    return Known(session.config, session.locked, session.started, session.batches.generation)


def step(before: Known, session: core.Session, plugin: SessionPlugin) -> None:
    """Compare a session with what it was."""
    config = session.config
    if config != before.config:
        assert plugin.settled(config) == config, "N6: what holds is settled"
        plugin.check(config)
        if before.config.model:
            _baked(before, config, plugin)
    assert session.locked >= before.locked, "L8: a model does not forget what it was prompted with"
    assert session.started >= before.started, "WIRE 1.4"
    batches = session.batches
    assert batches.generation >= before.generation, "J14: numbers are never given again"
    numbers = [batch.generation for batch in batches.pending]
    assert numbers == list(range(batches.generation - len(numbers) + 1, batches.generation + 1)), "J12: contiguous"
    assert len(numbers) <= plugin.tool_batches, "J12"


def _baked(before: Known, config: SessionConfig, plugin: SessionPlugin) -> None:
    for was, is_now in zip(plugin.baked(before.config), plugin.baked(config), strict=True):
        if before.locked or (before.started and was.fixed):
            assert was == is_now, f"L8: {was.name} changed in the model's memory"
