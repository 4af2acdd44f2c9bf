"""Pictures: camera frames on an append (WIRE 2.2), and images of items (WIRE 7.2)."""

from contextlib import suppress
from typing import Literal

import pybase64
from msgspec import Raw

from .wire_client import ABSENT
from .wire_errors import WireError

MOST_FRAMES = 2
LONGEST_FRAME = 4_000_000
"""Characters of base64."""

_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def read_frames(frames: list[str] | None, slices: Raw) -> tuple[bytes, ...]:
    """Return the camera frames of an append; they are accepted by number, size and signature (E7).

    Raises:
        WireError: `invalid_video_frames`.
    """
    if slices != ABSENT and bytes(slices) not in (b"null", b"1"):
        raise _refusal("max_slice_nums is 1 or absent.", "max_slice_nums")
    if not frames:
        return ()
    if len(frames) > MOST_FRAMES:
        raise _refusal("An append carries at most 2 frames.", "video_frames")
    return tuple([_image(frame, index) for index, frame in enumerate(frames)])


Mime = Literal["image/jpeg", "image/png"]

_URLS: dict[str, tuple[Mime, bytes]] = {
    "data:image/jpeg;base64,": ("image/jpeg", _SIGNATURES[0]),
    "data:image/png;base64,": ("image/png", _SIGNATURES[1]),
}


def image_from(url: str, param: str) -> tuple[Mime, bytes]:
    """Return the kind and the bytes of the image in a data URL (WIRE 7.2).

    Raises:
        WireError: `invalid_image`: it is no data URL of a JPEG or PNG, or its bytes are something else.
    """
    head, comma, body = url.partition(",")
    known = _URLS.get(head + comma)
    if known is None:
        raise WireError("invalid_image", "An image is a data URL of a JPEG or PNG in base64.", param)
    if len(body) > LONGEST_FRAME:
        raise WireError("invalid_image", f"An image has at most {LONGEST_FRAME} characters of base64.", param)
    mime, signature = known
    try:
        data = pybase64.b64decode(body, validate=True)
    except ValueError:
        raise WireError("invalid_image", "The image is not valid base64.", param) from None
    if not data.startswith(signature):
        raise WireError("invalid_image", f"The bytes are no {mime.removeprefix('image/').upper()} image.", param)
    return mime, data


def _image(frame: str, index: int) -> bytes:
    image = b""
    if len(frame) <= LONGEST_FRAME:
        with suppress(ValueError):
            image = pybase64.b64decode(frame, validate=True)
    if not image.startswith(_SIGNATURES):
        text = f"A frame is base64 of a JPEG or PNG image, at most {LONGEST_FRAME} characters."
        raise _refusal(text, f"video_frames[{index}]")
    return image


def _refusal(message: str, param: str) -> WireError:
    return WireError("invalid_video_frames", message, param)
