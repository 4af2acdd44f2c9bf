"""Scenes of a conversation: how turns begin and end, and what the answers are."""

from collections.abc import Callable

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import TextMark
from antiphon.events.metrics import StageCost
from antiphon.stages.base import Stage
from antiphon.stages.scripted import Finish, Script, Sleep, Transcribe

from .place import Place
from .puppet import Puppet
from .scene import scene

QUICK = {"type": "server_vad", "silence_duration_ms": 320, "min_speech_duration_ms": 64, "prefix_padding_ms": 64}
"""Turns begin after two frames, and end after ten."""
SPENT = cmd.Usage(input_text=20, output_text=6, output_audio=40)
COSTS = (
    StageCost(stage="recogniser", total_ms=80.0, outputs=1),
    StageCost(stage="language", first_output_ms=120.0, total_ms=300.0, output_tokens=6),
)


async def tell(here: Place, words: list[str], ms: int) -> None:
    """Let the stage speak: a word and its sound at a time, aligned."""
    chars = 0
    for n, word in enumerate(words, 1):
        chars += len(word)
        await here.wait(20)
        here.puppet.say(word, ms, marks=(TextMark(chars, n * ms),))


@scene(ev.SpeechStarted, ev.SpeechStopped, ev.UserTranscribed, ev.AudioDelta, ev.Interrupted, ev.SessionResumed)
async def spoken_turn(here: Place) -> None:
    """A spoken turn in the duplex dialect: answered, interrupted by speech, and resumed on a new connection."""
    me = await here.connect("duplex", turn_detection=QUICK)
    await me.update(audio={"input": {"transcription": {"model": "whisper-1", "language": "en"}}})
    await me.silence(128)
    await me.speak(320)
    await me.silence(384)
    here.puppet.transcribe("What is the ", final=False)
    here.puppet.transcribe("What is the time?", seconds=0.56)
    await tell(here, ["It is ", "half past ", "three, ", "and so "], 400)
    await me.until("response.created")
    await here.wait(300)
    await me.ack(300)
    await me.speak(256)
    await me.drop()
    await here.wait(2_000)
    me = await here.come_back(me)
    await me.speak(192)
    await me.silence(448)
    await tell(here, ["Of ", "course."], 300)
    here.puppet.finish(SPENT, COSTS)
    await here.wait(700)
    await me.ack(600)
    await me.send("session.heartbeat")
    await me.close()


@scene(ev.ConfigUpdated, ev.ItemTruncated, ev.TextDelta, ev.ItemRetrieved, ev.ItemDeleted, ev.ErrorReported)
async def text_turn(here: Place) -> None:
    """A written turn in the GA dialect: an update, an answer that is truncated, one in writing, and the close."""
    me = await here.connect("ga", instructions="Be brief.", audio={"output": {"voice": "alloy"}})
    rules = {"type": "input_text", "text": "Speak English."}
    await me.item(type="message", role="system", content=[rules], id="rules")
    await me.write("How are you?", "question")
    await me.send("response.create")
    await me.send("response.create")
    await tell(here, ["I am ", "very well, ", "thank you."], 500)
    here.puppet.finish(SPENT, COSTS)
    spoken = (await me.until("response.output_item.done"))["item"]["id"]
    await here.wait(700)
    await me.send("conversation.item.truncate", item_id=spoken, content_index=0, audio_end_ms=700)
    await me.send("conversation.item.truncate", item_id=spoken, content_index=0, audio_end_ms=9_000)
    await me.send("conversation.item.retrieve", item_id=spoken)
    await me.write("In writing, please.")
    await me.send("response.create", response={"output_modalities": ["text"], "metadata": {"kind": "note"}})
    here.puppet.say("Well, ")
    here.puppet.say("thank you.")
    here.puppet.finish(SPENT)
    await me.send("conversation.item.delete", item_id="question")
    await me.update(model="another", instructions="No.")
    await me.close()


@scene(ev.InputCommitted, ev.InputCleared, ev.UserTranscribed, ev.ResponseEnded)
async def push_to_talk(here: Place) -> None:
    """The beta dialect without turn detection: a button is held, once for nothing, and the sound is G.711."""
    me = await here.connect("beta", turn_detection=None, input_audio_format="g711_ulaw", voice="verse")
    me.rate, me.encoding = 8_000, "g711_ulaw"
    await me.speak(256)
    await me.send("input_audio_buffer.clear")
    await me.speak(512)
    await me.send("input_audio_buffer.commit")
    await me.send("response.create")
    here.puppet.transcribe("Hello there.", seconds=0.5)
    await tell(here, ["Good ", "day."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.send("input_audio_buffer.commit")
    await here.wait(600)
    await me.close()


def hearing(*told: str, after_ms: int = 0) -> Callable[[Place], Stage]:
    """Return a stage that finds these words in a turn that is still spoken, one after the other, after a while."""
    work = (Sleep(after_ms),) if after_ms else ()
    previews: dict[int, Script] = {
        n: (*work, Transcribe(text, final=False), Finish()) for n, text in enumerate(told)
    }

    def make(here: Place) -> Stage:
        return Puppet(here.clock, previews=previews)

    return make


@scene(
    ev.PreviewRequested,
    ev.TurnPreviewed,
    ev.SpeechStopped,
    stage=hearing("I would like to", "I would like to know the time."),
)
async def unfinished_sentence(here: Place) -> None:
    """A turn whose end is told from its words: it goes on behind half a sentence, and ends behind a whole one."""
    detection = {"type": "semantic_vad", "eagerness": "medium"}
    me = await here.connect("ga", audio={"input": {"turn_detection": detection}})
    await me.silence(320)
    await me.speak(384)
    await me.silence(1_920)
    await me.speak(384)
    await me.silence(640)
    await tell(here, ["It is ", "three."], 400)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(ev.InterruptionSuspected, ev.InterruptionDismissed, ev.OutputHeld, ev.Interrupted)
async def false_interruption(here: Place) -> None:
    """A user coughs over an answer, says "mhm", and interrupts the next sentence at last."""
    me = await here.connect("duplex", turn_detection={**QUICK, "false_interruption": True})
    await me.ask("How are you?")
    await tell(here, ["It is ", "half past "], 400)
    await me.until("response.output_audio.delta")
    await here.wait(200)
    await me.speak(192)
    await tell(here, ["three, ", "and "], 400)
    await me.silence(256)
    await me.ack(700)
    await me.speak(64)
    here.puppet.say("so ", 300)
    await me.append(64, transcript="Mhm.")
    await me.speak(128)
    await me.silence(448)
    await here.wait(300)
    here.puppet.say("on and on, as it may be.", 4_000)
    await me.ack(900)
    await me.speak(640)
    await me.silence(448)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(ev.InterruptionSuspected, ev.InterruptionDoubted, ev.ResponseEnded)
async def doubted_interruption(here: Place) -> None:
    """Somebody makes a noise over an answer in which no words are found: the answer goes on beside it."""
    me = await here.connect("duplex", turn_detection={**QUICK, "false_interruption": True})
    await me.ask("How are you?")
    await tell(here, ["It is ", "half past ", "three, ", "as ever."], 900)
    await me.until("response.output_audio.delta")
    for _ in range(20):
        await me.append(128, transcript=" ")
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(
    ev.PreviewRequested,
    ev.PreviewDropped,
    ev.InputCommitted,
    stage=hearing("I would like", "I would like to go.", "I would like to go.", after_ms=400),
)
async def preview_overtaken(here: Place) -> None:
    """The words of a turn are asked for, and the user speaks on before they come: they are asked for again."""
    detection = {"type": "semantic_vad", "eagerness": "high"}
    me = await here.connect("beta", turn_detection=detection)
    await me.speak(384)
    await me.silence(256)
    await me.speak(256)
    await me.silence(1_536)
    await tell(here, ["Go, ", "then."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(cmd.BargeIn, ev.Interrupted, ev.HistoryCut, cmd.CancelResponse, cmd.ClearOutput, ev.OutputCleared)
async def interruptions(here: Place) -> None:
    """Three answers, stopped three ways: barge_in, response.cancel, and the buffer of the speaker is cleared."""
    me = await here.connect("duplex")
    await me.ask("Tell me a story.")
    await tell(here, ["Once ", "upon ", "a time"], 500)
    await me.until("response.created")
    await here.wait(400)
    await me.ack(400)
    await me.send("barge_in")
    await me.send("barge_in")
    await me.ask("Another one.")
    await tell(here, ["There ", "was "], 500)
    await me.until("response.created")
    await me.send("response.cancel")
    await me.send("response.cancel")
    await me.ask("The last one.")
    await tell(here, ["In ", "a ", "land."], 500)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await here.wait(300)
    await me.send("output_audio_buffer.clear")
    await me.close()


@scene(ev.OverlapDecided, ev.InputDiscarded, ev.Interrupted, ev.PlaybackAcknowledged)
async def overlap_policies(here: Place) -> None:
    """What a client says about speech over an answer: dropped, listened to, a short word, and an interruption."""
    detection = {**QUICK, "interrupt_response": False}
    me = await here.connect("duplex", turn_detection=detection)
    await me.ask("Count to ten.")
    await tell(here, ["One, ", "two, ", "three, ", "four, "], 500)
    await me.until("response.created")
    await me.append(64, overlap_action="drop")
    await me.append(64, overlap_action="listen")
    await me.append(64, transcript="Uh-huh.")
    await me.silence(384)
    await me.ack(500, committed_ms=400)
    await me.append(64, overlap_action="barge_in")
    await me.silence(64)
    await me.update(turn_detection=QUICK)
    await me.ask("Again.")
    await tell(here, ["One, ", "two."], 500)
    await me.append(64, transcript="ok")
    await me.silence(448)
    await me.append(64, force_barge_in=True)
    await me.silence(448)
    await me.close()


@scene(ev.AnswerDeferred, ev.PlaybackAcknowledged, ev.InputCommitted)
async def deferred_answers(here: Place) -> None:
    """Turns that come while an answer is still played wait for its end; one answer serves both."""
    me = await here.connect("duplex", extra_body={"auto_response": True})
    await me.ask("Tell me something.")
    await tell(here, ["Water ", "is wet."], 600)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.ack(200)
    for _ in range(2):
        await me.speak(192)
        await me.send("input_audio_buffer.commit", create_response=True)
    await me.ack(700)
    await me.ack(1_200)
    here.puppet.transcribe("And fire?", seconds=0.2)
    await tell(here, ["Hot."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(cmd.TruncateItem, ev.ItemTruncated, ev.HistoryCut, cmd.StageFailed, ev.ErrorReported)
async def what_was_heard(here: Place) -> None:
    """An interrupted answer is cut where the playout is thought to be, and corrected by who knows better."""
    me = await here.connect("ga", audio={"input": {"turn_detection": QUICK}})
    await me.ask("Say the alphabet.")
    await tell(here, ["A, ", "B, ", "C, ", "D, ", "E, "], 300)
    spoken = (await me.until("response.output_item.added"))["item"]["id"]
    await here.wait(500)
    await me.speak(192)
    truncate = {"item_id": spoken, "content_index": 0}
    await me.send("conversation.item.truncate", **truncate, audio_end_ms=900)
    await me.send("conversation.item.truncate", **truncate, audio_end_ms=600)
    await here.wait(6_000)
    await me.send("conversation.item.truncate", **truncate, audio_end_ms=1_200)
    await me.send("conversation.item.truncate", **truncate, audio_end_ms=300)
    await me.send("conversation.item.truncate", item_id="nothing", content_index=0, audio_end_ms=300)
    await me.silence(448)
    here.puppet.fail()
    await me.until("response.done")
    await me.close()


@scene(ev.ResponseCreated, ev.AsideCancelled, ev.ErrorReported, ev.TextDelta)
async def asides(here: Place) -> None:
    """Answers out of band beside the one that is spoken: with its own input, cancelled, and one too many."""
    me = await here.connect("duplex")
    await me.ask("Tell me a story.")
    await tell(here, ["Once "], 300)
    spoken = here.puppet.request
    aside = {"conversation": "none", "output_modalities": ["text"]}
    asked = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which language is this?"}]}
    ]
    for topic in ("language", "mood", "topic", "names", "places"):
        given = {"input": asked} if topic == "language" else {}
        await me.send("response.create", response={**aside, "metadata": {"topic": topic}, **given})
    names = [message["response"]["id"] for message in me.seen if message["type"] == "response.created"]
    await me.send("response.cancel", response_id=names[2])
    here.puppet.say("Rome.")
    here.puppet.finish(SPENT)
    here.puppet.say("upon a time.", 400, request=spoken)
    here.puppet.finish(SPENT, request=spoken)
    await here.wait(800)
    await me.close()


@scene(cmd.StageCalled, ev.CallStarted, ev.CallDelta, ev.CallEnded, ev.ErrorReported)
async def tools(here: Place) -> None:
    """The model calls two functions, the second in pieces; both outputs come, and it goes on to answer."""
    weather = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    me = await here.connect("ga", tools=[weather], tool_choice="auto")
    await me.ask("How is the weather in Paris and in Rome?")
    here.puppet.say("Let me look. ", 400)
    here.puppet.call("weather", '{"city":"Paris"}', call_id="call_paris")
    here.puppet.call("weather", '{"city":', index=1, call_id="call_rome", final=False)
    here.puppet.call(arguments='"Rome"}', index=1)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.item(type="function_call_output", call_id="call_rome", output="warm")
    await me.item(type="function_call_output", call_id="call_paris", output="rain")
    await me.item(type="function_call_output", call_id="call_paris", output="snow")
    await me.item(type="function_call_output", call_id="call_london", output="fog")
    await me.send("response.create")
    await tell(here, ["Rain in Paris, ", "warm in Rome."], 500)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(ev.CallStarted, ev.CallDelta, ev.Interrupted, ev.ResponseEnded)
async def tools_cut_short(here: Place) -> None:
    """A call is cut off in the middle of its arguments by a cancel, and another one by the user's voice."""
    look = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    me = await here.connect("duplex", tools=[look], turn_detection=QUICK)
    await me.ask("Look it up.")
    here.puppet.call("look", '{"what":', final=False)
    await me.until("response.created")
    await me.send("response.cancel")
    await me.ask("Look again.")
    here.puppet.say("One moment. ", 600)
    here.puppet.call("look", '{"wh', final=False)
    await here.wait(200)
    await me.ack(200)
    await me.speak(192)
    await me.silence(448)
    here.puppet.transcribe("Never mind.", seconds=0.2)
    await tell(here, ["All right."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(ev.CreationAbsorbed, ev.CallEnded, ev.AnswerDeferred, ev.ErrorReported)
async def tools_by_voice(here: Place) -> None:
    """An output lets the model go on, behind the sound of its call; that a client asks too, once, is no fault."""
    look = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    me = await here.connect("duplex", tools=[look], extra_body={"auto_response": True})
    await me.ask("Look it up.")
    here.puppet.say("One moment. ", 600)
    here.puppet.call("look", "{}", call_id="call_look")
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.item(type="function_call_output", call_id="call_look", output="blue")
    await me.send("response.create")
    await me.ack(600)
    await me.send("response.create")
    await tell(here, ["It is ", "blue."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()
