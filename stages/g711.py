"""G.711 companding (ITU-T G.711, µ-law and A-law): 16-bit samples to bytes, by the recommendation's segments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Of µ-law, on its 14-bit scale.
_BIAS = 33
_CLIP = 8_158


def ulaw_encode(samples: NDArray[np.int16]) -> bytes:
    """Encode int16 samples as µ-law, one byte each."""
    wide = samples.astype(np.int32) >> 2
    sign = np.where(wide < 0, 0x80, 0)
    magnitude = np.minimum(np.abs(wide), _CLIP) + _BIAS
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 5
    mantissa = (magnitude >> (exponent + 1)) & 0x0F
    return _as_bytes(~(sign | (exponent << 4) | mantissa) & 0xFF)


def alaw_encode(samples: NDArray[np.int16]) -> bytes:
    """Encode int16 samples as A-law, one byte each."""
    wide = samples.astype(np.int32)
    sign = np.where(wide >= 0, 0x80, 0)
    magnitude = np.minimum(np.where(wide >= 0, wide, -wide - 1) >> 3, 4_095)
    exponent = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int32) - 4, 0)
    mantissa = np.where(exponent > 0, magnitude >> exponent, magnitude >> 1) & 0x0F
    return _as_bytes((sign | (exponent << 4) | mantissa) ^ 0x55)


def _as_bytes(codes: NDArray[np.int32]) -> bytes:
    return bytes(codes.astype(np.uint8))
