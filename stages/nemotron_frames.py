"""The frames of Nemotron VoiceChat: what each is prompted with, where it stands, and when its speech is over."""

from collections.abc import Sequence
from typing import Literal

from antiphon.stages.nemotron_tokens import TokenIds

Beat = Literal["listen", "speak", "end"]
"""What a frame was: a listen beat, a piece of speech, or the last piece of it."""


class OutOfOrder(Exception):
    """A frame is not the next one of its request."""


class ContextFull(Exception):
    """There is no place left in the model's context."""


class Timeline:
    """The places of one request's frames: the prompt, then one token a frame; the number of a frame is its place.

    The prompt is the begin token, instructions, tools, and the end token. Each frame adds one padding token, which
    stands for what the model is to choose (N46).
    """

    def __init__(self, ids: TokenIds, instructions: Sequence[int], tools: Sequence[int], context: int) -> None:
        self._ids = ids
        self._prompt = [ids.begin, *instructions, *tools, ids.end]
        self._context = context
        self._last = 0

    def frame(self, seq: int) -> list[int]:
        """Return the tokens that frame `seq` (1, 2, …) adds; the first one brings the prompt along.

        Raises:
            OutOfOrder: it is not the next one; the timeline is as it was.
            ContextFull: `context_length_exceeded`: the model could not sample its token any more.
        """
        if seq != self._last + 1:
            raise OutOfOrder(f"frame {seq} is not the next one: that is {self._last + 1}")
        if len(self._prompt) + seq + 1 > self._context:
            raise ContextFull(f"frame {seq} behind a prompt of {len(self._prompt)} tokens has no place")
        self._last = seq
        padding = self._ids.padding
        return [*self._prompt, padding] if seq == 1 else [padding]


class Speech:
    """Tells speech from listening, frame by frame.

    The text runs ahead of the sound: speech is over when the end token was seen *and* as many frames of sound were
    made as there are frames of text (N47). To stop at the token would cut off the last second.
    """

    def __init__(self, ids: TokenIds) -> None:
        self._ids = ids
        self._text = self._sound = 0
        self._closed = False

    def frame(self, token: int, sounds: int) -> Beat:
        """Take the token of a frame, and how many frames of sound were made with it."""
        if token == self._ids.end and self._text:
            self._closed = True
        elif token not in (self._ids.padding, self._ids.end):
            self._text += 1
        if not self._text:
            return "listen"
        self._sound += sounds
        if self._closed and self._sound >= self._text:
            self._text = self._sound = 0
            self._closed = False
            return "end"
        return "speak"
