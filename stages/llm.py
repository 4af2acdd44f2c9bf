"""A chat model on CTranslate2: a conversation in, text in small pieces out.

Measured for SmolLM2-135M int8 on two cores: first token 45-60 ms, then 20 ms each; a prompt costs about 1 ms
a token, so the history is kept short and the system message's state is cached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from antiphon.stages.chat_prompt import ChatMessage, ChatPrompter, Prompt
from antiphon.stages.foreign import GenerationStep, TextTokenizer, token_generator

FinishReason = Literal["stop", "length", "stopped"]

# CTranslate2 keeps the state of every cached prompt for ever (25 MB for 170 tokens of a 135 M model), so only
# the first few different system messages are cached; more are simply computed each time.
CACHED_PROMPTS = 4


class ChatModel:
    """Answers conversations with the CTranslate2 model in `directory`.

    `context` bounds prompt and answer together (None: 2,048 or the model's own limit, whichever is less);
    `history` bounds the tokens of the conversation without the system message. `seed` makes sampling
    repeatable for the same sequence of calls. Calls may come from any thread; one is computed at a time and
    the others wait inside CTranslate2. Raises `AssetMissing`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        threads: int = 2,
        compute_type: str = "int8",
        context: int | None = None,
        history: int = 512,
        seed: int | None = None,
    ) -> None:
        self._prompter = ChatPrompter(directory)
        self._generator = token_generator(directory, threads=threads, compute_type=compute_type, seed=seed)
        self.context = min(2_048 if context is None else context, self._prompter.context)
        self._history = history
        self._cached: set[tuple[str, ...]] = set()

    def stream(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 160,
        temperature: float = 0.0,
        top_k: int = 40,
        top_p: float = 0.9,
        repetition_penalty: float = 1.1,
        stop: Callable[[], bool] = lambda: False,
    ) -> ChatReply:
        """Begin to answer; the work is done while the result is iterated, in the caller's thread.

        Temperature 0 takes the likeliest token, which is repeatable. `stop` is asked at every token (about 20
        ms apart) from another thread; once true, iteration ends. So does `ChatReply.close`. Raises
        `PromptTooLong`, and `ValueError` for numbers out of range.
        """
        if not 0 < max_tokens < self.context:
            raise ValueError(f"max_tokens is 1 to {self.context - 1}")
        if temperature < 0 or top_k < 1 or not 0 < top_p <= 1:
            raise ValueError("temperature is at least 0, top_k at least 1, top_p over 0 and at most 1")
        prompt = self._prompter.build(messages, room=self.context - max_tokens, history=self._history)
        greedy = temperature == 0
        static = self._static(prompt)
        steps = self._generator.generate_tokens(
            list(prompt.rest if static else prompt.system + prompt.rest),
            max_length=max_tokens,
            sampling_topk=1 if greedy else top_k,
            sampling_topp=1.0 if greedy else top_p,
            sampling_temperature=1.0 if greedy else temperature,
            repetition_penalty=repetition_penalty,
            end_token=self._prompter.stop_ids,
            static_prompt=static,
            cache_static_prompt=static is not None,
            callback=lambda _step: stop(),
        )
        return ChatReply(steps, self._prompter, len(prompt), max_tokens, stop)

    def warm_up(self, system: str | None = None) -> None:
        """Answer one token, so that the first real answer does not pay for it; caches `system` if given."""
        messages = [] if system is None else [ChatMessage("system", system)]
        for _ in self.stream([*messages, ChatMessage("user", "Hi")], max_tokens=1):
            pass

    def _static(self, prompt: Prompt) -> list[str] | None:
        """The system part to be cached, or None when there is none or the cache has no place left."""
        if not prompt.system:
            return None
        if prompt.system not in self._cached:
            if len(self._cached) >= CACHED_PROMPTS:
                return None
            self._cached.add(prompt.system)
        return list(prompt.system)


class ChatReply(Iterator[str]):
    """One answer: an iterator of pieces of text, each whole in its characters, joined the answer.

    `prompt_tokens`, `completion_tokens` and `first_token_s` (seconds from the first `next`, None before it)
    may be read at any time, `finish` once iteration has ended: "stop" (the model ended its message), "length"
    (`max_tokens`), "stopped" (by the caller). Iterate and close it in one thread.
    """

    def __init__(
        self,
        steps: Generator[GenerationStep, None, None],
        prompter: ChatPrompter,
        prompt_tokens: int,
        max_tokens: int,
        stop: Callable[[], bool],
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = 0
        self.first_token_s: float | None = None
        self.finish: FinishReason | None = None
        self._text = TextPieces(prompter.tokenizer)
        self._max_tokens = max_tokens
        self._stop = stop
        self._pieces = self._run(steps, frozenset(prompter.stop_ids))

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """End the generation, if it has not, within a token; waits for it. May be called twice."""
        self._pieces.close()
        if self.finish is None:
            self.finish = "stopped"

    def _run(
        self, steps: Generator[GenerationStep, None, None], stops: frozenset[int]
    ) -> Generator[str, None, None]:
        started = time.perf_counter()
        ended = False
        with closing(steps):  # ends the generation within a token, however the loop is left
            for step in steps:
                if self.first_token_s is None:
                    self.first_token_s = time.perf_counter() - started
                self.completion_tokens += 1
                ended = step.token_id in stops
                if self._stop():
                    self.finish = "stopped"
                    return
                if not ended and (piece := self._text.push(step.token_id)):
                    yield piece
        if rest := self._text.flush():
            yield rest
        full = self.completion_tokens >= self._max_tokens and not ended
        self.finish = "length" if full else "stop"


class TextPieces:
    """Joins tokens to text that never ends inside a character."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        # Tokens of the last piece, since some tokenisers decode a token differently at the start of a text.
        self._before: list[int] = []
        self._new: list[int] = []

    def push(self, token_id: int) -> str:
        """The text that this token completes, "" while a character is unfinished."""
        self._new.append(token_id)
        piece = self._decoded()
        if not piece or piece.endswith("\ufffd"):
            return ""
        self._before, self._new = self._new, []
        return piece

    def flush(self) -> str:
        """What is left at the end: "" or an unfinished character as U+FFFD."""
        piece = self._decoded() if self._new else ""
        self._new = []
        return piece

    def _decoded(self) -> str:
        known = self._tokenizer.decode(self._before)
        return self._tokenizer.decode(self._before + self._new)[len(known) :]
