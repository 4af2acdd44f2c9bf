"""What is particular to the memory store; what every store promises is in test_log_contract.py."""

import pytest

from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.sample_store import MemorySamples
from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite, UnknownSession

from .records import SESSION, Outcomes, closed, heard, opened

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


async def end(log: MemoryLog, session: str) -> None:
    await log.acquire(session)
    outcomes = Outcomes(log)
    outcomes.append(opened(session=session), session=session)
    outcomes.append(heard(2, size=2), [SampleWrite(SampleRef("in", 0, 2), b"ab")], session=session)
    outcomes.append(closed(3, session=session), session=session)
    await outcomes.all()


async def test_of_the_sessions_that_have_ended_the_last_are_kept() -> None:
    log = MemoryLog(kept_closed=2)
    await log.acquire("open")
    outcomes = Outcomes(log)
    outcomes.append(opened(session="open"), session="open")
    await outcomes.all()
    for name in "abcd":
        await end(log, name)
    assert {row.session for row in await log.sessions()} == {"open", "c", "d"}
    with pytest.raises(UnknownSession):
        await log.read("b", 0)
    with pytest.raises(UnknownSession):
        await log.samples.read("b", SampleRef("in", 0, 2))
    assert await log.samples.read("d", SampleRef("in", 0, 2)) == b"ab"
    await log.delete("d")
    await end(log, "e")
    assert {row.session for row in await log.sessions()} == {"open", "c", "e"}
