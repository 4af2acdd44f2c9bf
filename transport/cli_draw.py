"""The picture of a session, with its sound if that is there."""

from pathlib import Path
from typing import Literal

import anyio
import numpy as np

from antiphon.events.audio import SampleRef
from antiphon.events.log import LogError

from . import cli_logs
from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .timeline import Story, tell
from .timeline_plot import Read, Sound
from .timeline_plot import draw as draw_story
from .wav import Pcm

HOW_TO_GET = "make voice"


def draw(target: str, data: Path, out: Path) -> None:
    """Draw a session of `data`, or an exported file, with its sound, if that is there.

    Raises:
        Stop: the log cannot be read or drawn, matplotlib is missing, or the picture cannot be written.
    """
    writable(out)
    log = cli_logs.load(target, data)
    story = tell(log.transactions)
    try:
        draw_story(story, out, anyio.run(sound_of, log, story))
    except ImportError:
        raise Stop(f"drawing needs matplotlib; get it with: {HOW_TO_GET}", UNUSABLE) from None
    except (OSError, ValueError) as error:
        raise Stop(f"cannot write {out}: {error}", UNUSABLE) from error
    except (ArithmeticError, LookupError, TypeError) as error:
        raise Stop("the log cannot be drawn: there are times in it that no session has", UNUSABLE) from error


async def sound_of(log: cli_logs.LoadedLog, story: Story) -> Sound:
    """Return the recorded sound of a session; nothing where there is none."""
    heard = max((piece.ref.end for piece in story.pieces), default=0)
    said = max((delta.ref.end for answer in story.answers for delta in answer.deltas), default=0)
    return Sound(
        user=_from(await _stream(log, "in", heard)),
        assistant=_from(await _stream(log, "out", said)),
    )


async def _stream(log: cli_logs.LoadedLog, stream: Literal["in", "out"], size: int) -> Pcm:
    try:
        data = await log.read(SampleRef(stream, 0, size))
    except LogError:
        data = b""
    return np.frombuffer(data[: len(data) // 2 * 2], "<i2")


def _from(samples: Pcm) -> Read:
    return lambda start, end: samples[start // 2 : end // 2]
