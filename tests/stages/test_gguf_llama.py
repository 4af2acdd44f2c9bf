"""The GGUF conversion against an independent Llama in numpy, on a tiny random model and on the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.stages import asset_manifest
from antiphon.stages.assets import locate, packaged_file
from antiphon.stages.gguf_llama import ConversionError, GgufFile, LlamaShape, build_tokenizer, convert, read_shape

from .models import model

ct2 = pytest.importorskip("ctranslate2", reason="the voice extra is not installed")
gguf = pytest.importorskip("gguf", reason="the voice extra is not installed")

Floats = NDArray[np.float32]
TINY = LlamaShape(layers=2, width=32, hidden=48, heads=4, kv_heads=2, context=64, rope_base=10_000.0, epsilon=1e-5)
# The byte alphabet of byte-level BPE for plain ASCII, some merges, and the control tokens first.
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LETTERS = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2"]
TOKENS = CONTROL + LETTERS + [merge.replace(" ", "") for merge in MERGES]


class NumpyLlama:
    """The network by its formula: RMS norm, rotary pairs (2i, 2i+1), grouped heads, SwiGLU, tied embeddings."""

    def __init__(self, source: GgufFile, *, int8: bool) -> None:
        self.shape = read_shape(source)
        names = [
            "attn_norm",
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_output",
            "ffn_norm",
            "ffn_gate",
            "ffn_up",
            "ffn_down",
        ]
        names = [f"blk.{i}.{name}" for i in range(self.shape.layers) for name in names]
        self.weights = {
            name: rounded(source.tensor(name + ".weight"), int8) for name in [*names, "token_embd", "output_norm"]
        }

    def logits(self, ids: list[int]) -> Floats:
        """`[len(ids), vocabulary]`."""
        return forward(self.shape, self.weights, ids)


def rounded(matrix: Floats, int8: bool) -> Floats:
    """With int8, a matrix as it is after rounding with one scale for each row."""
    if not int8 or matrix.ndim == 1:
        return matrix
    scale = 127.0 / np.abs(matrix).max(axis=1, keepdims=True)
    return np.asarray(np.rint(matrix * scale) / scale, np.float32)


def forward(shape: LlamaShape, weights: dict[str, Floats], ids: list[int]) -> Floats:
    def norm(x: Floats, name: str) -> Floats:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.epsilon) * weights[name]

    def rotate(x: Floats) -> Floats:
        positions = np.arange(x.shape[1])[:, None]
        angles = positions * shape.rope_base ** (-np.arange(0, shape.head_dim, 2) / shape.head_dim)
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape).astype(np.float32)

    def heads(x: Floats, count: int) -> Floats:
        return x.reshape(len(ids), count, shape.head_dim).transpose(1, 0, 2)

    embedding = weights["token_embd"]
    x = embedding[ids]
    hidden_future = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for index in range(shape.layers):
        block = f"blk.{index}."
        h = norm(x, block + "attn_norm")
        q = rotate(heads(h @ weights[block + "attn_q"].T, shape.heads))
        k = rotate(heads(h @ weights[block + "attn_k"].T, shape.kv_heads))
        v = heads(h @ weights[block + "attn_v"].T, shape.kv_heads)
        k, v = (np.repeat(part, shape.heads // shape.kv_heads, axis=0) for part in (k, v))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(shape.head_dim) + hidden_future
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        mixed = (share @ v).transpose(1, 0, 2).reshape(len(ids), shape.width)
        x = x + mixed @ weights[block + "attn_output"].T
        h = norm(x, block + "ffn_norm")
        gate = h @ weights[block + "ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ weights[block + "ffn_up"].T)) @ weights[block + "ffn_down"].T
    return np.asarray(norm(x, "output_norm") @ embedding.T, np.float32)


def converted_logits(folder: Path, ids: list[int]) -> Floats:
    generator = ct2.Generator(str(folder), compute_type="float32")
    return np.array(generator.forward_batch([ids]), np.float32)[0]


def write_tiny(path: Path, **changes: Any) -> Path:
    """A random Llama of `TINY`'s shape; `changes` replaces metadata by key (with "_" for ".")."""
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(str(path), changes.pop("architecture", "llama"))
    writer.add_block_count(TINY.layers)
    writer.add_context_length(TINY.context)
    writer.add_embedding_length(TINY.width)
    writer.add_feed_forward_length(TINY.hidden)
    writer.add_head_count(TINY.heads)
    writer.add_head_count_kv(TINY.kv_heads)
    writer.add_rope_freq_base(TINY.rope_base)
    writer.add_layer_norm_rms_eps(TINY.epsilon)
    writer.add_rope_dimension_count(changes.pop("rope_dimensions", TINY.head_dim))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(changes.pop("pre", "smollm"))
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{{ messages }}")
    kv = TINY.kv_heads * TINY.head_dim
    shapes = {"token_embd": (len(TOKENS), TINY.width), "output_norm": (TINY.width,)}
    for index in range(TINY.layers):
        block = f"blk.{index}."
        shapes |= {block + name: (TINY.width,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {block + name: (TINY.width, TINY.width) for name in ("attn_q", "attn_output")}
        shapes |= {block + name: (kv, TINY.width) for name in ("attn_k", "attn_v")}
        shapes |= {block + name: (TINY.hidden, TINY.width) for name in ("ffn_gate", "ffn_up")}
        shapes[block + "ffn_down"] = (TINY.width, TINY.hidden)
    for name, shape in shapes.items():
        spread, middle = (0.1, 1.0) if len(shape) == 1 else (0.4, 0.0)
        writer.add_tensor(name + ".weight", rng.normal(middle, spread, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf")


def converted(source: Path, name: str = "out") -> Path:
    folder = source.parent / name
    folder.mkdir()
    convert(source, folder)
    return folder


def test_a_tiny_model_gives_the_logits_of_the_formula(tiny: Path) -> None:
    ids = [1, 40, 41, 99, 7, 60, 60, 2, 33, 100, 18, 5]
    expected = NumpyLlama(GgufFile(tiny), int8=True).logits(ids)
    np.testing.assert_allclose(converted_logits(converted(tiny), ids), expected, atol=2e-4)
    # Were the rotary pairs or the grouped heads wrong, it would be off by far more than rounding to int8.
    assert np.abs(expected - NumpyLlama(GgufFile(tiny), int8=False).logits(ids)).max() < 1.0
    assert expected.std() > 1.0


def test_the_same_file_gives_the_same_bytes(tiny: Path) -> None:
    first, second = converted(tiny, "first"), converted(tiny, "second")
    names = sorted(path.name for path in first.iterdir())
    assert names == ["chat.json", "config.json", "model.bin", "tokenizer.json", "vocabulary.json"]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    chat = json.loads((first / "chat.json").read_text())
    assert chat == {
        "template": "{{ messages }}",
        "bos": "<|im_start|>",
        "stops": ["<|im_end|>", "<|endoftext|>"],
        "context": 64,
    }


def test_progress_rises_to_one(tiny: Path, tmp_path: Path) -> None:
    shares: list[float] = []
    (tmp_path / "out").mkdir()
    convert(tiny, tmp_path / "out", shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_tokenizer_merges_splits_digits_and_knows_control_tokens(tiny: Path) -> None:
    tokenizer = build_tokenizer(GgufFile(tiny))
    text = "<|im_start|>hello w12\n"
    encoding = tokenizer.encode(text)
    # "12" has a merge, but digits are split before merging.
    assert encoding.tokens == ["<|im_start|>", "hello", "Ġw", "1", "2", "Ċ"]
    assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
    assert tokenizer.decode(encoding.ids) == "hello w12\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gemma"}, "llama architecture"),
        ({"rope_dimensions": 4}, "part of the head"),
        ({"pre": "qwen2"}, "qwen2"),
    ],
)
def test_another_kind_of_file_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    source = write_tiny(tmp_path / "odd.gguf", **changes)
    (tmp_path / "out").mkdir()
    with pytest.raises(ConversionError, match=message):
        convert(source, tmp_path / "out")


class Real(NamedTuple):
    """The real model's file, and its formula as it is stored: half a gigabyte, and seconds to read."""

    source: GgufFile
    as_stored: NumpyLlama


@pytest.fixture(scope="module")
def smollm2() -> Real:
    model("llm")  # skips where it is absent
    asset = next(asset for asset in asset_manifest.ASSETS if asset.name == "smollm2")
    source = GgufFile(packaged_file(asset, asset.files[0]))
    return Real(source, NumpyLlama(source, int8=True))


@pytest.mark.models
@pytest.mark.slow
def test_the_real_model_gives_the_logits_of_the_formula(smollm2: Real) -> None:
    source, as_stored = smollm2
    folder = locate("smollm2")
    tokenizer = build_tokenizer(source)
    exactly = NumpyLlama(source, int8=False)
    for text in ("The capital of France is Paris. The capital of Germany is", "One, two, three, four, five,"):
        ids = tokenizer.encode(text).ids
        expected = as_stored.logits(ids)
        found = converted_logits(folder, ids)
        np.testing.assert_allclose(found, expected, atol=0.02)
        exact = exactly.logits(ids)
        assert (found.argmax(-1) == exact.argmax(-1)).mean() > 0.85
        assert np.corrcoef(found[-1], exact[-1])[0, 1] > 0.995


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "goes_on"), [("The capital of France is", " Paris"), ("One, two, three, four,", " five")]
)
def test_the_real_model_goes_on_as_the_formula_does(smollm2: Real, text: str, goes_on: str) -> None:
    source, formula = smollm2
    tokenizer = build_tokenizer(source)
    ids = tokenizer.encode(text).ids
    by_formula = list(ids)
    for _ in range(4):
        by_formula.append(int(formula.logits(by_formula)[-1].argmax()))
    generator = ct2.Generator(str(locate("smollm2")), compute_type="float32")
    tokens = tokenizer.encode(text).tokens
    result = generator.generate_batch([tokens], max_length=4, include_prompt_in_result=False, end_token=[])[0]
    assert result.sequences_ids[0] == by_formula[len(ids) :]
    assert tokenizer.decode(result.sequences_ids[0]).startswith(goes_on)
