"""A restart whose models take their time: the log serves at once, and what is said waits (DESIGN 4, C3)."""

import threading

import anyio
import pytest

from antiphon.engine.hosts import ThreadHost
from antiphon.engine.opening import Resumption
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import Heartbeat
from antiphon.events.events import ErrorReported, RequestAccepted, ResponseEnded, SessionTouched
from antiphon.stages.base import Report
from antiphon.stages.echo import EchoStage

from .worlds import ask, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio


class Slow(EchoStage):
    """Loads until it is told that it has loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded = threading.Event()

    def start(self, report: Report) -> None:
        self.loaded.wait(30)
        super().start(report)


@rule("C3", "C7", "D23")
async def test_while_models_load_a_session_is_resumed_from_the_log_and_its_question_waits() -> None:
    async with world(settings=HubSettings(shutdown_ms=200)) as here:
        log, clock = here.log, here.clock
        before = await here.hub.open(opening())
        before.send(Heartbeat(attachment=1))
        await settle()
    stage = Slow()
    settings = HubSettings(shutdown_ms=200, idle_ttl_ms=60_000)
    async with world(stage, log=log, clock=clock, settings=settings, host=ThreadHost(stage)) as again:
        assert again.hub.not_ready is not None
        asked = Resumption(session=before.session, token=before.token or "", control_id="r")
        after = await again.hub.resume(asked)
        missed = [
            event for entry in [entry async for entry in after.replay()] for event in entry.transaction.events
        ]
        assert any(isinstance(event, SessionTouched) for event in missed)
        ask(after)
        await settle()
        await again.advance(600_000)
        assert after.current, "a question that waits for its model is no idleness"
        events = await again.events(before.session)
        assert not any(isinstance(event, RequestAccepted | ErrorReported) for event in events)
        stage.loaded.set()
        with after.cursor() as cursor, anyio.fail_after(20):
            async for entry in cursor:
                if any(isinstance(event, ResponseEnded) for event in entry.transaction.events):
                    break
        ended = [event for event in await again.events(before.session) if isinstance(event, ResponseEnded)]
        assert [event.status for event in ended] == ["completed"]
