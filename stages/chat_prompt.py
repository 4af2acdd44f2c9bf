"""Turns a conversation into tokens by the model's own chat template, within a budget.

What people say is never read as control tokens: the template is rendered with a place-holder for every
message, and the messages are encoded apart, with control tokens switched off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

from antiphon.stages.asset_errors import AssetMissing
from antiphon.stages.foreign import TextTokenizer, load_module, load_tokenizer

Role = Literal["system", "user", "assistant"]

_HOLDER = "\ue000{}\ue001"
_HOLDERS = re.compile("\ue000([0-9]+)\ue001")


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation, oldest first in a list of them."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens of a conversation: `system` is the same from turn to turn, `rest` follows it."""

    system: tuple[str, ...]
    rest: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.system) + len(self.rest)


class PromptTooLong(ValueError):
    """The system message alone leaves no room for the conversation."""


class ChatPrompter:
    """Makes prompts for the model in `directory` (`tokenizer.json` and `chat.json`).

    Instead of `chat.json` a `tokenizer_config.json` as model hubs hold it is read. Raises `AssetMissing` when
    neither is there or a library is absent.
    """

    def __init__(self, directory: Path) -> None:
        self.tokenizer = load_tokenizer(directory / "tokenizer.json")
        self._plain = load_tokenizer(directory / "tokenizer.json")
        self._plain.encode_special_tokens = True
        chat = _chat_format(directory)
        self.context = chat.context
        self.stop_ids = [
            number for token in chat.stops if (number := self.tokenizer.token_to_id(token)) is not None
        ]
        jinja = load_module("jinja2.sandbox")
        environment = jinja.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(chat.template)
        self._specials = {"bos_token": chat.bos, "eos_token": chat.stops[0]}
        self._content_tokens = lru_cache(maxsize=256)(_encoder(self._plain))

    def build(self, messages: Sequence[ChatMessage], *, room: int, history: int) -> Prompt:
        """A prompt of at most `room` tokens that asks for the assistant's next message.

        System messages at the start are kept whole. Of the others, at most about `history` tokens are kept:
        the oldest go first, a kept conversation never opens with the assistant, and the last message stays
        (cut at its beginning if it alone is too long). Raises `PromptTooLong`, `ValueError` without messages.
        """
        if not messages:
            raise ValueError("a prompt needs at least one message")
        begin = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
        fixed, talk = list(messages[:begin]), list(messages[begin:])
        head = self._encode(fixed, ask=False) if fixed else ()
        history = min(history, room - len(head))
        talk = self._newest(talk, history)
        while True:
            tokens = self._encode([*fixed, *talk], ask=True)
            excess = len(tokens) - len(head) - history
            if excess <= 0:
                break
            talk = self._shorten(talk, excess)
        # A template may fold the system message into a later one; then nothing is the same from turn to turn.
        if tokens[: len(head)] != head:
            return Prompt((), tokens)
        return Prompt(head, tokens[len(head) :])

    def _newest(self, talk: list[ChatMessage], history: int) -> list[ChatMessage]:
        """The newest messages whose words fit; a first, cheap cut that spares a long past its rendering."""
        used = 0
        for index in range(len(talk) - 1, -1, -1):
            used += len(self._content_tokens(talk[index].content))
            if used > history and index < len(talk) - 1:
                return _from_user(talk[index + 1 :])
        return talk

    def _shorten(self, talk: list[ChatMessage], excess: int) -> list[ChatMessage]:
        if len(talk) > 1:
            return _from_user(talk[1:])
        if not talk:
            raise PromptTooLong("the system message leaves no room for an answer")
        tokens = self._content_tokens(talk[0].content)
        if len(tokens) <= excess:
            raise PromptTooLong("the system message leaves no room for the conversation")
        kept = [self.tokenizer.token_to_id(token) for token in tokens[excess:]]
        text = self.tokenizer.decode([number for number in kept if number is not None])
        # A cut inside a character leaves a mark of it at the start, and may take a token more.
        text = text.lstrip("\ufffd")
        return [replace(talk[0], content=text if text != talk[0].content else text[1:])]

    def _encode(self, messages: Sequence[ChatMessage], *, ask: bool) -> tuple[str, ...]:
        shown = [{"role": m.role, "content": _HOLDER.format(i)} for i, m in enumerate(messages)]
        rendered = str(self._template.render(messages=shown, add_generation_prompt=ask, **self._specials))
        tokens: list[str] = []
        for index, part in enumerate(_HOLDERS.split(rendered)):
            if index % 2:
                tokens += self._content_tokens(messages[int(part)].content)
            elif part:
                tokens += self.tokenizer.encode(part, add_special_tokens=False).tokens
        return tuple(tokens)


@dataclass(frozen=True, slots=True)
class _ChatFormat:
    template: str
    bos: str
    stops: list[str]
    context: int


def _chat_format(directory: Path) -> _ChatFormat:
    ours, hub = directory / "chat.json", directory / "tokenizer_config.json"
    path = ours if ours.is_file() else hub
    if not path.is_file():
        raise AssetMissing(directory.name, f"the chat template ({ours} or {hub.name})", "a chat model's files")
    data = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    if path == ours:
        return _ChatFormat(data["template"], data["bos"], data["stops"], data["context"])
    if not isinstance(data.get("chat_template"), str):
        raise AssetMissing(directory.name, f"a chat template in {hub}", "a model tuned for conversation")
    eos = _text_of(data.get("eos_token")) or "</s>"
    bos = _text_of(data.get("bos_token")) or ""
    return _ChatFormat(data["chat_template"], bos, [eos], min(int(data.get("model_max_length", 2048)), 32_768))


def _text_of(token: Any) -> str | None:
    """A special token of a hub's configuration: a string, or an object that holds one."""
    return cast("str | None", token["content"] if isinstance(token, dict) else token)


def _encoder(plain: TextTokenizer) -> Callable[[str], tuple[str, ...]]:
    def encode(content: str) -> tuple[str, ...]:
        return tuple(plain.encode(content, add_special_tokens=False).tokens)

    return encode


def _from_user(talk: list[ChatMessage]) -> list[ChatMessage]:
    """Without the assistant's messages at the start, whose question is gone; never empty."""
    while len(talk) > 1 and talk[0].role == "assistant":
        talk = talk[1:]
    return talk


def _refuse(message: str) -> None:
    """What templates call `raise_exception`: this conversation is not one the model takes."""
    raise ValueError(message)
