"""The untyped libraries of the voice cascade, each behind the few typed members that we use.

None of them ships types, and all are optional: a program without voice imports this file without any of them.
Every `load_*` raises `AssetMissing` with the command that installs what is absent.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from antiphon.stages.asset_errors import HOW_TO_GET_VOICE, AssetMissing


class OnnxSession(Protocol):
    """What we use of `onnxruntime.InferenceSession`."""

    def run(self, names: Sequence[str] | None, feed: Mapping[str, NDArray[Any]], /) -> list[NDArray[Any]]: ...


class WhisperResult(Protocol):
    """What we use of `ctranslate2.models.WhisperGenerationResult`: one row of a batch."""

    sequences_ids: list[list[int]]
    scores: list[float]
    no_speech_prob: float


class WhisperModel(Protocol):
    """What we use of `ctranslate2.models.Whisper`."""

    is_multilingual: bool
    n_mels: int

    def generate(
        self,
        features: object,
        prompts: list[list[int]],
        *,
        beam_size: int,
        max_length: int,
        return_scores: bool,
        return_no_speech_prob: bool,
        no_repeat_ngram_size: int,
    ) -> list[WhisperResult]: ...


class TextEncoding(Protocol):
    """What we use of `tokenizers.Encoding`."""

    ids: list[int]
    tokens: list[str]


class TextTokenizer(Protocol):
    """What we use of `tokenizers.Tokenizer`.

    With `encode_special_tokens` true, text that looks like a control token is encoded as plain text.
    """

    encode_special_tokens: bool

    def encode(self, sequence: str, *, add_special_tokens: bool = True) -> TextEncoding: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def token_to_id(self, token: str) -> int | None: ...

    def save(self, path: str, *, pretty: bool) -> None: ...


class GenerationStep(Protocol):
    """What we use of `ctranslate2.GenerationStepResult`: one new token."""

    token_id: int


class TokenGenerator(Protocol):
    """What we use of `ctranslate2.Generator`."""

    def generate_tokens(
        self,
        prompt: list[str],
        *,
        max_length: int,
        sampling_topk: int,
        sampling_topp: float,
        sampling_temperature: float,
        repetition_penalty: float,
        end_token: list[int],
        static_prompt: list[str] | None,
        cache_static_prompt: bool,
        callback: Callable[[GenerationStep], bool],
    ) -> Generator[GenerationStep, None, None]: ...


def load_module(name: str, *, how_to_get: str = HOW_TO_GET_VOICE) -> ModuleType:
    """Import an optional library; raises `AssetMissing` when it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not name.startswith(error.name):
            raise  # the library is there and broken: hiding that would send the reader the wrong way
        raise AssetMissing(name, f"the Python package '{name}'", how_to_get) from error


def onnx_session(model: Path, *, threads: int = 1) -> OnnxSession:
    """An ONNX model on the CPU whose idle threads sleep.

    Two sessions whose pools spin take the cores from each other, which costs several times the work itself.

    Raises:
        ValueError: the file is no ONNX model.
    """
    ort = load_module("onnxruntime")
    known = load_module("onnxruntime.capi.onnxruntime_pybind11_state")  # its errors have no base of their own
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except (known.Fail, known.InvalidGraph, known.InvalidProtobuf, known.NoSuchFile, known.NotFound) as error:
        raise ValueError(f"{model} cannot be read as an ONNX model") from error
    return cast("OnnxSession", session)


def whisper_model(directory: Path, *, threads: int, compute_type: str) -> WhisperModel:
    """A CTranslate2 Whisper model; one worker, `threads` OpenMP threads."""
    ct2 = load_module("ctranslate2")
    model = ct2.models.Whisper(
        str(directory), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=threads
    )
    return cast("WhisperModel", model)


def token_generator(directory: Path, *, threads: int, compute_type: str, seed: int | None) -> TokenGenerator:
    """A CTranslate2 decoder-only language model; one worker, `threads` OpenMP threads.

    The worker takes the process's seed when it first samples and keeps its own stream of numbers from then
    on: a later `set_random_seed` does not reach it. So a seed belongs to a model, not to a call.
    """
    ct2 = load_module("ctranslate2")
    if seed is not None:
        ct2.set_random_seed(seed)
    model = ct2.Generator(
        str(directory), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=threads
    )
    return cast("TokenGenerator", model)


def load_tokenizer(path: Path) -> TextTokenizer:
    """The tokeniser of a `tokenizer.json`; raises `AssetMissing` when the file is not there."""
    if not path.is_file():
        raise AssetMissing(path.parent.name, f"the tokenizer file {path}", "a model directory that holds it")
    return cast("TextTokenizer", load_module("tokenizers").Tokenizer.from_file(str(path)))


def storage_view(array: NDArray[np.float32]) -> object:
    """A CTranslate2 view of a C-contiguous float32 array; it borrows the array's memory."""
    return load_module("ctranslate2").StorageView.from_array(array)
