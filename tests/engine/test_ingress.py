"""The way in: formats, verdicts, order and credit."""

import numpy as np
import pytest

from antiphon.engine.ingress import AppendRequest
from antiphon.engine.scoring import FRAME_BYTES, Scores, ScoringService, ScoringStream
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import AppendAudio, BargeIn, ClearInput, CommitInput, Heartbeat, UpdateSession
from antiphon.events.config import ConfigPatch, TurnDetection
from antiphon.events.events import AudioReceived, ErrorReported

from .worlds import World, opening, settle, world

pytestmark = pytest.mark.anyio

SPOKEN = b"\x00\x20" * 800
SILENT = bytes(1600)


class Slow(ScoringService):
    """A scoring service whose answers a test gives by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, object]] = []

    def new_stream(self) -> ScoringStream:
        return ScoringStream(None)

    def submit(self, stream: ScoringStream, pcm16: bytes, done: object) -> None:
        stream.cut(pcm16)
        self.waiting.append((pcm16, done))

    def answer(self, *values: int, failed: bool = False) -> None:
        done = self.waiting.pop(0)[1]
        assert callable(done)
        done(Scores(values, failed=failed))


async def received(here: World, session: str) -> list[AudioReceived]:
    return [event for event in await here.events(session) if isinstance(event, AudioReceived)]


async def codes(here: World, session: str) -> list[str]:
    return [event.code for event in await here.events(session) if isinstance(event, ErrorReported)]


async def order(here: World, session: str) -> list[str]:
    return [type(entry.command).__name__ for entry in (await here.recorded(session))[1:]]


@pytest.mark.parametrize(
    ("request_", "speech"),
    [
        (AppendRequest(data=SPOKEN), True),
        (AppendRequest(data=SILENT), False),
        (AppendRequest(data=SILENT, speech=True), True),
        (AppendRequest(data=SPOKEN, speech=False, probability=0.9), False),
        (AppendRequest(data=SPOKEN, probability=0.49), False),
        (AppendRequest(data=SILENT, probability=0.5), True),
        (AppendRequest(data=SPOKEN, silence_rms=0.9), False),
        (AppendRequest(data=SILENT, silence_rms=0.0), True),
    ],
)
async def test_one_verdict_for_a_chunk(request_: AppendRequest, speech: bool) -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        attachment.append(request_)
        await settle()
        assert [event.speech for event in await received(here, attachment.session)] == [speech]


async def test_every_format_becomes_the_models() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        floats = np.full(1_600, 0.25, "<f4").tobytes()
        for data, sound in (
            (SPOKEN, None),
            (floats, AudioFormat("pcm_f32le", 16_000)),
            (b"\x80" * 800, AudioFormat("g711_ulaw", 8_000)),
            (b"\xaa" * 800, AudioFormat("g711_alaw", 8_000)),
        ):
            attachment.append(AppendRequest(data=data, format=sound))
        attachment.send(CommitInput(attachment=1))
        await settle()
        events = await received(here, attachment.session)
        assert [event.ref.size for event in events[:2]] == [1_600, 3_200]
        # 100 ms of each law, at twice the rate, whatever the resampler held back in between
        assert abs(sum(event.ref.size for event in events[2:]) - 2 * 3_200) <= 8
        assert events[-1].ref.end == sum(event.ref.size for event in events)


async def test_a_commit_takes_all_the_sound_before_it() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(input_format=AudioFormat("pcm16", 24_000))))
        attachment.append(AppendRequest(data=b"\x00\x20" * 2_400))
        attachment.send(CommitInput(attachment=1))
        await settle()
        assert sum(event.ref.size for event in await received(here, attachment.session)) == 3_200
        assert (await order(here, attachment.session))[-1] != "AppendAudio"


async def test_what_cannot_be_decoded_is_told_once_and_nothing_is_kept() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        attachment.append(AppendRequest(data=b"\0" * 3, event_id="mine"))
        attachment.append(AppendRequest(data=b"\0\0", format=AudioFormat("wav", 16_000)))
        await settle()
        assert await received(here, attachment.session) == []
        errors = [event for event in await here.events(attachment.session) if isinstance(event, ErrorReported)]
        assert [(error.code, error.event_id) for error in errors] == [
            ("bad_audio", "mine"),
            ("unsupported_audio_format", None),
        ]


async def test_an_append_over_credit_is_refused_at_once_and_credit_comes_back() -> None:
    async with world(settings=HubSettings(input_bytes=4_000, shutdown_ms=200)) as here:
        attachment = await here.hub.open(opening())
        for _ in range(3):
            attachment.append(AppendRequest(data=SPOKEN))
        await settle()
        assert await codes(here, attachment.session) == ["input_backpressure"]
        attachment.send(ClearInput(attachment=1))
        await settle()
        attachment.append(AppendRequest(data=SPOKEN))
        await settle()
        assert len(await received(here, attachment.session)) == 3
        assert await codes(here, attachment.session) == ["input_backpressure"]


async def test_appends_wait_for_their_scores_later_commands_behind_them_and_cancels_pass() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        attachment.send(Heartbeat(attachment=1))
        await settle()
        assert await order(here, attachment.session) == []
        scoring.answer(7)
        await settle()
        assert await order(here, attachment.session) == ["AppendAudio"]
        scoring.answer(8)
        await settle()
        assert await order(here, attachment.session) == ["AppendAudio", "AppendAudio", "Heartbeat"]
        assert [event.scores for event in await received(here, attachment.session)] == [(7,), (8,)]


async def test_a_barge_in_passes_and_drops_the_sound_that_waits() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        attachment.send(BargeIn(attachment=1))
        await settle()
        assert await order(here, attachment.session) == ["BargeIn"]
        scoring.answer(900)
        await settle()
        assert await received(here, attachment.session) == []


async def test_a_counted_cancel_keeps_its_place() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES), client_seq=1))
        attachment.send(BargeIn(attachment=1, client_seq=2))
        await settle()
        assert await order(here, attachment.session) == []
        scoring.answer(1)
        await settle()
        assert await order(here, attachment.session) == ["AppendAudio", "BargeIn"]


async def test_sound_behind_an_update_is_understood_as_the_update_says() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        floats = np.full(160, 0.25, "<f4").tobytes()
        attachment.send(
            UpdateSession(attachment=1, patch=ConfigPatch(input_format=AudioFormat("pcm_f32le", 16_000)))
        )
        attachment.append(AppendRequest(data=floats))
        attachment.send(Heartbeat(attachment=1))
        await settle()
        assert await order(here, attachment.session) == ["UpdateSession", "AppendAudio", "Heartbeat"]
        assert [event.ref.size for event in await received(here, attachment.session)] == [320]


async def test_a_scorer_that_fails_is_told_and_the_sound_is_kept() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES), event_id="mine"))
        scoring.answer(failed=True)
        await settle()
        assert await codes(here, attachment.session) == ["server_vad_unavailable"]
        assert len(await received(here, attachment.session)) == 1


async def test_every_wire_byte_is_given_back_exactly_once() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        live = here.hub._live[attachment.session]  # pyright: ignore[reportPrivateUsage]
        assert live.ingress.reserved == 2 * FRAME_BYTES
        scoring.answer(0)
        scoring.answer(0)
        await settle()
        assert live.ingress.reserved == live.runner.session.input.reserved


def test_an_append_is_only_a_client_command_with_its_own_fields() -> None:
    # `_known` casts; it holds as long as every client command is in the union.
    from typing import get_args

    from antiphon.events import commands

    clients = {
        kind
        for kind in vars(commands).values()
        if isinstance(kind, type)
        and issubclass(kind, commands.ClientCommand)
        and kind is not commands.ClientCommand
    }
    assert clients <= set(get_args(commands.AnyCommand))
    assert AppendAudio in clients


async def test_a_counted_refusal_is_told_in_its_place_and_the_next_command_is_no_gap() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES), client_seq=1))
        attachment.append(AppendRequest(data=bytes(3), client_seq=2))
        attachment.send(Heartbeat(attachment=1, client_seq=3))
        await settle()
        assert await order(here, attachment.session) == []
        scoring.answer(1)
        await settle()
        assert await order(here, attachment.session) == ["AppendAudio", "ReportRefusal", "Heartbeat"]
        assert here.hub.session(attachment.session).lease.last_client_seq == 3
