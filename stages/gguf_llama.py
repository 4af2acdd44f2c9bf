"""Converts a Llama-architecture GGUF file to a CTranslate2 int8 model, in numpy alone.

Neither torch nor transformers is needed: `gguf` reads and dequantises, `ctranslate2.specs` writes. Rows are
quantised to int8 with one scale each. Two details decide whether the result speaks:

- GGUF stores the rows of the query and key projections so that the two values which RoPE rotates together are
  neighbours (2i, 2i+1). CTranslate2 rotates that layout when `rotary_interleave` is true, so no row is moved.
- Keys and values have fewer heads than queries (GQA); the three projections are fused row-wise.

The output directory holds `model.bin`, `config.json`, `vocabulary.json` (CTranslate2), `tokenizer.json`
(`tokenizers`) and `chat.json` (chat template, special tokens, context length). The same input and library
versions give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from antiphon.stages.foreign import TextTokenizer, load_module

_CONTROL = 3  # GGUF token type: a control token, never produced from plain text


class ConversionError(ValueError):
    """The GGUF file is not a Llama model of a kind that we convert; the message says which part is not."""


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of the network. `head_dim` is per head; RoPE turns all of it with base `rope_base`."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    context: int
    rope_base: float
    epsilon: float

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


class GgufFile:
    """A GGUF file: metadata by key, tensors by name as float32 `[rows, columns]` (or `[n]`)."""

    def __init__(self, path: Path) -> None:
        self._gguf = load_module("gguf")
        self._reader = self._gguf.GGUFReader(str(path))
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def get(self, key: str) -> Any:
        """The value of a metadata key: a number, a string or a list; None when the file lacks it."""
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def need(self, key: str) -> Any:
        """As `get`, but raises `ConversionError` when the file lacks the key."""
        value = self.get(key)
        if value is None:
            raise ConversionError(f"the GGUF file has no '{key}'")
        return value

    def has(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> NDArray[np.float32]:
        """The dequantised weights; raises `ConversionError` when the file lacks the tensor."""
        if name not in self._tensors:
            raise ConversionError(f"the GGUF file has no tensor '{name}'")
        tensor = self._tensors[name]
        values = self._gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        # A copy of our own: unquantised weights come as a read-only view of the file, and are scaled in place.
        return np.require(values, np.float32, ["C", "W", "O"])


def read_shape(source: GgufFile) -> LlamaShape:
    """The network's sizes; raises `ConversionError` for another architecture or a scaled RoPE."""
    if (architecture := source.need("general.architecture")) != "llama":
        raise ConversionError(f"only the llama architecture is converted, not '{architecture}'")
    if source.get("llama.rope.scaling.type") not in (None, "none"):
        raise ConversionError("a scaled RoPE is not converted")
    heads = int(source.need("llama.attention.head_count"))
    shape = LlamaShape(
        layers=int(source.need("llama.block_count")),
        width=int(source.need("llama.embedding_length")),
        hidden=int(source.need("llama.feed_forward_length")),
        heads=heads,
        kv_heads=int(source.get("llama.attention.head_count_kv") or heads),
        context=int(source.need("llama.context_length")),
        rope_base=float(source.get("llama.rope.freq_base") or 10_000.0),
        epsilon=float(source.need("llama.attention.layer_norm_rms_epsilon")),
    )
    if source.get("llama.rope.dimension_count") not in (None, shape.head_dim):
        raise ConversionError("RoPE over a part of the head is not converted")
    return shape


def convert(gguf_path: Path, output: Path, progress: Callable[[float], None] = lambda _share: None) -> None:
    """Write the CTranslate2 model of `gguf_path` into the existing, empty directory `output`.

    `progress` is called with the share done, 0 to 1. Takes a few seconds and about six times the file's size
    in memory for 135 M parameters. Raises `ConversionError` or `AssetMissing`.
    """
    source = GgufFile(gguf_path)
    shape = read_shape(source)
    tokens = [str(token) for token in source.need("tokenizer.ggml.tokens")]
    tokenizer = build_tokenizer(source)
    spec = _fill_spec(source, shape, progress)
    spec.register_vocabulary(tokens)
    special = {name: tokens[index] for name, index in _special_ids(source).items()}
    spec.config.bos_token = special["bos"]
    spec.config.eos_token = special["eos"]
    spec.config.unk_token = special["unk"]
    spec.config.layer_norm_epsilon = shape.epsilon
    spec.validate()
    spec.optimize(quantization="int8")
    spec.save(str(output))
    tokenizer.save(str(output / "tokenizer.json"), pretty=False)
    chat = {
        "template": source.get("tokenizer.chat_template"),
        "bos": special["bos"],
        "stops": sorted({special["eos"], special["unk"]}, key=lambda token: token != special["eos"]),
        "context": shape.context,
    }
    (output / "chat.json").write_text(json.dumps(chat, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    progress(1.0)


def _special_ids(source: GgufFile) -> dict[str, int]:
    eos = int(source.need("tokenizer.ggml.eos_token_id"))
    bos = source.get("tokenizer.ggml.bos_token_id")
    unknown = source.get("tokenizer.ggml.unknown_token_id")
    return {"eos": eos, "bos": eos if bos is None else int(bos), "unk": eos if unknown is None else int(unknown)}


def _fill_spec(source: GgufFile, shape: LlamaShape, progress: Callable[[float], None]) -> Any:
    specs = load_module("ctranslate2.specs")
    spec = specs.TransformerDecoderModelSpec.from_config(
        shape.layers,
        shape.heads,
        activation=specs.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,  # 0 means the whole head
        rotary_interleave=True,
        rotary_base=shape.rope_base,
        num_heads_kv=None if shape.kv_heads == shape.heads else shape.kv_heads,
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    embeddings = source.tensor("token_embd.weight")
    decoder.embeddings.weight = embeddings
    decoder.projection.weight = source.tensor("output.weight") if source.has("output.weight") else embeddings
    decoder.layer_norm.gamma = source.tensor("output_norm.weight")
    for index, layer in enumerate(decoder.layer):
        block = f"blk.{index}."
        layer.self_attention.layer_norm.gamma = source.tensor(block + "attn_norm.weight")
        layer.self_attention.linear[0].weight = np.concatenate(
            [source.tensor(f"{block}attn_{part}.weight") for part in "qkv"]
        )
        layer.self_attention.linear[1].weight = source.tensor(block + "attn_output.weight")
        layer.ffn.layer_norm.gamma = source.tensor(block + "ffn_norm.weight")
        layer.ffn.linear_0.weight = source.tensor(block + "ffn_gate.weight")
        layer.ffn.linear_0_noact.weight = source.tensor(block + "ffn_up.weight")
        layer.ffn.linear_1.weight = source.tensor(block + "ffn_down.weight")
        progress(0.9 * (index + 1) / shape.layers)
    return spec


def build_tokenizer(source: GgufFile) -> TextTokenizer:
    """The byte-level BPE tokeniser of the file's metadata; raises `ConversionError` for another kind.

    Digits are split one by one before the byte-level pattern, which is what the 'smollm' kind means.
    """
    kind = (source.need("tokenizer.ggml.model"), source.need("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ConversionError(f"a tokenizer of kind {kind} is not converted, only ('gpt2', 'smollm')")
    tokens = [str(token) for token in source.need("tokenizer.ggml.tokens")]
    types = [int(number) for number in source.need("tokenizer.ggml.token_type")]
    merges = [_pair(str(merge)) for merge in source.need("tokenizer.ggml.merges")]
    lib = load_module("tokenizers")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = lib.Tokenizer(lib.models.BPE(vocab=vocabulary, merges=merges))
    digits = lib.pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = lib.pre_tokenizers.Sequence(
        [digits, lib.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = lib.decoders.ByteLevel()
    control = [token for token, number in zip(tokens, types, strict=True) if number == _CONTROL]
    tokenizer.add_special_tokens([lib.AddedToken(token, special=True, normalized=False) for token in control])
    return cast("TextTokenizer", tokenizer)


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right
