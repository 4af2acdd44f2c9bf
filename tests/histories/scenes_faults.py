"""Scenes of what goes wrong, and of bounds: stages that fail, a store that does, clients that send too much."""

from antiphon.engine.settings import HubSettings
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.stages.scripted import Hang, Say, Stuck

from .place import Place
from .scene import playing, scene
from .scenes_talk import SPENT, tell

TIGHT = HubSettings(shutdown_ms=200, input_bytes=32_000, pending_commits=2)


# -- stages that fail, and a store that does ----------------------------------------------------------------


@scene(cmd.StageLost, cmd.StageFailed, ev.ResponseEnded, ev.ErrorReported)
async def failed_stages(here: Place) -> None:
    """One answer fails, one is lost with its stage, one fails before it said anything; the fourth is whole."""
    me = await here.connect("ga")
    await me.ask("One?")
    await tell(here, ["It is ", "so "], 300)
    here.puppet.fail("engine_error", "The model ran out of memory.")
    await me.until("response.done")
    await me.ask("Two?")
    await tell(here, ["It ", "may "], 300)
    here.puppet.lose()
    await me.until("response.done")
    await me.ask("Three?")
    here.puppet.fail("context_length_exceeded", "The question is too long.")
    await me.until("response.done")
    await me.ask("Four?")
    await tell(here, ["Yes."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(
    cmd.StageAbortFailed,
    ev.CleanupFailed,
    ev.CleanupRetried,
    ev.RequestReleased,
    stage=playing((Stuck(), Say("Hm. ", 300), Hang())),
)
async def stuck_cleanup(here: Place) -> None:
    """A stage does not stop when it is told to: it is asked again, also behind the end, until it lets go."""
    me = await here.connect("duplex")
    await me.ask("How are you?")
    await me.until("response.output_audio.delta")
    await me.send("response.cancel")
    await here.wait(3_000)
    await me.ask("Well?")
    await tell(here, ["Well."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    me.say("session.close")
    await here.wait(500)
    here.puppet.let_go()
    await me.closed()
    await here.wait(5_000)


@scene(ev.EngineRestarted, ev.SessionResumed, ev.ResponseEnded)
async def storage_trouble(here: Place) -> None:
    """The store refuses for a moment: the client hears so, and comes back to all that was recorded."""
    me = await here.connect("duplex")
    await me.ask("How are you?")
    await tell(here, ["Very "], 300)
    await here.wait(5)
    here.fail_storage(True)
    here.puppet.say("well, ", 300)
    assert await me.closed() == 1013
    here.fail_storage(False)
    await here.wait(2_000)
    me = await here.come_back(me)
    await me.ask("Once more?")
    await tell(here, ["Very ", "well."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


# -- bounds --------------------------------------------------------------------------------------------------


@scene(cmd.ReportRefusal, ev.ErrorReported, ev.InputCommitted, settings=TIGHT)
async def backpressure(here: Place) -> None:
    """A client that sends more sound, and more turns, than may wait is refused by name; then it goes on."""
    me = await here.connect("duplex")
    await me.append(512)
    await me.append(768)
    await me.append(64)
    for _ in range(5):
        await me.send("input_audio_buffer.commit", create_response=True)
        await me.append(128)
    await me.send("input_audio_buffer.append", audio="!", event_id="no-sound")
    await me.send("no.such.event", event_id="unknown")
    here.puppet.transcribe("One.", seconds=0.5)
    here.puppet.say("Yes. ", 100)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.ack(100)
    here.puppet.transcribe("And more.", seconds=0.5)
    here.puppet.say("Yes again.", 100)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(ev.SessionResumed, ev.ResponseEnded, settings=HubSettings(shutdown_ms=200, replay_bytes=150_000))
async def replay_overflow(here: Place) -> None:
    """A client that acknowledges nothing fills what may be replayed: it is told once, until it has acknowledged."""
    me = await here.connect("duplex")
    await me.ask("Tell me a story.")
    for n in range(5):
        here.puppet.say(f"{n} ", 1_000)
        await here.wait(20)
    await me.until("session.resync_required")
    last = max(message.get("server_event_seq", 0) for message in me.seen)
    await me.send("session.event_ack", server_event_seq=last)
    here.puppet.say("The end.", 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.drop()
    me = await here.come_back(me)
    await me.close()
