"""A Piper voice whose sound starts before its sentence is decoded.

One clause runs in three steps (see `piper_split`): phonemes and durations for the whole clause, then flow and
vocoder piece by piece. Each piece is decoded with enough frames around it that the pieces, joined, are the
samples of one whole decode.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from antiphon.stages.clauses import CLOSERS, MARKS, boundaries
from antiphon.stages.espeak import Phonemiser, open_phonemiser
from antiphon.stages.foreign import onnx_session

Floats = NDArray[np.float32]

# Frames of view on each side. The flow's is exact (four couplings of four layers of width 5); the vocoder's
# leaves 1e-6 of full scale, less than one step of 16 bits.
FLOW_MARGIN = 32
VOCODER_MARGIN = 12
# Frames of each piece; the last repeats. A frame is 256 samples (12 ms). The first is small since a listener
# waits for it; 48 frames take about 20 ms to decode on one core, which is also how late a stop can be.
SCHEDULE = (16, 24, 32, 48)
# Frames of flow made ahead of the vocoder: little at first, for the same reason.
_FIRST_FLOW_BLOCK, _FLOW_BLOCK = 64, 192
# What espeak-ng says when it changes the language inside a text: "(fr)".
_LANGUAGE_SWITCH = re.compile(r"\([^)]*\)")
_SPOKEN_MARKS = {
    "…": ".",
    "。": ".",
    "！": "!",
    "？": "?",
    "，": ",",
    "；": ";",
    "：": ":",
    "、": ",",
    "—": ",",
    "–": ",",
}
_BEGIN, _END, _PAD, _SPACE = "^", "$", "_", " "


@dataclass(frozen=True, slots=True)
class Mark:
    """The text up to character `text_end` has been spoken when sample `sample_end` has."""

    text_end: int
    sample_end: int


@dataclass(frozen=True, slots=True)
class SpeechTimings:
    """Seconds spent on phonemes and on the first step of the network."""

    phonemes_s: float
    frontend_s: float


class PiperVoice:
    """Speaks with the voice in `directory` (the output of `piper_split.split`).

    `noise` and `noise_w` vary the sound and its rhythm from one call to the next (None: the voice's own
    values; 0.0 for both makes speech repeatable). Calls may come from any thread, several at a time; each
    uses `threads` cores. Raises `AssetMissing` when onnxruntime or espeak-ng is absent. `close` ends the
    phonemiser, which belongs to the voice unless one was passed in.
    """

    def __init__(
        self,
        directory: Path,
        *,
        phonemiser: Phonemiser | None = None,
        threads: int = 1,
        speaker: int = 0,
        noise: float | None = None,
        noise_w: float | None = None,
    ) -> None:
        voice = cast("dict[str, Any]", json.loads((directory / "voice.json").read_text(encoding="utf-8")))
        graphs = voice["graphs"]
        inference = voice["inference"]
        self.sample_rate: int = int(voice["audio"]["sample_rate"])
        self.hop: int = int(graphs["hop"])
        self._ids = {symbol: [int(number) for number in ids] for symbol, ids in voice["phoneme_id_map"].items()}
        self._espeak_voice = str(voice["espeak"]["voice"])
        self._noise = float(inference["noise_scale"] if noise is None else noise)
        self._noise_w = float(inference["noise_w"] if noise_w is None else noise_w)
        self._length = float(inference["length_scale"])
        self._inputs = frozenset(str(name) for name in graphs["inputs"])
        self._speaker = speaker
        self._frontend = onnx_session(directory / "frontend.onnx", threads=threads)
        self._decoder = _Decoder(directory, graphs, threads)
        self._outputs = [graphs[name] for name in ("prior", "mask", "durations", "speaker") if graphs[name]]
        self._owns_phonemiser = phonemiser is None
        self._phonemiser = open_phonemiser() if phonemiser is None else phonemiser

    def close(self) -> None:
        """End the phonemiser that the voice opened itself."""
        if self._owns_phonemiser:
            self._phonemiser.close()

    def speak(self, text: str, *, speed: float = 1.0, stop: Callable[[], bool] = lambda: False) -> Utterance:
        """Begin to speak `text`: one clause or sentence, better not more than a few.

        Blocks until the durations are known (10-30 ms); the sound is made while the result is iterated.
        `speed` 2.0 is twice as fast. `stop` is asked before every piece; once true, iteration ends. Text
        without anything to say gives no sound. Raises `ValueError` unless speed is positive, and
        `PhonemiserFailed`.
        """
        if speed <= 0:
            raise ValueError("speed must be positive")
        started = time.perf_counter()
        ids, segment_ends = self._phoneme_ids(text)
        phonemes_done = time.perf_counter()
        if not segment_ends:
            return Utterance(None, 0, (), SpeechTimings(phonemes_done - started, 0.0), stop)
        prior, durations = self._run_frontend(ids, speed)
        ends = np.cumsum(durations.reshape(-1)).astype(int) * self.hop
        marks = [Mark(text_end, int(ends[last_id])) for text_end, last_id in segment_ends]
        total = prior.frames * self.hop
        # The closing symbol and its silence belong to the last segment.
        marks[-1] = Mark(len(text), total)
        timings = SpeechTimings(phonemes_done - started, time.perf_counter() - phonemes_done)
        return Utterance(self._decoder.samples(prior), total, tuple(marks), timings, stop)

    def warm_up(self) -> None:
        """Speak once into the void, so that the first real sentence does not pay for allocations."""
        for _ in self.speak("Hello there."):
            pass

    def _phoneme_ids(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of the whole text, and for each spoken segment (end in `text`, index of its last id)."""
        segments = _segments(text)
        spoken = self._phonemiser.phonemes(self._espeak_voice, [part.text for part in segments])
        pad = self._ids[_PAD]
        ids = [*self._ids[_BEGIN], *pad]
        ends: list[tuple[int, int]] = []
        for segment, phonemes in zip(segments, spoken, strict=True):
            symbols = unicodedata.normalize("NFD", _LANGUAGE_SWITCH.sub("", phonemes)).strip()
            if not symbols:
                continue
            if ends:
                symbols = _SPACE + symbols
            for symbol in symbols + segment.mark:
                if symbol in self._ids:  # one the voice was not trained on is left out, as Piper does
                    ids += [*self._ids[symbol], *pad]
            ends.append((segment.end, len(ids) - 1))
        return ids + self._ids[_END], ends

    def _run_frontend(self, ids: list[int], speed: float) -> tuple[_Prior, Floats]:
        scales = (self._noise, self._length / speed, self._noise_w)
        feed: dict[str, NDArray[Any]] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array(scales, np.float32),
            "sid": np.array([self._speaker], np.int64),
        }
        out = self._frontend.run(self._outputs, {name: feed[name] for name in feed if name in self._inputs})
        prior, mask, durations, *speaker = out
        return _Prior(prior, mask, speaker[0] if speaker else None), durations


class Utterance(Iterator[NDArray[np.int16]]):
    """The sound of one `speak` call: an iterator of int16 pieces, mono, at the voice's sample rate.

    `total_samples` is how many there will be unless it is stopped, and `marks` says where the sound of each
    part of the text ends; both are known before the first piece. An utterance is iterated by one thread.
    """

    def __init__(
        self,
        samples: Iterator[Floats] | None,
        total_samples: int,
        marks: tuple[Mark, ...],
        timings: SpeechTimings,
        stop: Callable[[], bool],
    ) -> None:
        self.total_samples = total_samples
        self.marks = marks
        self.timings = timings
        self._samples = samples
        self._stop = stop

    def __next__(self) -> NDArray[np.int16]:
        if self._samples is None or self._stop():
            self._samples = None
            raise StopIteration
        piece = next(self._samples)
        return np.asarray(np.clip(piece * 32_767.0, -32_768.0, 32_767.0), dtype=np.int16)


@dataclass(frozen=True, slots=True)
class _Prior:
    """What the frontend gives: `z [1, channels, frames]`, `mask [1, 1, frames]`, the speaker's embedding."""

    z: Floats
    mask: Floats
    speaker: Floats | None

    @property
    def frames(self) -> int:
        return int(self.z.shape[2])


class _Decoder:
    """Flow and vocoder, run over stretches of frames with a margin that is thrown away."""

    def __init__(self, directory: Path, graphs: dict[str, Any], threads: int) -> None:
        self._flow = onnx_session(directory / "flow.onnx", threads=threads)
        self._vocoder = onnx_session(directory / "vocoder.onnx", threads=threads)
        self._names = {key: str(graphs[key]) for key in ("prior", "mask", "latent", "speaker")}
        self._hop = int(graphs["hop"])

    def samples(self, prior: _Prior) -> Iterator[Floats]:
        """Pieces of float32 samples; their lengths follow `SCHEDULE`."""
        total = prior.frames
        latent = np.zeros((1, prior.z.shape[1], 0), np.float32)
        begin = 0
        for size in _schedule():
            end = min(begin + size, total)
            while latent.shape[2] < min(end + VOCODER_MARGIN, total):
                latent = np.concatenate([latent, self._latent(prior, latent.shape[2])], axis=2)
            yield self._piece(latent, prior.speaker, begin, end)
            begin = end
            if begin >= total:
                return

    def _latent(self, prior: _Prior, begin: int) -> Floats:
        """The next block of latent frames from `begin` on."""
        end = min(begin + (_FLOW_BLOCK if begin else _FIRST_FLOW_BLOCK), prior.frames)
        low, high = max(0, begin - FLOW_MARGIN), min(prior.frames, end + FLOW_MARGIN)
        feed = {self._names["prior"]: prior.z[:, :, low:high], self._names["mask"]: prior.mask[:, :, low:high]}
        out = self._flow.run(None, self._with_speaker(feed, prior.speaker))[0]
        return np.asarray(out[:, :, begin - low : end - low], dtype=np.float32)

    def _piece(self, latent: Floats, speaker: Floats | None, begin: int, end: int) -> Floats:
        low, high = max(0, begin - VOCODER_MARGIN), min(latent.shape[2], end + VOCODER_MARGIN)
        feed = self._with_speaker({self._names["latent"]: latent[:, :, low:high]}, speaker)
        out = self._vocoder.run(None, feed)[0].reshape(-1)
        return np.asarray(out[(begin - low) * self._hop : (end - low) * self._hop], dtype=np.float32)

    def _with_speaker(self, feed: dict[str, Floats], speaker: Floats | None) -> dict[str, Floats]:
        return feed if speaker is None else {**feed, self._names["speaker"]: speaker}


@dataclass(frozen=True, slots=True)
class _Segment:
    """A stretch of text up to `end`, with the mark to speak behind it ("" for none)."""

    text: str
    end: int
    mark: str


def _segments(text: str) -> list[_Segment]:
    ends = [boundary.end for boundary in boundaries(text)]
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    begin, segments = 0, list[_Segment]()
    for end in ends:
        part = text[begin:end].strip()
        if part:
            last = part.rstrip(CLOSERS)[-1:]
            mark = _SPOKEN_MARKS.get(last, last) if last and last in MARKS else ""
            segments.append(_Segment(part, end, mark))
        begin = end
    return segments


def _schedule() -> Iterator[int]:
    yield from SCHEDULE
    while True:
        yield SCHEDULE[-1]
