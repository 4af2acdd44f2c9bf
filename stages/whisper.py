"""A Whisper recogniser on CTranslate2: speech in, text out, without faster-whisper or torch.

Whisper was trained on 30 s windows, and its cost is the encoder's context, not the speech. The context is
therefore cut to the audio, down to 10 s: at 8 s about one short utterance in fifty is said twice over, at 10
none in a hundred was, and below that Whisper repeats itself often. Longer audio is cut at its quietest place
into windows of at most 30 s, each recognised by itself.

The class is thread-friendly: one recognition at a time per worker, callers queue inside CTranslate2.
"""

from __future__ import annotations

import math
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.stages.foreign import TextTokenizer, load_tokenizer, storage_view, whisper_model
from antiphon.stages.whisper_features import SAMPLE_RATE, log_mel

# Seconds of context the encoder may be given; each is one shape that CTranslate2 prepares kernels for.
CONTEXTS = (8, 10, 12, 16, 20, 24, 30)
MAX_WINDOW_S = 30
# A window is closed in its last third, so that no window gets short enough to starve the decoder.
_EARLIEST_CUT_S = 20
_QUIET_FRAME_S = 0.2
# Fast English is about 5 words or 7 tokens a second; what is longer than this is the decoder looping.
_TOKENS_PER_S = 9
_EXTRA_TOKENS = 10
_MAX_TOKENS = 220
# Below this level (dBFS over the loudest 0.2 s) nobody speaks, and Whisper would invent a "Thank you".
_SILENCE_DBFS = -60.0
_NO_SPEECH = 0.6
_UNSURE_LOGPROB = -1.0
# Text that deflates better than this repeats itself.
_MAX_COMPRESSION = 2.4


@dataclass(frozen=True, slots=True)
class RecognitionTimings:
    """Seconds spent on the features and in the model, summed over windows."""

    features_s: float
    model_s: float


@dataclass(frozen=True, slots=True)
class Recognition:
    """What was said.

    `text` is trimmed and empty when nothing was. `no_speech_prob` (0 to 1) is the largest over the windows;
    `avg_logprob` is the mean natural log-probability of a token, 0.0 when the model did not run.
    """

    text: str
    no_speech_prob: float
    avg_logprob: float
    timings: RecognitionTimings


@dataclass(frozen=True, slots=True)
class _Heard:
    text: str
    no_speech_prob: float
    avg_logprob: float
    tokens: int


class WhisperRecogniser:
    """Recognises speech with the Whisper model in `directory` (CTranslate2 files and `tokenizer.json`).

    `language` is an ISO 639-1 code and matters to multilingual models only. `compute_type` is CTranslate2's;
    int8 halves the time of float32 at no loss that shows in short utterances. `min_context_s` is the least
    context; 8 saves about a tenth of the time and risks a repetition. Raises `AssetMissing` when a
    library is absent, `ValueError` for a language the model does not know.
    """

    def __init__(
        self,
        directory: Path,
        *,
        threads: int = 2,
        compute_type: str = "int8",
        language: str = "en",
        min_context_s: int = 10,
    ) -> None:
        if min_context_s > MAX_WINDOW_S:
            raise ValueError(f"the context is at most {MAX_WINDOW_S} s")
        self._model = whisper_model(directory, threads=threads, compute_type=compute_type)
        self._tokens = load_tokenizer(directory / "tokenizer.json")
        self._contexts = [size for size in CONTEXTS if size >= min_context_s]
        self._prompt = _prompt(self._tokens, language if self._model.is_multilingual else None)

    def recognise(self, audio: bytes | NDArray[np.float32]) -> Recognition:
        """The words of mono 16 kHz `audio`: little-endian PCM16 bytes, or float32 samples in -1..1.

        Blocks for the whole recognition. Raises `ValueError` for an odd number of bytes.
        """
        samples = _as_float(audio)
        if _loudest_dbfs(samples) < _SILENCE_DBFS:
            return Recognition("", 1.0, 0.0, RecognitionTimings(0.0, 0.0))
        features_s = model_s = 0.0
        heard: list[_Heard] = []
        for window in split_at_silence(samples):
            started = time.perf_counter()
            features = log_mel(self._in_context(window), self._model.n_mels)[None]
            ready = time.perf_counter()
            heard.append(self._decode(features, len(window) / SAMPLE_RATE))
            features_s += ready - started
            model_s += time.perf_counter() - ready
        tokens = max(1, sum(part.tokens for part in heard))
        return Recognition(
            text=" ".join(part.text for part in heard if part.text),
            no_speech_prob=max(part.no_speech_prob for part in heard),
            avg_logprob=sum(part.avg_logprob * part.tokens for part in heard) / tokens,
            timings=RecognitionTimings(features_s, model_s),
        )

    def warm_up(self) -> None:
        """Run once on noise, so that the first real utterance does not pay for allocations."""
        noise = np.random.default_rng(0).normal(0.0, 0.01, SAMPLE_RATE).astype(np.float32)
        self.recognise(noise)

    def _in_context(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The samples, with silence behind them up to the least context that holds them."""
        context = next(size for size in self._contexts if len(samples) <= size * SAMPLE_RATE)
        return np.pad(samples, (0, context * SAMPLE_RATE - len(samples)))

    def _decode(self, features: NDArray[np.float32], seconds: float) -> _Heard:
        heard = self._generate(features, seconds, no_repeat_ngram=0)
        if _compression(heard.text) > _MAX_COMPRESSION:
            heard = self._generate(features, seconds, no_repeat_ngram=3)
        unsure = heard.no_speech_prob > _NO_SPEECH and heard.avg_logprob < _UNSURE_LOGPROB
        if unsure or not any(character.isalnum() for character in heard.text):
            return _Heard("", heard.no_speech_prob, heard.avg_logprob, heard.tokens)
        return heard

    def _generate(self, features: NDArray[np.float32], seconds: float, *, no_repeat_ngram: int) -> _Heard:
        limit = min(_MAX_TOKENS, _EXTRA_TOKENS + math.ceil(_TOKENS_PER_S * seconds))
        result = self._model.generate(
            storage_view(features),
            [self._prompt],
            beam_size=1,
            max_length=len(self._prompt) + limit,
            return_scores=True,
            return_no_speech_prob=True,
            no_repeat_ngram_size=no_repeat_ngram,
        )[0]
        ids = result.sequences_ids[0]
        text = self._tokens.decode(ids, skip_special_tokens=True).strip()
        return _Heard(text, result.no_speech_prob, result.scores[0], len(ids))


def split_at_silence(samples: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Views on `samples` of at most 30 s each, cut in the middle of the quietest 0.2 s of their last third."""
    longest, earliest = MAX_WINDOW_S * SAMPLE_RATE, _EARLIEST_CUT_S * SAMPLE_RATE
    windows: list[NDArray[np.float32]] = []
    while len(samples) > longest:
        cut = earliest + _quietest(samples[earliest:longest])
        windows.append(samples[:cut])
        samples = samples[cut:]
    windows.append(samples)
    return windows


def _quietest(samples: NDArray[np.float32]) -> int:
    """The middle of the quietest 0.2 s, as an index."""
    size = int(_QUIET_FRAME_S * SAMPLE_RATE)
    energy = np.square(_frames(samples, size)).sum(axis=1)
    return int(energy.argmin()) * size + size // 2


def _frames(samples: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    count = len(samples) // size
    return samples[: count * size].reshape(count, size)


def _loudest_dbfs(samples: NDArray[np.float32]) -> float:
    size = int(_QUIET_FRAME_S * SAMPLE_RATE)
    if len(samples) < size:
        samples = np.pad(samples, (0, size - len(samples)))
    power = float(np.square(_frames(samples, size)).mean(axis=1).max())
    return 10.0 * math.log10(max(power, 1e-12))


def _as_float(audio: bytes | NDArray[np.float32]) -> NDArray[np.float32]:
    if not isinstance(audio, bytes):
        return audio
    if len(audio) % 2:
        raise ValueError("PCM16 audio has an even number of bytes")
    return np.frombuffer(audio, dtype="<i2").astype(np.float32) / np.float32(32_768.0)


def _compression(text: str) -> float:
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0


def _prompt(tokens: TextTokenizer, language: str | None) -> list[int]:
    names = ["<|startoftranscript|>"]
    if language is not None:
        names += [f"<|{language}|>", "<|transcribe|>"]
    names.append("<|notimestamps|>")
    ids = [tokens.token_to_id(name) for name in names]
    if None in ids:
        raise ValueError(f"the Whisper model knows no {names[ids.index(None)]}")
    return [number for number in ids if number is not None]
