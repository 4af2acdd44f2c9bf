"""The echo stage: turns, resident requests, formats, and the grammar of its reports."""

import numpy as np
import pytest
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import (
    StageAccepted,
    StageFinished,
    StageProduced,
    StageReleased,
    StageTranscribed,
)
from antiphon.events.effects import TurnInput
from antiphon.events.items import AudioPart, Item, Message, TextPart
from antiphon.stages.base import Abort, AnyReport, Confirm, Release, Submit
from antiphon.stages.echo import PIECE_MS, EchoStage

from tests.rules import rule
from tests.stages.units import unit

RATE = 16_000


class Said:
    def __init__(self) -> None:
        self.stage = EchoStage()
        self.reports: list[tuple[AnyReport, bytes]] = []
        self.stage.start(lambda report, sound: self.reports.append((report, sound)))

    @property
    def kinds(self) -> list[type[AnyReport]]:
        return [type(report) for report, _ in self.reports]

    @property
    def sound(self) -> bytes:
        return b"".join(sound for _, sound in self.reports)

    @property
    def text(self) -> str:
        return "".join(report.text for report, _ in self.reports if isinstance(report, StageProduced))


def payload(*items: Item, response_id: str | None = "r", rate: int = RATE, **fields: object) -> TurnInput:
    values: dict[str, object] = {
        "session": "s",
        "response_id": response_id,
        "items": items,
        "instructions": "",
        "speaks": True,
        "format": AudioFormat("pcm16", rate),
        "voice": "default",
    }
    return TurnInput(**(values | fields))  # type: ignore[arg-type]


def written(text: str) -> Message:
    return Message(id="i", role="user", content=(TextPart(text),))


def spoken(size: int, transcript: str | None = None) -> Message:
    part = AudioPart(transcript, SampleRef("in", 0, size), RATE)
    return Message(id="i", role="user", content=(part,))


PCM = (np.sin(np.arange(RATE) * 0.1) * 10_000).astype("<i2").tobytes()
SOUND = ((SampleRef("in", 0, len(PCM)), PCM),)


def test_written_words_come_back_in_writing() -> None:
    said = Said()
    said.stage.handle(Submit(request="q", payload=payload(written("hi"))))
    assert said.kinds == [StageAccepted, StageProduced, StageFinished]
    assert said.text == 'You said: "hi"'


def test_spoken_words_come_back_in_80_ms_pieces() -> None:
    said = Said()
    said.stage.handle(Submit(request="q", payload=payload(spoken(len(PCM))), sound=SOUND))
    assert said.kinds[:2] == [StageAccepted, StageTranscribed]
    assert said.kinds[-1] is StageFinished
    assert said.sound == PCM
    assert {len(sound) for _, sound in said.reports if sound} <= {RATE * PIECE_MS // 1000 * 2, len(PCM) % 2_560}
    assert all(report.size == len(sound) for report, sound in said.reports if isinstance(report, StageProduced))
    assert said.text == 'You said: "[1000 ms of speech]"'


def test_words_that_are_known_are_not_transcribed_again() -> None:
    said = Said()
    said.stage.handle(Submit(request="q", payload=payload(spoken(len(PCM), "hello")), sound=SOUND))
    assert StageTranscribed not in said.kinds
    assert said.text == 'You said: "hello"'


def test_a_text_session_gets_no_sound() -> None:
    said = Said()
    said.stage.handle(Submit(request="q", payload=payload(spoken(len(PCM)), speaks=False), sound=SOUND))
    assert said.sound == b""
    assert said.text


@rule("G12")
@pytest.mark.parametrize(
    ("sound", "size"),
    [
        (AudioFormat("pcm16", 24_000), 48_000),
        (AudioFormat("g711_ulaw", 8_000), 8_000),
        (AudioFormat("g711_alaw", 8_000), 8_000),
        (AudioFormat("pcm_f32le", 16_000), 64_000),
    ],
)
def test_it_speaks_in_the_format_that_is_asked_for(sound: AudioFormat, size: int) -> None:
    said = Said()
    said.stage.handle(Submit(request="q", payload=payload(spoken(len(PCM)), format=sound), sound=SOUND))
    assert len(said.sound) == size


def test_a_resident_request_gives_back_every_piece_at_once() -> None:
    said = Said()
    said.stage.handle(Submit(request="q", payload=payload(response_id=None)))
    for seq, piece in enumerate((b"\1\2", b"\3\4"), 1):
        said.stage.handle(unit("q", seq, piece))
        assert said.reports[-1][1] == piece
    said.stage.handle(Abort(requests=("q",)))
    said.stage.handle(unit("q", 3, b"\5\6"))
    assert said.kinds == [StageAccepted, StageProduced, StageProduced, StageReleased]


def test_a_resident_request_answers_the_sound_of_its_unit_or_of_an_item() -> None:
    said = Said()
    said.stage.handle(Submit(request="q", payload=payload(response_id=None)))
    heard = Message(id="u", role="user", content=(AudioPart(None, None, RATE, 1_000),))
    said.stage.handle(replace(unit("q", 1, PCM), turn=payload(heard)))
    assert said.sound == PCM
    said.reports.clear()
    written_sound = payload(written("hi"), spoken(len(PCM)))
    said.stage.handle(replace(unit("q", 2), kind="conversation", turn=written_sound, sound=SOUND))
    assert said.sound == PCM
    said.reports.clear()
    said.stage.handle(replace(unit("q", 3), kind="conversation", turn=payload(heard)))
    assert [report.text for report, _ in said.reports if isinstance(report, StageProduced)] == ["You said nothing."]


def test_a_held_request_speaks_when_it_is_confirmed_and_not_after_it_is_dropped() -> None:
    said = Said()
    said.stage.handle(Submit(request="a", payload=payload(written("hi")), hold=True))
    said.stage.handle(Submit(request="b", payload=payload(written("no")), hold=True))
    assert said.reports == []
    said.stage.handle(Confirm(request="a"))
    said.stage.handle(Abort(requests=("b",)))
    said.stage.handle(Confirm(request="b"))
    assert said.kinds == [StageAccepted, StageProduced, StageFinished, StageReleased]


@rule("K5", "K19")
def test_submitting_twice_is_submitting_once_and_unknown_requests_are_released_too() -> None:
    said = Said()
    submit = Submit(request="q", payload=payload(written("hi")))
    said.stage.handle(submit)
    said.stage.handle(submit)
    said.stage.handle(Release(requests=("q", "unknown")))
    assert said.kinds[3:] == [StageReleased, StageReleased]


def test_after_closing_it_is_silent() -> None:
    said = Said()
    said.stage.close()
    said.stage.handle(Submit(request="q", payload=payload(written("hi"))))
    assert said.reports == []
