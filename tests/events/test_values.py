"""Formats, items, configurations, error classes and the numbers of a transaction."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import errors
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, Encoding, SampleRef
from antiphon.events.config import ConfigPatch, Modality, SessionConfig, merged
from antiphon.events.items import (
    AudioPart,
    FunctionCall,
    FunctionOutput,
    Message,
    TextPart,
    is_user,
    text_of,
)
from antiphon.events.log import Corrupt, Transaction, highest_number

from tests.rules import rule


@pytest.mark.parametrize(
    ("encoding", "width"), [("pcm16", 2), ("pcm_f32le", 4), ("g711_ulaw", 1), ("g711_alaw", 1), ("wav", 2)]
)
def test_a_format_says_how_long_bytes_last(encoding: Encoding, width: int) -> None:
    made = AudioFormat(encoding, 8_000)
    assert made.width == width
    assert made.samples(width * 10 + width - 1) == 10
    assert made.ms(width * 8_000) == 1_000
    assert made.bytes_for(1_000) == width * 8_000
    assert AudioFormat("pcm16", 11_025).bytes_for(1) == 22


def test_a_span_ends_behind_its_last_byte() -> None:
    assert SampleRef("in", 10, 5).end == 15


def test_the_words_of_an_item() -> None:
    spoken = Message(id="i", role="user", content=(TextPart("one"), AudioPart("two"), AudioPart(), TextPart("")))
    assert text_of(spoken) == "one two"
    assert text_of(FunctionCall(id="i", call_id="c", name="f", arguments="{}")) == "{}"
    assert text_of(FunctionOutput(id="i", call_id="c", output="3")) == "3"
    assert is_user(spoken)
    assert not is_user(Message(id="i", role="system"))
    assert not is_user(FunctionOutput(id="i", call_id="c", output="3"))


@rule("L7")
def test_l7_a_patch_changes_what_it_names() -> None:
    config = SessionConfig(model="m", instructions="x", echo={"a": "1"})
    assert merged(config, ConfigPatch()) is config
    changed = merged(config, ConfigPatch(max_output_tokens=None, instructions="", echo={"b": "2"}))
    assert (changed.instructions, changed.echo) == ("", {"a": "1", "b": "2"})
    assert config.echo == {"a": "1"}
    assert config.speaks
    assert not merged(config, ConfigPatch(output_modalities=("text",))).speaks


@rule("O3", "Q4.29")
@pytest.mark.parametrize(
    ("code", "kind", "again"),
    [
        ("engine_restarted", "server_error", False),
        ("input_backpressure", "rate_limit_error", True),
        ("storage_unavailable", "server_error", True),
        ("invalid_api_key", "authentication_error", False),
        ("bad_event", "invalid_request_error", False),
    ],
)
def test_o3_the_class_of_an_error(code: str, kind: str, again: bool) -> None:
    assert errors.error_type(code) == kind
    assert errors.retryable(code) == again


def test_the_highest_number_of_a_transaction() -> None:
    def of(*events: ev.AnyEvent) -> int:
        return highest_number(Transaction(seq=1, term=1, at=0, command=cmd.Tick(), events=events))

    assert of() == of(ev.AnswerDeferred()) == 0
    assert of(ev.ErrorReported(number=0, count=1, code="c", message="m")) == 0
    assert of(ev.InputCleared(number=7, count=1), ev.AnswerDeferred()) == 7
    started = Message(id="i", role="user")
    assert of(ev.ItemCreated(number=7, count=3, item=started, previous_item_id=None)) == 9


def test_damage_is_named() -> None:
    damage = Corrupt(7, "checksum")
    assert (damage.seq, damage.why, str(damage)) == (7, "checksum", "record 7 is damaged: checksum")


def test_the_part_of_a_response() -> None:
    def part(*modalities: Modality) -> str:
        return ev.ResponseHead(
            id="r",
            item_id="i",
            conversation_id=None,
            turn=0,
            epoch=0,
            output_modalities=modalities,
            output_format=AudioFormat("pcm16", 24_000),
            voice="v",
        ).part

    assert part("audio") == part("audio", "text") == "audio"
    assert part("text") == "text"
