"""Items with sound and pictures on the wire (WIRE 7.1, 7.2; BEHAVIOURS J1, J5)."""

import base64
import json

import msgspec
import pytest

from antiphon.engine.item_request import ItemRequest
from antiphon.events.audio import AudioFormat
from antiphon.events.config import Dialect
from antiphon.events.items import AudioPart, ImagePart, Message, TextPart
from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_images import LONGEST_FRAME
from antiphon.transport.wire_in import decode
from antiphon.transport.wire_items import item_out
from antiphon.transport.wire_read import Reading, Undecided

from .configs import initial
from tests.rules import rule

SOUND = b"\x01\x02" * 160
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
JPEG = b"\xff\xd8\xff" + bytes(8)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{encoded(data)}"


def asked(*content: object, dialect: Dialect = "duplex", role: str = "user") -> ItemRequest:
    frame = json.dumps(
        {"type": "conversation.item.create", "item": {"type": "message", "role": role, "content": content}}
    )
    decoded = decode(frame, Reading(dialect=dialect, attachment=3))
    assert isinstance(decoded, Undecided)
    understood = decoded.under(initial(dialect))
    assert isinstance(understood, ItemRequest)
    return understood


def refused(*content: object, role: str = "user") -> WireError:
    with pytest.raises(WireError) as caught:
        asked(*content, role=role)
    return caught.value


@rule("J1")
def test_sound_has_its_own_format_or_the_sessions() -> None:
    own = {"type": "input_audio", "audio": encoded(SOUND), "format": "pcm16", "sample_rate_hz": 8_000}
    request = asked(own, {"type": "input_audio", "audio": encoded(SOUND)}, {"type": "input_text", "text": "Hm?"})
    assert [piece.format for piece in request.pieces] == [AudioFormat("pcm16", 8_000), None]
    assert [piece.data for piece in request.pieces] == [SOUND, SOUND]
    item = request.command.item
    assert isinstance(item, Message)
    assert [type(part) for part in item.content] == [AudioPart, AudioPart, TextPart]


@pytest.mark.parametrize(
    ("hints", "speech"),
    [({}, None), ({"is_speech": False}, False), ({"speech": True}, True), ({"speech_probability": 0.4}, False)],
)
def test_in_the_duplex_dialect_the_client_may_say_whether_it_is_speech(
    hints: dict[str, object], speech: bool | None
) -> None:
    part = {"type": "input_audio", "audio": encoded(SOUND), **hints}
    (piece,) = asked(part).pieces
    assert (piece.speech, piece.judged) == (speech, True)
    (plain,) = asked(part, dialect="ga").pieces
    assert (plain.speech, plain.judged) == (None, False), "the others keep everything"


def test_sound_with_words_is_kept_by_its_words() -> None:
    frame = {
        "type": "conversation.item.create",
        "item": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_audio", "audio": encoded(SOUND), "transcript": "Hello."}],
        },
    }
    decoded = decode(json.dumps(frame), Reading(dialect="ga", attachment=3))
    assert isinstance(decoded, Undecided)
    command = decoded.under(initial("ga"))
    assert not isinstance(command, ItemRequest)


@rule("J1")
@pytest.mark.parametrize(
    ("part", "code", "param"),
    [
        ({"type": "input_audio"}, "bad_event", "item.content[0].audio"),
        ({"type": "input_audio", "audio": "no base64"}, "bad_audio", "item.content[0].audio"),
        (
            {"type": "input_audio", "audio": encoded(SOUND), "format": "mp3"},
            "unsupported_audio_format",
            "item.content[0].format",
        ),
    ],
)
def test_malformed_sound(part: object, code: str, param: str) -> None:
    error = refused(part)
    assert (error.code, error.param) == (code, param)


@rule("J5")
@pytest.mark.parametrize(("kind", "data"), [("png", PNG), ("jpeg", JPEG)])
@pytest.mark.parametrize("detail", [None, "low"])
def test_a_picture_is_a_data_url_of_a_jpeg_or_png(kind: str, data: bytes, detail: str | None) -> None:
    request = asked({"type": "input_image", "image_url": url(data, kind), "detail": detail})
    assert [piece.data for piece in request.pieces] == [data]
    item = request.command.item
    assert isinstance(item, Message)
    (part,) = item.content
    assert isinstance(part, ImagePart)
    assert (part.mime, part.size, part.detail) == (f"image/{kind}", len(data), detail or "auto")


@rule("J5")
@pytest.mark.parametrize(
    "address",
    [
        "https://example.com/a.png",
        url(JPEG, "png"),
        url(PNG, "gif"),
        "data:image/png;base64,no base64",
        "data:image/png," + encoded(PNG),
        "data:image/png;base64," + "A" * (LONGEST_FRAME + 4),
        "",
    ],
)
def test_everything_else_is_no_picture(address: str) -> None:
    error = refused({"type": "input_image", "image_url": address})
    assert (error.code, error.param) == ("invalid_image", "item.content[0].image_url")


@rule("J5")
@pytest.mark.parametrize("role", ["assistant", "system"])
def test_only_users_have_pictures(role: str) -> None:
    error = refused({"type": "input_image", "image_url": url(PNG)}, role=role)
    assert (error.code, error.param) == ("bad_event", "item.content[0].type")


def test_a_picture_has_an_address_and_a_known_detail() -> None:
    assert refused({"type": "input_image"}).param == "item.content[0].image_url"
    error = refused({"type": "input_image", "image_url": url(PNG), "detail": "all"})
    assert error.param == "item.content[0].detail"


def test_an_item_shows_that_it_has_a_picture_and_not_the_bytes() -> None:
    item = Message(id="i", role="user", content=(ImagePart(mime="image/png", size=9), AudioPart(size=320)))
    shown = item_out(item).content
    assert isinstance(shown, list)
    assert [part.type for part in shown] == ["input_image", "input_audio"]
    assert b"ref" not in msgspec.json.encode(item_out(item))


@pytest.mark.parametrize(
    "part",
    [{"type": "input_audio", "audio": encoded(SOUND)}, {"type": "input_image", "image_url": url(PNG)}],
)
def test_what_a_response_reads_brings_no_bytes_along(part: object) -> None:
    item = {"type": "message", "role": "user", "content": [part]}
    frame = json.dumps({"type": "response.create", "response": {"input": [item]}})
    decoded = decode(frame, Reading(dialect="ga", attachment=3))
    assert isinstance(decoded, Undecided)
    with pytest.raises(WireError) as caught:
        decoded.under(initial("ga"))
    assert (caught.value.code, caught.value.param) == ("unsupported", "response.input[0].content[0]")
