"""Speaks texts into WAV files with the shipped voice: `python -m antiphon.stages.speak TEXT FILE [TEXT FILE …]`."""

from __future__ import annotations

import sys
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.stages.asset_errors import AssetError
from antiphon.stages.assets import resolve
from antiphon.stages.espeak import PhonemiserFailed
from antiphon.stages.piper import PiperVoice


def main(arguments: Sequence[str]) -> int:
    """Speak every text; return 0, 1 when the voice cannot speak here, or 2 when texts and files do not pair."""
    if not arguments or len(arguments) % 2:
        print("give pairs of TEXT and FILE", file=sys.stderr)  # noqa: T201  (a program of its own)
        return 2
    try:
        voice = PiperVoice(resolve("tts"), noise=0.0, noise_w=0.0)
        try:
            for text, file in zip(arguments[::2], arguments[1::2], strict=True):
                write(Path(file), np.concatenate([np.zeros(0, np.int16), *voice.speak(text)]), voice.sample_rate)
        finally:
            voice.close()
    except (AssetError, PhonemiserFailed, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def write(path: Path, samples: NDArray[np.int16], rate: int) -> None:
    """Write samples as a mono file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
