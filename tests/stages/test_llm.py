"""The chat model: real answers, stops, counts, and text that is never cut inside a character."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from antiphon.stages import llm
from antiphon.stages.chat_prompt import ChatMessage
from antiphon.stages.foreign import TextTokenizer, load_tokenizer
from antiphon.stages.llm import CACHED_PROMPTS, ChatModel, TextPieces

from .models import model
from tests.rules import rule

pytestmark = pytest.mark.models

SYSTEM = ChatMessage("system", "You are a helpful AI assistant. Answer in one or two short spoken sentences.")
CAPITAL = ChatMessage("user", "What is the capital of France?")
STORY = ChatMessage("user", "Tell me a long story about a dragon.")


@pytest.fixture(scope="module")
def chat() -> ChatModel:
    return ChatModel(model("llm"))


def test_it_knows_the_capital_of_france(chat: ChatModel) -> None:
    reply = chat.stream([SYSTEM, CAPITAL])
    assert reply.first_token_s is None
    pieces = list(reply)
    assert "Paris" in "".join(pieces)
    assert len(pieces) > 3
    assert reply.finish == "stop"
    assert 30 < reply.prompt_tokens < 50
    # One token for each piece, and the one that ends the message.
    assert reply.completion_tokens == len(pieces) + 1
    assert reply.first_token_s is not None
    assert reply.first_token_s > 0


def test_temperature_zero_is_repeatable(chat: ChatModel) -> None:
    first, second = ("".join(chat.stream([SYSTEM, STORY], max_tokens=12)) for _ in range(2))
    assert first == second != ""


def test_a_seeded_model_samples_the_same_again() -> None:
    def sample(seed: int) -> list[str]:
        fresh = ChatModel(model("llm"), seed=seed)
        return ["".join(fresh.stream([STORY], max_tokens=8, temperature=1.0)) for _ in range(2)]

    once, again, otherwise = sample(1), sample(1), sample(2)
    assert once == again
    assert once[0] != once[1]
    assert once != otherwise


def test_the_length_is_bounded(chat: ChatModel) -> None:
    reply = chat.stream([SYSTEM, STORY], max_tokens=5)
    assert "".join(reply)
    assert (reply.finish, reply.completion_tokens) == ("length", 5)


def test_stop_ends_it_within_a_token(chat: ChatModel) -> None:
    stopped = threading.Event()
    reply = chat.stream([SYSTEM, STORY], max_tokens=100, stop=stopped.is_set)
    seen = [next(reply), next(reply)]
    stopped.set()
    seen += list(reply)
    assert reply.finish == "stopped"
    # Tokens that were under way when the flag went up; far from the hundred that were allowed.
    assert reply.completion_tokens <= 6
    assert len(seen) == 2


def test_close_ends_it_and_the_model_is_free(chat: ChatModel) -> None:
    reply = chat.stream([SYSTEM, STORY], max_tokens=100)
    next(reply)
    reply.close()
    reply.close()
    assert reply.finish == "stopped"
    assert list(reply) == []
    assert "Paris" in "".join(chat.stream([SYSTEM, CAPITAL]))


def test_a_reply_never_begun_can_be_closed(chat: ChatModel) -> None:
    reply = chat.stream([CAPITAL])
    reply.close()
    assert (reply.finish, reply.completion_tokens) == ("stopped", 0)


@pytest.mark.parametrize(
    "numbers",
    [
        {"max_tokens": 0},
        {"max_tokens": 100_000},
        {"temperature": -1.0},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ],
)
def test_numbers_out_of_range_are_refused(chat: ChatModel, numbers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(numbers))):
        chat.stream([CAPITAL], **numbers)


# --- with a generator that only records --------------------------------------------------------------------


@dataclass
class Step:
    token_id: int


class RecordingGenerator:
    """Stands in for CTranslate2's generator: keeps its arguments and yields the end of the message."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def generate_tokens(self, prompt: list[str], **options: Any) -> Generator[Step, None, None]:
        self.calls.append({"prompt": prompt, **options})
        yield Step(options["end_token"][0])


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> tuple[ChatModel, RecordingGenerator]:
    generator = RecordingGenerator()

    def pretend(directory: Path, **_options: Any) -> RecordingGenerator:
        return generator

    monkeypatch.setattr(llm, "token_generator", pretend)
    return ChatModel(model("llm")), generator


def test_only_a_few_system_messages_are_cached(recorded: tuple[ChatModel, RecordingGenerator]) -> None:
    chat, generator = recorded
    systems = [ChatMessage("system", f"You are number {i}.") for i in range(CACHED_PROMPTS + 2)]
    for system in [*systems, *systems]:
        assert list(chat.stream([system, CAPITAL])) == []
    cached = [call["static_prompt"] is not None for call in generator.calls]
    assert cached == [*[True] * CACHED_PROMPTS, False, False] * 2
    whole = {len(call["prompt"]) + len(call["static_prompt"] or ()) for call in generator.calls}
    assert len(whole) == 1
    assert all(call["cache_static_prompt"] == (call["static_prompt"] is not None) for call in generator.calls)


def test_zero_temperature_asks_for_the_likeliest(recorded: tuple[ChatModel, RecordingGenerator]) -> None:
    chat, generator = recorded
    list(chat.stream([CAPITAL], top_k=7))
    list(chat.stream([CAPITAL], temperature=0.5, top_k=7, top_p=0.8))
    first, second = generator.calls
    assert (first["sampling_topk"], first["sampling_topp"], first["sampling_temperature"]) == (1, 1.0, 1.0)
    assert (second["sampling_topk"], second["sampling_topp"], second["sampling_temperature"]) == (7, 0.8, 0.5)
    assert first["static_prompt"] is None


# --- text --------------------------------------------------------------------------------------------------

_TOKENIZER: list[TextTokenizer] = []


def tokenizer() -> TextTokenizer:
    if not _TOKENIZER:
        _TOKENIZER.append(load_tokenizer(model("llm") / "tokenizer.json"))
    return _TOKENIZER[0]


@rule("N24")
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=40))
def test_pieces_are_whole_characters_and_joined_the_text(text: str) -> None:
    pieces = TextPieces(tokenizer())
    ids = tokenizer().encode(text, add_special_tokens=False).ids
    assume(tokenizer().decode(ids) == text)  # the vocabulary lacks the bytes of some unassigned characters
    got = [pieces.push(number) for number in ids]
    assert not [piece for piece in got if "\ufffd" in piece]
    assert "".join(got) + pieces.flush() == text


@rule("N24")
def test_an_emoji_waits_until_it_is_whole() -> None:
    pieces = TextPieces(tokenizer())
    ids = tokenizer().encode("Hi 🐉!").ids
    assert len(ids) > 3
    assert [piece for number in ids if (piece := pieces.push(number))] == ["Hi", " 🐉", "!"]
    pieces.push(ids[1])
    assert "\ufffd" in pieces.flush()
    assert pieces.flush() == ""
