"""Camera frames on an append: what is accepted as one (WIRE 2.2)."""

import pybase64
from msgspec import Raw

from .wire_client import ABSENT
from .wire_errors import WireError

MOST_FRAMES = 2
LONGEST_FRAME = 4_000_000
"""Characters of base64."""

_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def check_frames(frames: list[str] | None, slices: Raw) -> None:
    """Accept the camera frames of an append by number, size and signature.

    Raises:
        WireError: `invalid_video_frames`.
    """
    if slices != ABSENT and bytes(slices) not in (b"null", b"1"):
        raise _refusal("max_slice_nums is 1 or absent.", "max_slice_nums")
    if frames is None:
        return
    if len(frames) > MOST_FRAMES:
        raise _refusal("An append carries at most 2 frames.", "video_frames")
    for index, frame in enumerate(frames):
        if not _is_image(frame):
            raise _refusal("A frame is base64 of a JPEG or PNG image.", f"video_frames[{index}]")


def _is_image(frame: str) -> bool:
    if not frame or len(frame) > LONGEST_FRAME:
        return False
    try:
        return pybase64.b64decode(frame, validate=True).startswith(_SIGNATURES)
    except ValueError:
        return False


def _refusal(message: str, param: str) -> WireError:
    return WireError("invalid_video_frames", message, param)
