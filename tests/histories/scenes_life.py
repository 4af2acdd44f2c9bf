"""Scenes of a session's life: servers that end, connections that come and go."""

from antiphon.engine.settings import HubSettings
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.sessions.plugins import ECHO
from antiphon.stages.base import Stage
from antiphon.stages.echo import EchoStage

from .place import Place, Shown
from .scene import scene
from .scenes_talk import COSTS, QUICK, SPENT, tell


def echo(_here: Place) -> Stage:
    """Return the stage that plays back what it hears."""
    return EchoStage()


# -- servers that end ----------------------------------------------------------------------------------------


@scene(ev.EngineRestarted, ev.SessionResumed, ev.AudioDelta, ev.SessionClosed, plugin=ECHO, stage=echo)
async def echo_restart(here: Place) -> None:
    """A session that is echoed piece by piece, a server that is killed in the middle, and the end of its grace."""
    me = await here.connect("duplex", extra_body={"auto_response": True})
    for _ in range(4):
        await me.append(64)
    await me.send("input_audio_buffer.commit", create_response=True)
    await here.wait(200)
    await me.append(64)
    await here.kill()
    await here.wait(1_500)
    await here.start()
    await here.wait(1_500)
    me = await here.come_back(me)
    for _ in range(3):
        await me.append(64)
    await me.send("barge_in")
    await me.append(64)
    await me.drop()
    await here.wait(31_000)


@scene(ev.EngineRestarted, ev.ResponseEnded, ev.SessionResumed, ev.PlaybackAcknowledged)
async def killed_while_answering(here: Place) -> None:
    """The server is killed in the middle of an answer: that fails by name, the client comes back and asks again."""
    me = await here.connect("duplex", turn_detection=QUICK)
    await me.ask("What is the time?")
    await tell(here, ["It is ", "half past "], 400)
    await me.until("response.created")
    await me.ack(300)
    await here.kill()
    await here.wait(800)
    await here.start()
    await here.wait(400)
    me = await here.come_back(me)
    await me.until("response.done")
    await me.ask("What was that?")
    await tell(here, ["Half past ", "three."], 400)
    here.puppet.finish(SPENT, COSTS)
    await me.until("response.done")
    await me.send("session.event_ack", server_event_seq=me.seen[-1]["server_event_seq"])
    await me.close()


@scene(ev.EngineRestarted, ev.SessionResumed, ev.InputCommitted, ev.SessionClosed)
async def killed_while_speaking(here: Place) -> None:
    """A GA client whose server is killed while it speaks comes back by the address, and ends its turn."""
    me = await here.connect("ga", "&resumable=1", audio={"input": {"turn_detection": QUICK}})
    await me.speak(256)
    await here.kill()
    await here.wait(2_000)
    await here.start()
    me = await here.come_back_by_address(me)
    await me.speak(256)
    await me.silence(448)
    here.puppet.transcribe("Are you there?", seconds=0.5)
    await tell(here, ["I am ", "again."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(ev.SessionDetached, ev.EngineRestarted, ev.SessionResumed, ev.ResponseEnded)
async def shutdown_and_return(here: Place) -> None:
    """The server is stopped in order: the session is detached with its grace, and goes on at the next start."""
    me = await here.connect("duplex")
    await me.ask("Tell me a story.")
    await tell(here, ["Once ", "upon "], 400)
    await here.stop()
    assert await me.closed() == 1001
    assert me.kinds()[-1] == "session.going_away"
    await here.wait(5_000)
    await here.start()
    me = await here.come_back(me)
    await me.ask("Go on.")
    await tell(here, ["a time."], 400)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(cmd.CloseSession, ev.SessionClosing, ev.SessionClosed, ev.ResponseEnded)
async def shutdown_for_good(here: Place) -> None:
    """The server is stopped while a GA client hears an answer: it cannot come back, so its session is closed."""
    me = await here.connect("ga")
    await me.ask("Tell me a story.")
    await tell(here, ["Once ", "upon "], 400)
    await here.stop()
    assert await me.closed() == 1001
    await here.start()


# -- connections ---------------------------------------------------------------------------------------------


@scene(ev.SpeechStarted, ev.UserTranscribed, ev.ResponseEnded)
async def observed(here: Place) -> None:
    """Two observers read along, each in its dialect, one from the middle; the log knows of neither."""
    me = await here.connect("duplex", turn_detection=QUICK)
    await me.ask("Good morning.")
    await tell(here, ["Good ", "morning."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    observing = f"/v1/realtime?observe={me.session}&observer_token={me.created['observer_token']}"
    other = here.dial("duplex", path=observing)
    third = here.dial("ga", "&duplex=0", path=observing)
    await other.until("response.done")
    await other.send("response.create")
    await me.speak(192)
    await me.silence(448)
    here.puppet.transcribe("Who is there?", seconds=0.2)
    await tell(here, ["Nobody."], 300)
    here.puppet.finish(SPENT)
    await third.until("response.done")
    await here.wait(500)
    await me.close()
    assert "error" in other.kinds()
    assert await other.closed() == await third.closed() == 1000


@scene(ev.SessionResumed, ev.AttachmentWithdrawn, ev.AttachmentConfirmed, ev.SessionDetached)
async def withdrawn_activation(here: Place) -> None:
    """A resume whose answer nobody hears is withdrawn after 10 s: the token that it used is good again."""
    me = await here.connect("duplex")
    await me.ask("How are you?")
    await tell(here, ["Very ", "well."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.drop()
    lost = here.dial("duplex")
    resume: Shown = {"session_id": me.session, "resume_token": me.token, "last_received_server_event_seq": 3}
    lost.say("session.resume", **resume)
    await here.wait(3.5)
    lost.line.vanish()
    await here.wait(11_000)
    me = await here.come_back(me)
    await me.send("session.heartbeat")
    await me.close()


@scene(ev.SessionResumed, ev.SessionTouched, ev.SessionClosed)
async def taken_over(here: Place) -> None:
    """A second connection takes the session from the first, which is still there; then an old token is shown."""
    me = await here.connect("duplex")
    await me.ask("How are you?")
    other = await here.come_back(me)
    assert await me.closed() == 1000
    assert me.kinds()[-1] == "session.replaced"
    await tell(here, ["Very ", "well."], 300)
    here.puppet.finish(SPENT)
    await other.until("response.done")
    await other.send("session.heartbeat")
    late = here.dial("duplex")
    late.say("session.resume", session_id=me.session, resume_token=me.token, last_received_server_event_seq=3)
    assert await late.closed() == 1008
    await other.close()


@scene(ev.SessionResumed, ev.AttachmentConfirmed, ev.SessionClosed)
async def racing_resumes(here: Place) -> None:
    """Two connections resume at once with the same token: one of them has the session, the other is told so."""
    me = await here.connect("duplex")
    await me.ask("How are you?")
    await tell(here, ["Very ", "well."], 300)
    await me.drop()
    both = [here.dial("duplex") for _ in range(2)]
    for one in both:
        one.say("session.resume", session_id=me.session, resume_token=me.token, last_received_server_event_seq=3)
    await here.wait(100)
    (winner,) = [one for one in both if one.code is None]
    winner.created = await winner.until("session.resumed")
    here.puppet.finish(SPENT)
    await winner.until("response.done")
    await winner.close()


@scene(ev.SessionDetached, ev.SessionTouched, cmd.Tick, ev.SessionClosing, ev.SessionClosed)
async def idle_expiry(here: Place) -> None:
    """A silent socket is given up and comes back; then a lease that nothing renews for five minutes expires."""
    me = await here.connect("duplex", idle_timeout_s=5)
    assert await me.closed() == 1000
    me = await here.come_back(me)
    await me.update(idle_timeout_s=3_600)
    await here.wait(200_000)
    await me.send("session.heartbeat")
    assert await me.closed() == 1000
    assert me.kinds()[-1] == "session.expired"


@scene(cmd.Tick, ev.SessionClosing, ev.SessionClosed, settings=HubSettings(shutdown_ms=200, max_session_ms=60_000))
async def longest_session(here: Place) -> None:
    """A session of the GA dialect has its longest duration: it ends in the middle of an answer."""
    me = await here.connect("ga")
    await here.wait(59_000)
    await me.ask("Tell me a long story.")
    await tell(here, ["Once ", "upon ", "a time"], 400)
    assert await me.closed() == 1001


@scene(cmd.Detach, cmd.CloseSession, ev.SessionDetached, ev.SessionResumed, ev.SessionClosed)
async def operator(here: Place) -> None:
    """An operator takes the session from its connection, lets it come back, and closes it with a word."""
    me = await here.connect("duplex")
    await me.ask("How are you?")
    given_up = await here.hub.detach(me.session, "detach-1")
    assert await here.hub.detach(me.session, "detach-1") == given_up
    await me.closed()
    await tell(here, ["Very ", "well."], 300)
    here.puppet.finish(SPENT)
    me = await here.come_back(me)
    await me.until("response.done")
    await here.hub.close(me.session, "close-1", "maintenance")
    await me.closed()


@scene(ev.SessionDetached, ev.SessionResumed, settings=HubSettings(shutdown_ms=200, slow_bytes=200_000))
async def slow_reader(here: Place) -> None:
    """A client that does not read any more is detached, and comes back to everything."""
    me = await here.connect("duplex", output_audio_format="pcm16")
    await me.ask("Tell me a story.")
    me.line.stop_reading(True)
    for n in range(12):
        here.puppet.say(f"{n} ", 1_000)
        await here.wait(20)
    await here.wait(100)
    await me.drop()
    me = await here.come_back(me)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(ev.CommandSequenced, ev.ErrorReported, ev.SessionResumed, ev.ItemCreated)
async def exactly_once(here: Place) -> None:
    """Counted commands: repeated behind a resume they are carried out once, and a gap is refused."""
    me = await here.connect("duplex")
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello?"}]}
    await me.send("conversation.item.create", item={**item, "id": "hello"}, client_seq=1)
    await me.send("response.create", client_seq=2)
    await me.drop()
    me = await here.come_back(me)
    assert me.created["last_client_seq"] == 2
    await me.send("response.create", client_seq=2)
    await me.append(64, client_seq=3)
    await me.send("input_audio_buffer.clear", client_seq=5)
    await me.send("input_audio_buffer.clear", client_seq=4, event_id="mine")
    await tell(here, ["Hello."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()
