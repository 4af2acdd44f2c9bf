"""Opening as admission: what is checked when, who holds a slot, and what a caller who goes away leaves behind."""

from collections.abc import Awaitable

import anyio
import msgspec
import pytest

from antiphon.engine import hub as hubs
from antiphon.engine import opening as openings
from antiphon.engine.errors import Refused
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.plugins import Misfit, check_plugin, check_stage
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import CloseSession, StageReleased
from antiphon.events.config import ConfigPatch, SessionConfig, TurnDetection
from antiphon.events.events import SessionClosed, SessionOpened
from antiphon.sessions import core
from antiphon.sessions.models.base import TurnModel
from antiphon.sessions.plugins import CASCADE, ECHO, NEMOTRON
from antiphon.sessions.refusal import refuse
from antiphon.stages.base import Append, Submit
from antiphon.stages.echo import EchoStage
from antiphon.stages.scripted import Cue, Deaf, Hang, Say, ScriptedStage, Take

from .worlds import World, ask, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

ONE = HubSettings(max_sessions=1, shutdown_ms=200)


async def refused(request: Awaitable[object]) -> Refused:
    with pytest.raises(Refused) as told:
        await request
    return told.value


# -- who is let in -------------------------------------------------------------------------------------------


@rule("B1", "B4", "M19")
async def test_an_id_that_is_taken_is_refused_and_its_session_keeps_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ids are derived, so that two openings cannot meet; here they are made to."""
    monkeypatch.setattr("antiphon.engine.naming.session_name", lambda *_: "duplex-same")
    stage = ScriptedStage(default=(Deaf(), Hang()))
    async with world(stage, settings=HubSettings(max_sessions=2, shutdown_ms=200)) as here:
        first = await here.hub.open(opening("one"))
        assert (await refused(here.hub.open(opening("two")))).code == "session_exists"
        assert (first.current, here.hub.statistics().admitted) == (True, 1)
        ask(first)
        await settle()
        first.send(CloseSession(control_id="c", attachment=1))
        await settle()
        assert (await refused(here.hub.open(opening("three")))).code in ("session_exists", "session_closed")
        await here.advance(2_000)
        assert (await refused(here.hub.open(opening("four")))).code in ("session_exists", "session_closed")
        assert here.hub.statistics().admitted == 1, "unclean"
        stage.let_go()
        await settle()
        assert here.hub.statistics().admitted == 0
        assert (await refused(here.hub.open(opening("five")))).code in ("session_exists", "session_closed")


@rule("B5", "B6")
async def test_an_open_is_checked_before_it_is_recorded_and_nothing_runs_for_it() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        (opened,) = attachment.entry.transaction.events
        assert isinstance(opened, SessionOpened)
        assert (attachment.lease, opened.view.id, opened.view.capabilities) == (
            0,
            attachment.session,
            opened.view.capabilities,
        )
        assert here.scripted.messages == [], "the stage hears of it with its first input"
        ask(attachment)
        await settle()
        assert isinstance(here.scripted.messages[0], Submit)


class Strict(TurnModel, frozen=True, kw_only=True):
    """A model whose check refuses by a code of its own, or raises a plain error."""

    plain: bool

    def check(self, config: SessionConfig) -> None:
        """Refuse whatever mentions a secret."""
        if "secret" in config.instructions:
            if self.plain:
                raise ValueError("no secrets, please")
            refuse("ref_audio_required", "Bring a voice.")


@rule("B9")
@pytest.mark.parametrize("plain", [True, False])
async def test_what_a_model_says_of_a_configuration_has_a_code(plain: bool) -> None:
    code = "invalid_duplex_runtime_config" if plain else "ref_audio_required"
    able = ECHO.capabilities
    plugin = Strict(name="strict", version="1", capabilities=able, plain=plain)
    async with world(plugin=plugin) as here:
        told = await refused(here.hub.open(opening(patch=ConfigPatch(instructions="a secret"))))
        assert told.code == code
        assert here.hub.statistics().admitted == 0
        assert await here.log.sessions() == []
        await here.hub.open(opening("fine"))


@rule("B10")
async def test_a_wrong_format_is_told_before_a_wrong_turn_detection_in_process_too() -> None:
    wrong = ConfigPatch(input_format=AudioFormat("pcm16", 1), turn_detection=TurnDetection(threshold=7.0))
    async with world() as here:
        told = await refused(here.hub.open(opening(patch=wrong)))
        assert (told.param or "").startswith("session.audio.input.format")
        right = msgspec.structs.replace(wrong, input_format=AudioFormat("pcm16", 16_000))
        assert (await refused(here.hub.open(opening(patch=right)))).code == "unsupported_turn_detection"


# -- what goes wrong -----------------------------------------------------------------------------------------


@rule("B11", "B15", "B17", "P53")
async def test_an_open_that_fails_when_it_is_decided_leaves_no_slot_and_no_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No request was made for it, so that none is left: only its error is told."""
    async with world(settings=ONE) as here:
        decide = core.decide

        def refusing(session: core.Session, command: object, now: int, plugins: object) -> object:
            if session.phase == "new" and here.hub.statistics().live:
                refuse("session_exists", "Somebody was faster.")
            return decide(session, command, now, plugins)  # type: ignore[arg-type]

        with monkeypatch.context() as patched:
            patched.setattr(core, "decide", refusing)
            assert (await refused(here.hub.open(opening("one")))).code == "session_exists"
            await settle()
        assert (here.hub.statistics().admitted, here.hub.statistics().live) == (0, 0)
        assert here.scripted.messages == []
        await here.hub.open(opening("two"))


@rule("B12", "B13", "B14", "B16", "B17", "P53")
@pytest.mark.parametrize("when", ["acquiring", "recording"])
@pytest.mark.parametrize("times", [1, 2])
async def test_an_open_that_is_cancelled_keeps_nothing_however_often(when: str, times: int) -> None:
    """Its caller stops waiting; what was decided for it closes itself, and the next one gets the slot."""
    async with world(settings=ONE) as here:
        gate = anyio.Event()
        if when == "acquiring":
            here.log.acquiring = gate
        else:
            here.log.holding = True
        answered: list[str] = []

        async def go() -> None:
            answered.append((await here.hub.open(opening("gone"))).session)

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            await settle()
            for _ in range(times):
                group.cancel_scope.cancel()
                await anyio.lowlevel.cancel_shielded_checkpoint()
        assert answered == []
        gate.set()
        here.log.acquiring = None
        here.log.release()
        await settle()
        assert here.hub.statistics().admitted == 0
        for row in await here.log.sessions():
            last = (await here.events(row.session))[-1]
            assert isinstance(last, SessionClosed)
            assert last.reason == "open_abandoned"
        assert here.scripted.live == []
        await here.hub.open(opening("next"))


@rule("B16", "B22")
async def test_an_open_whose_caller_waited_too_long_is_closed_when_it_arrives() -> None:
    async with world(settings=ONE) as here, anyio.create_task_group() as group:
        here.log.holding = True
        told: list[str] = []

        async def go() -> None:
            told.append((await refused(here.hub.open(opening("slow")))).code)

        group.start_soon(go)
        await settle()
        await here.advance(10_000)
        assert told == ["timeout"]
        assert here.hub.statistics().admitted == 1, "its admission goes on"
        here.log.release()
        await settle()
        assert here.hub.statistics().admitted == 0
        (row,) = await here.log.sessions()
        last = (await here.events(row.session))[-1]
        assert isinstance(last, SessionClosed)
        assert last.reason == "open_abandoned"


@rule("B28", "K11")
async def test_work_that_belongs_to_no_session_takes_no_slot_and_touches_none() -> None:
    async with world(settings=ONE) as here:
        attachment = await here.hub.open(opening())
        before = await here.recorded(attachment.session)
        statistics = here.hub.statistics()
        host = here.hub._pipeline  # pyright: ignore[reportPrivateUsage]
        assert isinstance(host, InlineHost)
        host._report(StageReleased(request="image-1"), b"")  # pyright: ignore[reportPrivateUsage]
        await settle()
        assert here.hub.statistics() == statistics
        assert await here.recorded(attachment.session) == before


# -- start-up ------------------------------------------------------------------------------------------------


@rule("B26")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"voices": ()}, "no voice"),
        ({"input_format": AudioFormat("g711_ulaw", 8_000)}, "16-bit"),
        ({"input_format": AudioFormat("pcm16", 1)}, "hears 1 Hz"),
        ({"output_rate": 7}, "speaks at 7 Hz"),
        ({"chunk_period_ms": 0}, "no length"),
        ({"required_input_modalities": ()}, "takes nothing"),
        ({"core_resumable_request": True, "supports_concurrent_turn_requests": True}, "several at once"),
    ],
)
async def test_a_plugin_that_cannot_serve_refuses_to_start(change: dict[str, object], why: str) -> None:
    able = msgspec.structs.replace(ECHO.capabilities, **change)
    plugin = TurnModel(name="odd", version="1", capabilities=able)
    stage = ScriptedStage()
    with pytest.raises(Misfit, match=why):
        async with world(stage, plugin=plugin):
            raise AssertionError("it was started")
    assert stage._report is None, "no stage was started"  # pyright: ignore[reportPrivateUsage]


@rule("B26")
def test_halves_that_do_not_fit_refuse_to_start() -> None:
    for plugin in (ECHO, CASCADE):
        check_plugin(plugin)
    check_stage(ECHO, EchoStage().input_format)
    with pytest.raises(Misfit, match="takes pcm16 at 8000 Hz"):
        check_stage(ECHO, AudioFormat("pcm16", 8_000))
    for nameless in (
        TurnModel(name=" ", version="1", capabilities=ECHO.capabilities),
        TurnModel(name="x", version="", capabilities=ECHO.capabilities),
    ):
        with pytest.raises(Misfit, match="it has no"):
            check_plugin(nameless)


# -- warm-up -------------------------------------------------------------------------------------------------

WARM = HubSettings(max_sessions=1, shutdown_ms=200, warm_up_units=2)


async def warmed(here: World) -> list[SessionClosed]:
    rows = await here.log.sessions("closed")
    events = [event for row in rows for event in await here.events(row.session)]
    return [event for event in events if isinstance(event, SessionClosed) and event.words == "warm-up"]


@rule("B27")
@pytest.mark.parametrize("plugin", [ECHO, CASCADE], ids=lambda plugin: plugin.name)
async def test_clients_are_held_until_the_warm_up_is_over_and_its_session_is_closed(plugin: TurnModel) -> None:
    stage = ScriptedStage(scripts={0: (Cue("warm"), Say("Hm.", 80), Hang())})
    async with world(stage, plugin=plugin, settings=WARM) as here, anyio.create_task_group() as group:
        told: list[str] = []

        async def go() -> None:
            told.append((await here.hub.open(opening())).session)

        group.start_soon(go)
        await settle()
        assert (told, len(stage.requests)) == ([], 1)
        assert here.hub.not_ready == hubs.WARMING
        assert here.hub.statistics().admitted == 1, "its own session alone"
        stage.cue("warm")
        await settle()
        assert len(await warmed(here)) == 1, "closed explicitly, when the model has spoken"
        assert len(told) == 1
        assert (here.hub.not_ready, here.hub.statistics().admitted) == (None, 1)


@rule("N51", "B27")
@pytest.mark.parametrize(("units", "given"), [(None, 2), (0, 0), (1, 1)])
async def test_a_model_is_warmed_up_as_it_wants_unless_the_operator_says_otherwise(
    units: int | None, given: int
) -> None:
    stage = ScriptedStage(default=(Take(max(given, 1)), Say("Hello!", 80), Hang()))
    settings = HubSettings(max_sessions=1, shutdown_ms=200, warm_up_units=units)
    async with world(stage, plugin=NEMOTRON, settings=settings) as here:
        frames = [message for message in stage.messages if isinstance(message, Append)]
        assert [len(frame.data) for frame in frames] == [2 * 1_280] * given, "frames of 80 ms"
        assert not any(frame.force_listen for frame in frames)
        assert len(await warmed(here)) == bool(given)


@rule("B27")
async def test_after_180_seconds_clients_are_let_in_whatever_became_of_the_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hubs, "WARM_UP_S", 0.001)
    stage = ScriptedStage(scripts={0: (Deaf(), Hang())})
    settings = msgspec.structs.replace(WARM, max_sessions=2)
    async with world(stage, settings=settings) as here:
        told = await refused(here.hub.open(opening("early")))
        assert (told.code, told.retryable) == ("resource_exhausted", True)
        await here.advance(179_000)
        assert (await refused(here.hub.open(opening("late")))).code == "resource_exhausted"
        await here.advance(1_000)
        assert (await here.hub.open(opening("in"))).current
        stage.let_go()


@rule("B27", "B2")
async def test_clients_are_held_until_the_stage_has_let_go_of_the_warm_up() -> None:
    """Else the first of them would be refused for want of a slot."""
    stage = ScriptedStage(scripts={0: (Deaf(), Say("Hm.", 80), Hang())})
    async with world(stage, settings=WARM) as here, anyio.create_task_group() as group:
        told: list[str] = []

        async def go() -> None:
            told.append((await here.hub.open(opening())).session)

        group.start_soon(go)
        await settle()
        await here.advance(2_000)
        assert (len(await warmed(here)), told) == (1, [])
        stage.let_go()
        await settle()
        assert len(told) == 1


@rule("B27")
async def test_a_warm_up_that_fails_lets_the_clients_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "default_limits", lambda *_: (_ for _ in ()).throw(Refused("bad_event", "No.")))
    hub_open = Hub.open_held

    async def fails(self: Hub, asked: openings.Opening) -> object:
        try:
            return await hub_open(self, asked)
        finally:
            monkeypatch.undo()

    monkeypatch.setattr(Hub, "open_held", fails)
    async with world(settings=WARM) as here:
        assert await warmed(here) == []
        assert (await here.hub.open(opening())).current
