"""What a resident model is told besides the units of its sound: each thing that is named comes with its bytes."""

import pytest
from msgspec.structs import replace

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.item_request import ItemRequest, Piece
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import CommitInput, CreateItem, CreateResponse, ResponseOptions
from antiphon.events.events import InputCommitted
from antiphon.events.items import AudioPart, ImagePart, ItemReference, Message, TextPart, places
from antiphon.sessions.plugins import ECHO, TurnModel
from antiphon.stages.base import Append, Submit
from antiphon.stages.scripted import Cue, Decide, Hang, Say, ScriptedStage, Take

from .worlds import TALK, MoodyLog, World, killed, opening, resumption, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

SEES = TurnModel(name="sees", version="1", capabilities=replace(ECHO.capabilities, supports_image_input=True))
MODEL = AudioFormat("pcm16", 16_000)
PICTURE = b"\x89PNG\r\n\x1a\n" + b"p" * 100
CLIP = b"\x01\x10" * 800
SPOKEN = b"\x02\x20" * 1_600
ANSWERS = (Take(), Say("Yes."), Decide("end_of_turn"))


def show(attachment: Attachment, item_id: str = "shown") -> None:
    """Write an item with a picture and sound into the conversation."""
    item = Message(id=item_id, role="user", content=(TextPart("See"), ImagePart("image/png", 108), AudioPart()))
    command = CreateItem(attachment=attachment.generation, item=item)
    pieces = (Piece(data=PICTURE), Piece(data=CLIP, format=MODEL))
    attachment.create(ItemRequest(command=command, pieces=pieces))


def speak(attachment: Attachment, sound: bytes = SPOKEN) -> None:
    attachment.append(AppendRequest(data=sound, format=MODEL, speech=True))


def turn(attachment: Attachment, sound: bytes = SPOKEN) -> None:
    """Say something and ask for the answer."""
    speak(attachment, sound)
    attachment.send(CommitInput(attachment=attachment.generation, create_response=True))


def appends(stage: ScriptedStage) -> list[Append]:
    return [message for message in stage.messages if isinstance(message, Append)]


def begun(stage: ScriptedStage) -> Submit:
    (submit,) = [message for message in stage.messages if isinstance(message, Submit)]
    return submit


def is_whole(message: Submit | Append) -> bool:
    """Whether what a message names has come with it, and has the size that it should."""
    named = message.payload.items if isinstance(message, Submit) else message.items
    if isinstance(message, Append) and message.turn is not None:
        named += message.turn.items
    refs = {ref for item in named for ref in places(item)}
    sound = dict(message.sound)
    return set(sound) == refs and all(len(data) == ref.size for ref, data in sound.items())


async def killed_behind_a_turn(log: MoodyLog, clock: VirtualClock) -> Attachment:
    """Let an engine be killed that was told a turn, and then shown something; return what is left of it."""
    async with killed(ScriptedStage(default=(*ANSWERS, Hang())), log, clock, plugin=SEES) as hub:
        attachment = await hub.open(opening())
        turn(attachment)
        show(attachment)
        await settle()
    return attachment


@rule("G6", "J2", "J4")
async def test_what_is_written_while_a_model_listens_comes_with_its_bytes() -> None:
    stage = ScriptedStage(default=(Hang(),))
    async with world(stage, plugin=SEES) as here:
        attachment = await here.hub.open(opening(patch=TALK))
        speak(attachment)
        show(attachment)
        speak(attachment)
        speak(attachment)
        await settle()
        before, told, after = appends(stage)
        assert (before.sound, after.sound) == ((), ())
        assert [item.id for item in told.items] == ["shown"]
        assert [data for _, data in told.sound] == [PICTURE, CLIP]
        assert told.data == SPOKEN
        assert is_whole(told)


@rule("G6", "E33", "J2")
async def test_what_waited_for_units_comes_with_its_bytes() -> None:
    stage = ScriptedStage(default=(Cue("go"), Take(), Hang()))
    async with world(stage, plugin=SEES) as here:
        attachment = await here.hub.open(opening(patch=TALK))
        speak(attachment)
        attachment.send(CommitInput(attachment=attachment.generation))
        show(attachment)
        speak(attachment)
        await settle()
        assert len(appends(stage)) == 1
        stage.cue("go")
        await settle()
        *_, told = appends(stage)
        assert [data for _, data in told.sound] == [PICTURE, CLIP]


@rule("G6", "N66", "P6")
async def test_after_a_restart_a_request_begins_with_the_bytes_of_the_conversation() -> None:
    clock, log = VirtualClock(), MoodyLog()
    old = await killed_behind_a_turn(log, clock)
    stage = ScriptedStage(default=(*ANSWERS, Hang()))
    async with world(stage, plugin=SEES, log=log, clock=clock) as here:
        new = await here.hub.resume(resumption(old))
        turn(new, SPOKEN[::-1])
        await settle()
        submit, (unit,) = begun(stage), appends(stage)
        assert [data for _, data in submit.sound] == [SPOKEN, PICTURE, CLIP], "the new turn is heard as a unit only"
        assert is_whole(submit)
        assert unit.data == SPOKEN[::-1]
        assert unit.turn is not None
        asked = unit.turn.items[-1]
        assert isinstance(asked, Message)
        assert asked.content == (AudioPart(None, None, 16_000, 100),), "it is named without its place"
        assert [data for _, data in unit.sound] == [PICTURE, CLIP]
        assert is_whole(unit)


async def point(here: World, attachment: Attachment) -> None:
    """Ask for an answer to what was shown and to what was said first, in place of the conversation."""
    events = await here.events(attachment.session)
    said = next(event.item_id for event in events if isinstance(event, InputCommitted))
    given = (ItemReference("shown"), ItemReference(said))
    attachment.send(CreateResponse(attachment=attachment.generation, options=ResponseOptions(input=given)))
    await settle()


@rule("G6", "J2")
async def test_input_in_place_of_the_conversation_comes_with_its_bytes() -> None:
    stage = ScriptedStage(default=(*ANSWERS, *ANSWERS, Hang()))
    async with world(stage, plugin=SEES) as here:
        attachment = await here.hub.open(opening())
        turn(attachment)
        show(attachment)
        await settle()
        await point(here, attachment)
        _, asked = appends(stage)
        assert (asked.kind, asked.data, asked.items) == ("conversation", b"", ())
        assert [data for _, data in asked.sound] == [PICTURE, CLIP, SPOKEN], "sound that left memory long ago, too"


@rule("G6", "P6", "J2")
async def test_after_a_restart_such_input_comes_from_the_store() -> None:
    clock, log = VirtualClock(), MoodyLog()
    old = await killed_behind_a_turn(log, clock)
    stage = ScriptedStage(default=(*ANSWERS, *ANSWERS, Hang()))
    async with world(stage, plugin=SEES, log=log, clock=clock) as here:
        new = await here.hub.resume(resumption(old))
        await point(here, new)
        (asked,) = appends(stage)
        assert [data for _, data in asked.sound] == [PICTURE, CLIP, SPOKEN]
        assert is_whole(asked)
