"""Scenes of the models: what each is given and what its stages report, in the shapes that theirs have."""

import base64
import io
import wave

import msgspec

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.context import ContextTurn
from antiphon.sessions.plugins import AURA, ECHO, MINICPM, NEMOTRON, PERSONAPLEX, QWEN3_OMNI
from antiphon.stages.scripted import Cue, Decide, Finish, Hang, Inner, Refuse, Say, Script, Sleep, Take
from antiphon.transport import presets

from .place import Peer, Place
from .scene import playing, scene
from .scenes_talk import COSTS, QUICK, SPENT, tell
from tests.sessions.world import BESIDE, MEMORY

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()


def voice() -> bytes:
    """Return a WAV file of a second of a tone."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, 16_000, 0, "NONE", ""))
        writer.writeframes(bytes(n % 200 for n in range(32_000)))
    return file.getvalue()


async def opened(here: Place, preset: presets.Preset) -> Peer:
    """Open a session as the preset of a model has it."""
    options = msgspec.to_builtins(preset.options)
    session = {name: value for name, value in options.items() if value is not None}
    me = await here.connect("duplex", **{**session, "turn_detection": options["turn_detection"]})
    me.rate, me.encoding = preset.rate, "pcm_f32le" if preset.width == 4 else "pcm16"
    return me


HEARS: Script = (
    Take(),
    Decide("listen", reason="model_listen"),
    Say("Good ", 500, takes=True),
    Decide("speak"),
    Say("morning.", 500, takes=True),
    Decide("end_of_turn", usage=SPENT, costs=COSTS),
    Take(),
    Decide("speak"),
    Sleep(300),
    Decide("end_of_turn"),
    Say("And then ", 800, takes=True),
    Hang(),
)


@scene(
    ev.UnitTaken,
    ev.UnitsAccepted,
    ev.ListenDecided,
    ev.ContinuationPlanned,
    ev.ContinuationDropped,
    ev.TurnCompleted,
    plugin=MINICPM,
    stage=playing(HEARS, (Take(), Decide("listen"), Hang())),
)
async def minicpm(here: Place) -> None:
    """MiniCPM-o hears units of a second, decides when it speaks and when it has done, and is interrupted."""
    me = await opened(here, presets.minicpm(voice(), extra_body={"force_listen_count": 1}))
    for _ in range(3):
        await me.append(1_000)
    await here.wait(2_500)
    for _ in range(3):
        await me.append(1_000, loud=False)
    await me.send("barge_in")
    await me.append(1_000)
    await me.update(instructions="Be brief.")
    await me.close()


@scene(ev.UserTranscribed, ev.TextDelta, ev.AudioDelta, ev.ResponseEnded, plugin=QWEN3_OMNI)
async def qwen3_omni(here: Place) -> None:
    """Qwen3-Omni answers turns: its words run ahead of its sound, and nothing says where they belong in it."""
    me = await opened(here, presets.qwen3_omni())
    for question in ("What is this?", "And that?"):
        await me.speak(640)
        await me.silence(640)
        here.puppet.transcribe(question, seconds=0.6)
        here.puppet.say("This is ")
        here.puppet.say("a song.")
        for _ in range(3):
            await here.wait(40)
            here.puppet.say("", 240)
        here.puppet.finish(SPENT, COSTS)
        await me.until("response.done")
        await here.wait(300)
        await me.ack(300)
    await me.speak(640)
    await me.silence(320)
    await me.close()


@scene(cmd.CreateItem, ev.ItemCreated, ev.UserTranscribed, ev.ItemRetrieved, ev.ErrorReported, plugin=QWEN3_OMNI)
async def pictures(here: Place) -> None:
    """A GA client shows Qwen3-Omni pictures beside words and sound; one that is no picture is refused."""
    me = await here.connect("ga", audio={"input": {"turn_detection": None}})
    shown = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}", "detail": "low"}
    words = {"type": "input_text", "text": "What is this?"}
    await me.item(type="message", role="user", content=[words, shown], id="shown")
    await me.item(type="message", role="user", content=[{**shown, "image_url": "https://here/picture.png"}])
    await me.send("conversation.item.retrieve", item_id="shown")
    await me.speak(256)
    await me.send("input_audio_buffer.commit")
    await me.send("response.create")
    here.puppet.transcribe("Tell me.", seconds=0.25)
    here.puppet.say("A picture.")
    here.puppet.say("", 400)
    here.puppet.finish(SPENT, COSTS)
    await me.until("response.done")
    await me.close()


LOOKS: Script = (Take(), Say("Let me ", 80, takes=True), Say("look.", 80, takes=True), Hang())


@scene(
    cmd.StageCalled,
    ev.CallEnded,
    ev.FunctionBatched,
    ev.FunctionBatchesOwned,
    ev.AudioDelta,
    plugin=NEMOTRON,
    stage=playing(LOOKS, LOOKS),
    session=1,
)
async def nemotron(here: Place) -> None:
    """Nemotron VoiceChat hears and says a frame each 80 ms; it calls a function, and takes in what that gives."""
    tool: dict[str, object] = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    me = await opened(here, presets.nemotron(tools=[tool]))
    for _ in range(3):
        await me.append(80)
    here.puppet.call("weather", '{"city":"Rome"}', call_id="call_rome", ends=True, request=here.puppet.resident)
    await me.until("response.done")
    await me.item(type="function_call_output", call_id="call_rome", output="warm")
    for _ in range(3):
        await me.append(80, loud=False)
    here.puppet.own()
    here.puppet.say("Warm.", 80, request=here.puppet.resident)
    await me.append(160)
    await me.append(80, loud=False)
    await me.update(instructions="Be brief.")
    await me.close()


@scene(
    ev.GateOpened,
    ev.ResponseDrains,
    cmd.StageInnerFinished,
    ev.AudioDelta,
    plugin=AURA,
    stage=playing(
        (Say("A red ", 600), Inner(1), Cue("spoken"), Say("car.", 300), Finish(usage=SPENT, costs=COSTS)),
        (Say("It turns.", 400), Inner(1), Finish(usage=SPENT)),
    ),
)
async def aura(here: Place) -> None:
    """AURA watches: a turn is pictures and sound, and the next one begins while the last is still spoken."""
    me = await opened(here, presets.aura(extra_body={"tts_language": "English"}))
    for _ in range(2):
        await me.append(200, video_frames=[PICTURE])
        await me.append(200, video_frames=[PICTURE, PICTURE])
        await me.send("input_audio_buffer.commit", create_response=True)
        await here.wait(100)
    here.puppet.cue("spoken")
    await here.wait(1_500)
    for response in [message["response"]["id"] for message in me.seen if message["type"] == "response.created"]:
        await me.send("playback.ack", response_id=response, played_ms=400)
    await me.close()


@scene(
    ev.UnitTaken,
    ev.AudioDelta,
    ev.ConfigUpdated,
    ev.SessionClosed,
    plugin=PERSONAPLEX,
    stage=playing((Take(2), *(Say("", 80, takes=True),) * 2, *(Say("Well, ", 80, takes=True),) * 2, Hang())),
)
async def personaplex(here: Place) -> None:
    """PersonaPlex hears and says a frame each 80 ms, with a voice and a persona; when its client goes, it ends."""
    me = await opened(here, presets.personaplex(voice="NATM1", persona="You like tea."))
    for _ in range(6):
        await me.append(80)
    await me.update(voice="NATF0")
    await me.drop()
    await here.wait(3_000)


OVERLAPPING = msgspec.structs.replace(BESIDE, name="cascade-beside")
REMEMBERING = msgspec.structs.replace(MEMORY, name="echo-remembering")


@scene(ev.GateOpened, ev.ResponseDrains, ev.Interrupted, cmd.StageInnerFinished, plugin=OVERLAPPING)
async def draining_turns(here: Place) -> None:
    """A cascade of the tests that takes the next turn while the last is spoken: two drain, and speech stops all."""
    me = await here.connect("duplex", turn_detection=QUICK)
    for question in ("One?", "Two?", "Three?"):
        await me.ask(question)
        await tell(here, [f"{question[:-1]} ", "it is."], 600)
        here.puppet.inner(1)
        await here.wait(20)
    first = here.puppet.live[0]
    here.puppet.say("For sure.", 300, request=first)
    here.puppet.finish(SPENT, request=first)
    await here.wait(300)
    await me.speak(192)
    await me.silence(448)
    here.puppet.transcribe("Stop.", seconds=0.2)
    await tell(here, ["Yes."], 200)
    here.puppet.finish(SPENT)
    await here.wait(300)
    await me.close()


@scene(
    ev.UnitTaken,
    ev.UnitsAccepted,
    ev.CommandHeld,
    ev.HoldEnded,
    ev.ErrorReported,
    plugin=REMEMBERING,
    stage=playing((Take(2), Cue("on"), Take(), Say("I hear.", 200, takes=True), Decide("end_of_turn"), Hang())),
)
async def remembering(here: Place) -> None:
    """A resident model of the tests with a memory: what must wait for its units waits, and its prompt stays."""
    me = await here.connect("duplex", extra_body={"auto_response": True})
    for _ in range(4):
        await me.append(64)
    await me.update(voice="alloy")
    await me.send("input_audio_buffer.commit", create_response=True)
    await me.update(instructions="Other ones.")
    here.puppet.cue("on")
    await here.wait(200)
    await me.append(64)
    await me.send("barge_in")
    await me.close()


@scene(
    cmd.StageRefused,
    ev.UnitsGivenUp,
    ev.UnitsReturned,
    cmd.StageLost,
    plugin=ECHO,
    stage=playing((Take(), Refuse(), Take(2), Hang()), (Take(), Cue("never")), (Take(4), Hang())),
)
async def refused_units(here: Place) -> None:
    """A resident model refuses a unit; then it is lost, twice, and what it had not taken comes anew."""
    me = await here.connect("duplex", extra_body={"auto_response": True})
    for _ in range(3):
        await me.append(64)
    await me.send("response.create", response={"max_output_tokens": 20})
    await me.append(64)
    here.puppet.lose(here.puppet.resident)
    await here.wait(20)
    for _ in range(2):
        await me.append(64)
    here.puppet.lose(here.puppet.resident)
    await here.wait(20)
    await me.append(64)
    await me.close()


@scene(
    ev.UnansweredDropped,
    ev.ActivityNoted,
    ev.ErrorReported,
    plugin=MINICPM,
    stage=playing((Take(), Decide("speak"), Take(), Decide("end_of_turn"), Take(), Decide("speak"), Hang())),
)
async def minicpm_in_turns(here: Place) -> None:
    """MiniCPM-o with a client that ends the turns: it takes no words, thinks, says nothing, and is stopped."""
    me = await opened(here, presets.minicpm(voice(), auto_response=False))
    await me.ask("Do you read this?")
    await me.send("input.text.append", text="And this?")
    await me.append(1_000)
    await me.send("input_audio_buffer.commit", create_response=True)
    await here.wait(2_500)
    await me.append(1_000)
    await me.send("input_audio_buffer.commit", create_response=True)
    await here.wait(500)
    await me.send("response.cancel")
    await me.close()


@scene(cmd.StageContext, ev.ContextCommitted, cmd.StageMeasured, ev.CostsNoted, plugin=AURA)
async def aura_remembers(here: Place) -> None:
    """AURA says what it will remember of a turn, and what that cost; of an interrupted turn, nothing."""
    me = await opened(here, presets.aura())
    for cut in (False, True):
        await me.append(200, video_frames=[PICTURE])
        await me.send("input_audio_buffer.commit", create_response=True)
        request = here.puppet.request
        here.puppet.tell(cmd.StageMeasured(request=request, costs=COSTS))
        here.puppet.say("A red car.", 500)
        if cut:
            await me.send("response.cancel")
        here.puppet.tell(
            cmd.StageContext(request=request, turn=ContextTurn(user="What is it?", assistant="A car."))
        )
        if not cut:
            here.puppet.inner(1)
            here.puppet.finish(SPENT)
        await here.wait(600)
        await me.ack(500)
    await me.close()
