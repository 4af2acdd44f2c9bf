"""What is particular to the memory store; what every store promises is in test_log_contract.py."""

import pytest

from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.sample_store import MemorySamples
from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite

from .records import SESSION, Outcomes, heard, opened

pytestmark = pytest.mark.anyio


async def test_two_logs_may_share_samples() -> None:
    samples = MemorySamples()
    log = MemoryLog(samples)
    await log.acquire(SESSION)
    outcomes = Outcomes(log)
    outcomes.append(opened())
    outcomes.append(heard(2, size=2), [SampleWrite(SampleRef("in", 0, 2), b"ab")])
    await outcomes.all()
    assert MemoryLog(samples).samples is samples
    assert await samples.read(SESSION, SampleRef("in", 0, 2)) == b"ab"


async def test_a_record_is_there_when_append_returns() -> None:
    log = MemoryLog()
    await log.acquire(SESSION)
    outcomes = Outcomes(log)
    outcomes.append(opened())
    assert await log.read(SESSION, 0) == [opened()]
    assert await outcomes.all() == [(1, None)]
