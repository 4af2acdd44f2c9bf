"""Scenes of what is written: items, configurations, signals, prompts, requests over HTTP."""

import base64

from antiphon.events import commands as cmd
from antiphon.events import events as ev

from .place import Place
from .scene import scene
from .scenes_talk import COSTS, QUICK, SPENT, tell


def text(kind: str, words: str) -> list[dict[str, str]]:
    """Return the content of a message."""
    return [{"type": kind, "text": words}]


@scene(cmd.CreateItem, ev.ItemCreated, ev.ItemDeleted, ev.ItemRetrieved, ev.ErrorReported)
async def items(here: Place) -> None:
    """Items of every kind are made, put in between, shown and deleted; some of it is refused."""
    me = await here.connect("ga")
    await me.item(type="message", role="system", content=text("input_text", "Be kind."), id="rule")
    await me.write("What is the weather?", "question")
    await me.item(type="function_call", id="call", call_id="c1", name="weather", arguments="{}")
    await me.item(type="function_call_output", id="output", call_id="c1", output="rain")
    await me.item(type="message", role="assistant", content=text("output_text", "It rains."), id="answer")
    sound = base64.b64encode(b"\x10\x20" * 4_800).decode()
    await me.item(type="message", role="user", content=[{"type": "input_audio", "audio": sound}], id="spoken")
    early = {"type": "message", "role": "user", "content": text("input_text", "Hello."), "id": "early"}
    await me.send("conversation.item.create", item=early, previous_item_id="rule")
    await me.send("conversation.item.create", item={**early, "id": "first"}, previous_item_id="root")
    await me.send("conversation.item.create", item=early)
    await me.send("conversation.item.create", item={**early, "id": "lost"}, previous_item_id="nobody")
    for name in ("spoken", "call", "nobody"):
        await me.send("conversation.item.retrieve", item_id=name)
    for name in ("early", "answer", "early"):
        await me.send("conversation.item.delete", item_id=name)
    await me.send("response.create", response={"output_modalities": ["text"]})
    here.puppet.say("Take an umbrella.")
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(cmd.UpdateSession, ev.ConfigUpdated, ev.ErrorReported, ev.AudioDelta)
async def session_updates(here: Place) -> None:
    """The configuration changes between and during answers, all or nothing; a voice that has spoken stays."""
    me = await here.connect("ga", instructions="Be brief.")
    await me.update(
        instructions="Be long.", max_output_tokens=200, audio={"output": {"voice": "verse", "speed": 1.25}}
    )
    await me.update(instructions="Never.", audio={"output": {"speed": 9}})
    await me.update(audio={"input": {"turn_detection": {**QUICK, "create_response": False}}})
    await me.ask("Hello?")
    await tell(here, ["Good "], 300)
    await me.update(instructions="Be brief again.", audio={"output": {"voice": "alloy"}})
    await me.update(audio={"input": {"turn_detection": None, "format": {"type": "audio/pcmu"}}})
    await tell(here, ["day."], 300)
    here.puppet.finish(SPENT, COSTS)
    await me.until("response.done")
    await me.update(
        tools=[{"type": "function", "name": "look"}], tool_choice="required", output_modalities=["text"]
    )
    options = {"instructions": "In French.", "max_output_tokens": 20, "tool_choice": "none"}
    await me.write("Again?")
    await me.send("response.create", response=options)
    here.puppet.say("Bonjour.")
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.close()


@scene(cmd.SignalTurn, ev.TurnSignalled, cmd.AppendText, ev.TextReceived, cmd.CancelInput)
async def signals(here: Place) -> None:
    """A client with ears of its own says what it heard: signals of turns, and words as they are recognised."""
    me = await here.connect("duplex")
    await me.send("turn.signal", event="user_started")
    await me.speak(128)
    await me.send("input.text.append", text="What is ")
    await me.send("input.text.append", text="the time?")
    await me.send("turn.signal", event="user_committed", payload={"by": "key"})
    await me.send("input.commit")
    await tell(here, ["Half ", "past."], 300)
    await me.until("response.created")
    await me.send("turn.signal", event="assistant_started")
    await me.send("turn.signal", event="playback_ack", payload={"played_ms": 200})
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await me.send("turn.signal", event="assistant_done")
    await me.speak(128)
    await me.send("input.cancel")
    await me.send("turn.signal", event="nonsense")
    await me.send("turn.signal", event="timeout")
    await me.close()


@scene(ev.InputTimedOut, ev.InputCommitted, ev.ResponseCreated)
async def idle_prompt(here: Place) -> None:
    """A user who stays silent behind an answer is prompted, once."""
    me = await here.connect("ga", audio={"input": {"turn_detection": {**QUICK, "idle_timeout_ms": 5_000}}})
    await me.ask("Hello?")
    await tell(here, ["Good ", "day."], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    for _ in range(4):
        await me.append(1_024, loud=False)
    await me.until("input_audio_buffer.timeout_triggered")
    await here.wait(5)
    await tell(here, ["Are you ", "there?"], 300)
    here.puppet.finish(SPENT)
    await me.until("response.done")
    await here.wait(12_000)
    await me.close()


@scene(cmd.CreateResponse, ev.ResponseEnded, cmd.CloseSession)
async def chat(here: Place) -> None:
    """A chat completion over HTTP: a session of its own, with a conversation so far, closed behind its answer."""
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]

    async def post() -> None:
        pieces = await here.post(messages=messages, temperature=0.5, max_completion_tokens=30)
        assert pieces[-1].endswith(b"data: [DONE]\n\n")

    async with here.beside(post):
        await here.wait(20)
        here.puppet.say("It ")
        await here.wait(20)
        here.puppet.say("still rains.")
        here.puppet.finish(SPENT, COSTS)


@scene(cmd.StageCalled, ev.CallEnded, ev.ResponseEnded)
async def chat_tools(here: Place) -> None:
    """A chat completion that is answered with a call of a function."""
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}

    async def post() -> None:
        await here.post(messages=[{"role": "user", "content": "Look it up."}], tools=[look])

    async with here.beside(post):
        await here.wait(20)
        here.puppet.call("look", '{"what":"weather"}')
        here.puppet.finish(SPENT)
