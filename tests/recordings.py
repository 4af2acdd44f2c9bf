"""Recorded people and what they said, for tests; and how wrong a recogniser was.

The recordings are not part of the project: they are looked for in the folder that `ANTIPHON_SAMPLES` names, else in
`shared/samples` beside the repository. `transcripts.tsv` there gives a file and its words on each line.
"""

from __future__ import annotations

import os
import re
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

RATE = 16_000
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "samples"
_SPELLINGS = {"mr": "mister", "mrs": "missus"}


@dataclass(frozen=True)
class Recording:
    """A person's speech, int16 mono at 16 kHz, and the words."""

    name: str
    samples: NDArray[np.int16]
    said: str


def recordings() -> list[Recording]:
    """Return all recordings; skips the test, saying where they were looked for, if there are none."""
    folder = Path(os.environ.get("ANTIPHON_SAMPLES") or _BESIDE)
    index = folder / "transcripts.tsv"
    if not index.is_file():
        pytest.skip("there are no recordings: ANTIPHON_SAMPLES names no folder with a transcripts.tsv")
    lines = [line.split("\t") for line in index.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [Recording(name, _read(folder / name), said) for name, said in lines]


def _read(path: Path) -> NDArray[np.int16]:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return np.asarray(soxr.resample(samples, file.getframerate(), RATE), np.int16)


def words(text: str) -> list[str]:
    """Return the words of a text as they sound: lower case, no marks, titles spelt out."""
    found = re.findall(r"[a-z']+", text.lower().replace("-", " "))
    return [_SPELLINGS.get(word, word) for word in found]


def word_errors(said: str, heard: str) -> int:
    """Return how many words must be changed, added or removed to make `heard` into `said` (Levenshtein)."""
    wanted, found = words(said), words(heard)
    row = list(range(len(found) + 1))
    for i, word in enumerate(wanted, 1):
        before, row = row, [i]
        for j, other in enumerate(found, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (word != other)))
    return row[-1]
