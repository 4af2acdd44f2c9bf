"""Items with sound and pictures: converted at the edge, kept beside the log, given to the stage that answers."""

import numpy as np
import pytest
from msgspec.structs import replace

from antiphon.engine.errors import Refused
from antiphon.engine.item_request import ItemRequest, Piece, placed
from antiphon.engine.settings import HubSettings
from antiphon.engine.window import KEPT_PIECES, SoundWindow
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import CreateItem, CreateResponse
from antiphon.events.config import SessionConfig
from antiphon.events.events import ErrorReported, ItemCreated
from antiphon.events.items import AudioPart, ImagePart, Message, Part, TextPart, pieces
from antiphon.sessions.plugins import ECHO, TurnModel
from antiphon.stages.base import Submit
from antiphon.stages.scripted import ScriptedStage

from .worlds import World, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

CONFIG = SessionConfig(model="m", input_format=AudioFormat("pcm16", 24_000))
MODEL = AudioFormat("pcm16", 16_000)
LOUD = (np.sin(np.arange(2_400) / 4) * 12_000).astype("<i2").tobytes()
PICTURE = b"\x89PNG\r\n\x1a\n" + b"p" * 100
SEES = TurnModel(name="sees", version="1", capabilities=replace(ECHO.capabilities, supports_image_input=True))


def request(*content: Part, data: tuple[Piece, ...] = (), attachment: int = 1, item_id: str = "") -> ItemRequest:
    item = Message(id=item_id, role="user", content=content)
    return ItemRequest(command=CreateItem(attachment=attachment, item=item, event_id="mine"), pieces=data)


def submitted(stage: ScriptedStage) -> Submit:
    (submit,) = [message for message in stage.messages if isinstance(message, Submit)]
    return submit


@rule("E2", "J2")
@pytest.mark.parametrize("source", [None, AudioFormat("pcm16", 24_000), AudioFormat("pcm16", 16_000)])
def test_the_sound_of_an_item_becomes_the_models(source: AudioFormat | None) -> None:
    command, data = placed(request(AudioPart(), data=(Piece(data=LOUD, format=source),)), CONFIG, MODEL)
    (part,) = pieces(command.item)
    rate = (source or CONFIG.input_format).rate
    assert isinstance(part, AudioPart)
    assert part.size == len(data)
    assert abs(len(data) - len(LOUD) * MODEL.rate // rate) <= 2
    assert part.ms == MODEL.ms(len(data))


@pytest.mark.parametrize(
    ("piece", "heard"),
    [
        (Piece(data=LOUD), True),
        (Piece(data=LOUD, speech=False), False),
        (Piece(data=bytes(4_800), judged=True), False),
        (Piece(data=bytes(4_800), judged=True, speech=True), True),
        (Piece(data=LOUD, judged=True), True),
    ],
)
def test_what_is_no_speech_is_not_heard_by_the_model(piece: Piece, heard: bool) -> None:
    command, data = placed(request(AudioPart(), data=(piece,)), CONFIG, MODEL)
    assert bool(data) == heard
    assert bool(pieces(command.item)) == heard
    assert isinstance(command.item, Message)
    (part,) = command.item.content
    assert isinstance(part, AudioPart)
    assert (part.transcript == "") != heard


@pytest.mark.parametrize(
    ("piece", "model", "code"),
    [
        (Piece(data=b"abc"), MODEL, "bad_audio"),
        (Piece(data=LOUD, format=AudioFormat("pcm16", 7)), MODEL, "bad_event"),
        (Piece(data=LOUD), AudioFormat("pcm_f32le", 16_000), "unsupported_audio_format"),
    ],
)
def test_what_cannot_be_understood_is_refused(piece: Piece, model: AudioFormat, code: str) -> None:
    with pytest.raises(Refused) as refused:
        placed(request(AudioPart(), data=(piece,)), CONFIG, model)
    assert refused.value.code == code


async def given(here: World, *content: Part, data: tuple[Piece, ...], answer: bool = True) -> str:
    attachment = await here.hub.open(opening())
    attachment.create(request(*content, data=data, attachment=attachment.generation))
    if answer:
        attachment.send(CreateResponse(attachment=attachment.generation))
    await settle()
    return attachment.session


@rule("J2", "J4")
async def test_a_stage_gets_the_bytes_of_what_it_is_to_answer() -> None:
    stage = ScriptedStage()
    async with world(stage, plugin=SEES) as here:
        parts = (TextPart("Which?"), ImagePart(mime="image/png", size=len(PICTURE)), AudioPart())
        session = await given(here, *parts, data=(Piece(data=PICTURE), Piece(data=LOUD)))
        (item,) = [event.item for event in await here.events(session) if isinstance(event, ItemCreated)]
        picture, sound = pieces(item)
        assert picture.ref is not None
        assert sound.ref is not None
        told = dict(submitted(stage).sound)
        assert told[picture.ref] == PICTURE
        assert len(told[sound.ref]) == sound.size
        assert await here.log.samples.read(session, picture.ref) == PICTURE
        assert await here.log.samples.read(session, sound.ref) == told[sound.ref]


@rule("E12")
async def test_an_item_over_credit_is_refused_whole() -> None:
    settings = HubSettings(shutdown_ms=200, input_bytes=1_000)
    async with world(ScriptedStage(), plugin=SEES, settings=settings) as here:
        session = await given(here, AudioPart(), data=(Piece(data=LOUD),), answer=False)
        (refused,) = [event for event in await here.events(session) if isinstance(event, ErrorReported)]
        assert (refused.code, refused.event_id) == ("input_backpressure", "mine")


async def test_bad_sound_is_refused_by_its_event_and_makes_no_item() -> None:
    async with world(ScriptedStage(), plugin=SEES) as here:
        session = await given(here, AudioPart(), data=(Piece(data=b"abc"),), answer=False)
        events = await here.events(session)
        assert [e.code for e in events if isinstance(e, ErrorReported)] == ["bad_audio"]
        assert not [e for e in events if isinstance(e, ItemCreated)]


def test_pieces_are_kept_until_newer_ones_need_the_room() -> None:
    window = SoundWindow()
    half = KEPT_PIECES // 2
    refs = [SampleRef("item", n * half, half) for n in range(3)]
    for ref in refs[:2]:
        window.keep(ref, bytes(half))
    window.keep(refs[0], b"again")
    assert window.get(refs[0]) == bytes(half)
    window.keep(refs[2], bytes(half))
    assert window.get(refs[0]) is None
    assert window.get(refs[2]) == bytes(half)
    window.keep(SampleRef("img", 0, 2 * KEPT_PIECES), bytes(2 * KEPT_PIECES))
    assert window.get(refs[2]) is None
