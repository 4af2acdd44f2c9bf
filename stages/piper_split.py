"""Cuts a Piper voice (one VITS graph in ONNX) into three graphs, so that sound can leave before it is all made.

- `frontend.onnx`: phoneme ids to the prior `z_p [1, channels, frames]`, its mask, and the frames that each id
  lasts. It sees the whole clause, which is what keeps its melody; it is a few percent of the work. All random
  numbers are drawn here, so pieces decoded later agree where they overlap.
- `flow.onnx`: the prior to the latent, a plain convolution net over frames.
- `vocoder.onnx`: the latent to samples, another one.

The last two have a finite view, hence a piece with enough frames around it decodes to exactly the samples of
the whole. The seam behind the prior is found by `streaming_vits`; the one between flow and vocoder is the
input of the convolution `dec.conv_pre`. The same voice and library versions give the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from antiphon.stages.foreign import load_module


class VoiceError(ValueError):
    """The ONNX file is not a Piper voice that can be cut; the message says what was not found."""


def split(model: Path, config: Path, output: Path) -> None:
    """Write the three graphs and `voice.json` into the existing, empty directory `output`.

    `voice.json` is Piper's own configuration with a member `graphs` that names inputs and outputs. Raises
    `VoiceError` for another kind of model and `AssetMissing` when `streaming-vits` or `onnx` is absent.
    """
    onnx = load_module("onnx")
    seams = load_module("streaming_vits.graph")
    graph = onnx.load(str(model))
    try:
        seam = seams.find_seam(graph)
        hop = int(seams.describe_decoder(graph)["hop"])
    except ValueError as error:
        raise VoiceError(str(error)) from error
    latent = _vocoder_input(graph)
    durations = _durations(graph)
    del graph.metadata_props[:]  # Piper writes keys twice, which onnx refuses to copy
    inputs = [value.name for value in graph.graph.input]
    speaker = [seam.g] if seam.g else []
    parts = {
        "frontend": (inputs, [seam.z_p, seam.mask, durations, *speaker]),
        "flow": ([seam.z_p, seam.mask, *speaker], [latent]),
        "vocoder": ([latent, *speaker], [graph.graph.output[0].name]),
    }
    extractor = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(graph, data_prop=True))
    for name, (reads, writes) in parts.items():
        (output / f"{name}.onnx").write_bytes(
            extractor.extract_model(reads, writes).SerializeToString(deterministic=True)
        )
    voice = json.loads(config.read_text(encoding="utf-8"))
    voice["graphs"] = {
        "hop": hop,
        "inputs": inputs,
        "prior": seam.z_p,
        "mask": seam.mask,
        "durations": durations,
        "latent": latent,
        "speaker": seam.g,
    }
    text = json.dumps(voice, indent=2, sort_keys=True, ensure_ascii=False)
    (output / "voice.json").write_text(text + "\n", encoding="utf-8")


def _vocoder_input(graph: Any) -> str:
    names = [node.input[0] for node in graph.graph.node if "dec.conv_pre.weight" in node.input]
    if len(names) != 1:
        raise VoiceError("the graph has no single convolution 'dec.conv_pre'")
    return str(names[0])


def _durations(graph: Any) -> str:
    names = [node.output[0] for node in graph.graph.node if node.op_type == "Ceil"]
    if len(names) != 1:
        raise VoiceError("the graph has no single Ceil, so the durations of its phonemes are not known")
    return str(names[0])
