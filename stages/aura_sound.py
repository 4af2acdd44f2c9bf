"""What AURA's recogniser is given to hear: it cannot take silence, and what it makes of it means nothing."""

import numpy as np
from msgspec import Struct

QUIET = 1e-3
"""Sound below this level (root mean square, full scale 1) is as good as none."""
RAMP = 1e-4
"""How far the ramp that stands for silence rises; nobody hears it."""


class Hearing(Struct, frozen=True):
    """Samples for the recogniser (float32, mono), and whether its words are those of a user (N13)."""

    samples: bytes
    heard: bool


def audible(samples: bytes, rate: int, *, speech: bool) -> Hearing:
    """Return what the recogniser hears of one turn: its samples, or a tiny ramp in place of silence (N53).

    A recogniser crashes on samples that are all zero and rejects an empty prompt, so a turn of pictures alone
    brings max(1,600, rate / 10) samples that are not zero. Its words are then nobody's.
    """
    given = np.frombuffer(samples, dtype="<f4")
    level = float(np.sqrt(np.mean(np.square(given, dtype=np.float64)))) if given.size else 0.0
    if given.size and ((speech and level > 0) or level >= QUIET):
        return Hearing(samples, heard=speech)
    ramp = np.linspace(RAMP / 10, RAMP, max(1_600, rate // 10), dtype="<f4")
    return Hearing(ramp.tobytes(), heard=False)
