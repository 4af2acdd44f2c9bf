"""The words of an utterance that is still open, through the real recogniser: they say whether it is finished."""

from __future__ import annotations

import numpy as np
import pytest

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import StageFinished, StageTranscribed
from antiphon.events.effects import TurnInput
from antiphon.events.events import Sentence
from antiphon.events.items import AudioPart, Message
from antiphon.sessions.semantics import judge
from antiphon.stages.base import AnyReport, Submit
from antiphon.stages.preview import Preview
from antiphon.stages.whisper import WhisperRecogniser

from .models import model, spoken

PAUSE = np.zeros(3_600, np.float32)
"""As much silence as there is when a stage is asked."""


@pytest.fixture(scope="module")
def recogniser() -> WhisperRecogniser:
    return WhisperRecogniser(model("asr"))


def question(said: str) -> Submit:
    samples = np.concatenate([spoken(said), PAUSE])
    sound = (samples * 32_767).astype("<i2").tobytes()
    ref = SampleRef("in", 0, len(sound))
    part = AudioPart(None, ref, 16_000, len(samples) // 16)
    payload = TurnInput(
        session="s",
        response_id=None,
        items=(Message(id="item_open", role="user", content=(part,)),),
        instructions="",
        speaks=False,
        format=AudioFormat("pcm16", 24_000),
        voice="default",
        purpose="transcribe",
    )
    return Submit(request="s.e0.preview1", payload=payload, sound=((ref, sound),))


@pytest.mark.models
@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("What is the capital of France?", "complete"),
        ("Turn on the light.", "complete"),
        ("I would like to", "unfinished"),
        ("My name is Paul and", "unfinished"),
        ("Well, I was thinking, um", "unfinished"),
        ("I want to book a flight from", "unfinished"),
    ],
)
def test_what_is_said_so_far_is_heard_and_judged(
    said: str, sentence: Sentence, recogniser: WhisperRecogniser
) -> None:
    reports: list[AnyReport] = []
    Preview(question(said), recogniser, lambda report, _: reports.append(report)).run()
    heard, finished = reports
    assert isinstance(heard, StageTranscribed)
    assert isinstance(finished, StageFinished)
    assert judge(heard.text).sentence == sentence, heard.text
