"""The matrix of what the models can do, and that every one keeps what all promise."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from antiphon.events.audio import SampleRef
from antiphon.events.config import Sampling, SessionConfig
from antiphon.events.items import Item, Message, TextPart
from antiphon.sessions.models.base import TurnModel
from antiphon.sessions.plugins import REGISTRY

from tests.rules import rule
from tests.sessions.models.configs import VOICE

MODELS = ("minicpm-o-4.5", "qwen3-omni", "nemotron-voicechat", "aura", "personaplex")

MATRIX: dict[str, tuple[object, ...]] = {
    "native": (True, False, True, False, True),
    "resident": (True, False, True, False, True),
    "concurrent": (False, False, False, True, False),
    "stages": (3, 3, 3, 4, 2),
    "period_ms": (1000, None, 80, None, 80),
    "input_rate": (16_000, 16_000, 16_000, 16_000, 24_000),
    "unit": (16_000, 0, 1_280, 0, 1_920),
    "output_rate": (24_000, 24_000, 22_050, 24_000, 24_000),
    "required": (("audio",), ("audio",), ("audio",), ("video",), ("audio",)),
    "optional": (("video",), (), (), ("audio",), ()),
    "barge_in": (True, True, False, True, False),
    "resume": (True, True, True, True, False),
    # The field says no for Qwen3-Omni, and also that it is answered by explicit commits (N41): they are taken.
    "client_commit": (True, True, True, True, False),
    "turn_signal": (True, True, False, True, False),
    "truncate": (True, True, False, False, False),
    "unaligned": (False, True, False, False, False),
    "text_turn": (False, True, False, False, False),
    "priming": (3, 0, 0, 0, 0),
    "images": (False, True, False, False, False),
    "tools": (0, 0, 5, 0, 0),
    "batches": (0, 0, 8, 0, 0),
    "recording": ("required", "refused", "unsupported", "optional", "unsupported"),
    # What their memories are made of (units of sound, positions in a frame-locked stream) is in no log.
    "rebuilds": (False, None, False, None, False),
    "sessions": (1, None, 1, None, 2),
}


PAGE = {
    "native": "decides about turns",
    "resident": "one request for the whole session",
    "concurrent": "next turn while the last one speaks",
    "stages": "stages",
    "period_ms": "unit (ms)",
    "unit": "samples of a unit",
    "input_rate": "input (Hz)",
    "output_rate": "output (Hz)",
    "required": "input needs",
    "optional": "input may have",
    "barge_in": "speech interrupts",
    "resume": "resume",
    "client_commit": "client commits",
    "turn_signal": "turn signals",
    "truncate": "truncation",
    "unaligned": "words only known as a whole",
    "text_turn": "turns of text",
    "images": "images as items",
    "tools": "tools",
    "recording": "reference audio",
    "rebuilds": "outlives its memory",
    "sessions": "sessions of one engine",
}
"""The rows of the page, by the names of the matrix."""


def cell(value: object) -> str:
    """Return a value as the page spells it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None else str(value)


def column(name: str) -> dict[str, object]:
    """Return what a model can do, by the names of the matrix."""
    plugin = REGISTRY[name]
    can = plugin.capabilities
    return {
        "native": can.implementation_level == "model_native_duplex",
        "resident": can.core_resumable_request,
        "concurrent": can.supports_concurrent_turn_requests,
        "stages": len(plugin.stages),
        "period_ms": can.chunk_period_ms,
        "input_rate": can.input_format.rate,
        "unit": plugin.unit,
        "output_rate": can.output_rate,
        "required": can.required_input_modalities,
        "optional": can.optional_input_modalities,
        "barge_in": can.supports_barge_in,
        "resume": can.supports_session_resume,
        "client_commit": can.supports_client_commit,
        "turn_signal": can.supports_external_turn_signal,
        "truncate": can.supports_audio_truncate,
        "unaligned": can.text_requires_complete_audio,
        "text_turn": can.supports_text_only_turn,
        "priming": plugin.priming_units,
        "images": can.supports_image_input,
        "tools": plugin.max_tools,
        "batches": plugin.tool_batches,
        "recording": plugin.ref_audio,
        "rebuilds": can.supports_reencode_context if can.core_resumable_request else None,
        "sessions": plugin.max_sessions,
    }


@pytest.mark.parametrize(("index", "name"), list(enumerate(MODELS)), ids=MODELS)
@rule("N3")
def test_the_matrix(index: int, name: str) -> None:
    assert column(name) == {row: values[index] for row, values in MATRIX.items()}


def test_the_page_shows_the_matrix(root: Path) -> None:
    page = (root / "docs" / "models.md").read_text(encoding="utf-8")
    shown = page.split("test_matrix.py -->")[1].split("<!-- end")[0].split("\n")
    rows = [[part.strip() for part in line.strip("| ").split("|")] for line in shown if line.startswith("| ")]
    assert rows[0] == list(MODELS)
    expected = [[words, *map(cell, MATRIX[row])] for row, words in PAGE.items()]
    for row in expected:
        if row[0] == "samples of a unit":
            row[1:] = ["–" if value == "0" else value for value in row[1:]]
    assert rows[2:] == expected


@pytest.mark.parametrize("name", REGISTRY)
@rule("N3")
def test_more_than_one_session_is_what_is_deployed(name: str) -> None:
    plugin = REGISTRY[name]
    assert not plugin.deployed(1).multi_session
    assert plugin.deployed(2).multi_session
    assert plugin.deployed(2) == plugin.deployed(99)


@pytest.mark.parametrize("name", REGISTRY)
@rule("N66", "N3")
def test_a_memory_is_rendered_again_exactly_by_those_that_say_so(name: str) -> None:
    plugin = REGISTRY[name]
    said = Message(id="i", role="user", content=(TextPart("Hello."),))
    able = plugin.capabilities.supports_reencode_context
    assert plugin.rebuild(()) == (() if able else None)
    assert plugin.rebuild([said]) == ((said,) if able else None)
    assert plugin.deployed(1).supports_reencode_context == able
    assert able <= plugin.capabilities.core_resumable_request, "who has no memory loses none"


class Unwilling(TurnModel, frozen=True, kw_only=True):
    """Says that its memory can be rendered again, and does not do so."""

    def rebuild(self, history: Sequence[Item]) -> tuple[Item, ...] | None:
        return None


@rule("N66")
def test_what_is_advertised_is_what_the_hook_gives() -> None:
    echo = REGISTRY["echo"].capabilities
    assert echo.supports_reencode_context
    unwilling = Unwilling(name="echo", version="1", capabilities=echo)
    assert not unwilling.deployed(1).supports_reencode_context


@pytest.mark.parametrize("name", REGISTRY)
@rule("N1")
def test_the_description_is_constant(name: str) -> None:
    plugin = REGISTRY[name]
    assert plugin.name
    assert plugin.private_keys >= {"request_id", "ref_audio_path"}
    assert plugin.continuation_samples == (plugin.unit or 16_000)
    assert (plugin.capabilities, plugin.stages) == (REGISTRY[name].capabilities, REGISTRY[name].stages)


CONFIGS = [
    SessionConfig(model=""),
    SessionConfig(model="m", temperature=1.5, max_output_tokens=7, extras={"top_k": "3", "seed": "9"}),
]


@pytest.mark.parametrize("config", CONFIGS, ids=["empty", "full"])
@pytest.mark.parametrize("name", REGISTRY)
@rule("N2")
def test_one_sampling_set_for_each_stage_always_the_same(name: str, config: SessionConfig) -> None:
    plugin = REGISTRY[name]
    before = msgspec.json.encode(plugin.defaults)
    sets = plugin.sampling(config)
    assert plugin.sampling(config) == sets
    assert len(sets) == len(plugin.stages) == len(plugin.defaults)
    assert all(type(chosen) is Sampling for chosen in sets)
    assert msgspec.json.encode(plugin.defaults) == before
    if not config.model:
        assert sets == plugin.defaults


@pytest.mark.parametrize("name", REGISTRY)
@rule("N4", "N6", "L8")
def test_repeating_what_holds_is_always_allowed(name: str) -> None:
    plugin = REGISTRY[name]
    voice = VOICE if plugin.ref_audio == "required" else None
    config = plugin.settled(SessionConfig(model="m", auto_response=True, ref_audio=voice))
    encoded = msgspec.json.encode(config)
    plugin.check(config)
    plugin.check_update(config, config, locked=True, started=True)
    assert plugin.settled(config) == config
    assert msgspec.json.encode(config) == encoded


@pytest.mark.parametrize("name", REGISTRY)
@rule("N16", "N17")
def test_a_gate_opens_and_stages_drain_only_where_turns_may_overlap(name: str) -> None:
    plugin = REGISTRY[name]
    gates = [stage for stage in range(len(plugin.stages)) if plugin.opens_gate(stage)]
    overlaps = plugin.capabilities.supports_concurrent_turn_requests
    assert (len(gates) == 1, bool(plugin.draining)) == (overlaps, overlaps)
    assert all(gates[0] < stage < len(plugin.stages) for stage in plugin.draining), "those behind the gate"


@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in ("aura", "minicpm-o-4.5")])
@rule("N10", "E22")
def test_without_rules_of_its_own_a_model_takes_every_picture_and_its_stage_reserves(name: str) -> None:
    one, two = SampleRef("img", 0, 1), SampleRef("img", 1, 1)
    plugin = REGISTRY[name]
    assert plugin.pictures([(one,), (), (two,)]) == (one, two)
    assert plugin.budget(SessionConfig(model="m"), samples=1, frames=2, first=True) == 0
