"""What one log, one writer and one name for a turn's work make impossible; the scenes are played all the same."""

import anyio
import pytest

from antiphon.engine.direct import DirectClient
from antiphon.engine.errors import Refused
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Opening
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import CancelResponse, Heartbeat, StageAccepted, StageFinished, StageProduced
from antiphon.events.events import (
    ErrorReported,
    ResponseCreated,
    ResponseEnded,
    SessionClosed,
    SessionOpened,
    SessionTouched,
)
from antiphon.stages.base import AnyMessage, Report, Submit
from antiphon.stages.echo import EchoStage

from .worlds import TALK, ask, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

PIECE = b"\x00\x20" * 1_280


@rule("A2")
async def test_a2_whoever_comes_late_still_reads_the_opening_first() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        for _ in range(5):
            attachment.send(Heartbeat(attachment=1))
        await settle()
        with attachment.cursor() as cursor:
            seen = [type((await anext(cursor)).transaction.events[0]) for _ in range(6)]
    assert seen == [SessionOpened, *[SessionTouched] * 5]


@rule("A1")
async def test_a1_every_session_has_a_name_of_its_own() -> None:
    async with world() as here:
        names = [(await here.hub.open(opening(f"o{n}"))).session for n in range(20)]
        names += [(await here.hub.open(Opening(dialect="ga", control_id=f"g{n}"))).session for n in range(20)]
    assert len(set(names)) == 40


class Mute:
    """A stage that takes messages and never says anything, not even that it has them."""

    def __init__(self) -> None:
        self.messages: list[AnyMessage] = []

    @property
    def input_format(self) -> AudioFormat:
        return AudioFormat("pcm16", 16_000)

    def start(self, report: Report) -> None:
        pass

    def handle(self, message: AnyMessage) -> None:
        self.messages.append(message)

    def close(self) -> None:
        pass


@rule("E38", "P58", "Q4.7", "G35")
async def test_e38_a_stage_that_never_answers_keeps_nobody_from_cancelling() -> None:
    stage = Mute()
    async with world(stage) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        attachment.send(CancelResponse(attachment=1))
        attachment.send(Heartbeat(attachment=1))
        await settle()
        events = await here.events(attachment.session)
        assert any(isinstance(message, Submit) for message in stage.messages)
        (ended,) = [event for event in events if isinstance(event, ResponseEnded)]
        assert (ended.status, type(events[-1])) == ("cancelled", SessionTouched)


@rule("Q4.30", "A8")
async def test_q4_30_a_stage_goes_on_hearing_behind_an_interruption() -> None:
    async with world(EchoStage()) as here, DirectClient(here.hub, patch=TALK) as client:
        answers = 0
        client.append_audio(PIECE, speech=True)
        with anyio.fail_after(20):
            async for heard in client.events():
                assert not isinstance(heard.event, ErrorReported), heard.event
                if isinstance(heard.event, ResponseCreated):
                    answers += 1
                    if answers == 4:
                        break
                    client.cancel_response()
                if isinstance(heard.event, ResponseEnded):
                    client.append_audio(PIECE, speech=True)
    assert answers == 4


@rule("A16", "K21")
async def test_a16_news_of_a_turn_that_was_left_reach_nobody() -> None:
    async with world(Mute()) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        attachment.send(CancelResponse(attachment=1))
        ask(attachment)
        await settle()
        before = await here.recorded(attachment.session)
        live = here.hub._live[attachment.session]  # pyright: ignore[reportPrivateUsage]
        left = f"{attachment.session}.e0.turn0"
        for report in (
            StageAccepted(request=left),
            StageProduced(request=left, text="late"),
            StageFinished(request=left),
        ):
            live.runner.post(report)
        await settle()
        assert await here.recorded(attachment.session) == before
        assert live.runner.session.response is not None


@rule("B4")
async def test_b4_an_opening_that_is_repeated_while_it_is_prepared_gives_no_slot_away() -> None:
    async with world(settings=HubSettings(max_sessions=1, shutdown_ms=200)) as here:
        here.log.acquiring = anyio.Event()
        found: list[str] = []

        async def go(control_id: str) -> None:
            try:
                found.append((await here.hub.open(opening(control_id))).session)
            except Refused as refused:
                found.append(refused.code)

        async with anyio.create_task_group() as group:
            group.start_soon(go, "same")
            await settle()
            group.start_soon(go, "same")
            group.start_soon(go, "other")
            await settle()
            assert found == ["resource_exhausted"]
            assert here.hub.statistics().admitted == 1
            here.log.acquiring.set()
        refused, first, second = found
        assert (refused, first) == ("resource_exhausted", second)
        assert here.hub.statistics().admitted == 1


@rule("B6")
async def test_b6_an_opened_session_asks_nothing_of_a_stage_before_its_first_input() -> None:
    stage = Mute()
    async with world(stage) as here:
        attachment = await here.hub.open(opening(patch=TALK))
        attachment.send(Heartbeat(attachment=1))
        await settle()
        assert stage.messages == []
        attachment.append(AppendRequest(data=PIECE, speech=True))
        await settle()
        assert isinstance(stage.messages[0], Submit)


@rule("C16")
async def test_c16_acknowledging_events_keeps_no_session_alive() -> None:
    async with world(settings=HubSettings(idle_ttl_ms=1_000, shutdown_ms=200)) as here:
        attachment = await here.hub.open(opening())
        attachment.send(Heartbeat(attachment=1))
        await settle()
        for _ in range(3):
            await here.advance(300)
            attachment.acknowledge(1)
            await settle()
        await here.advance(100)
        last = (await here.events(attachment.session))[-1]
        assert isinstance(last, SessionClosed)
        assert (last.reason, last.expired) == ("idle_ttl_expired", True)
