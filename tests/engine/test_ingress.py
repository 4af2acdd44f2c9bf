"""The way in: formats, verdicts, order and credit."""

import numpy as np
import pytest
from msgspec.structs import replace

from antiphon.engine.attachment import REFUSALS_BURST
from antiphon.engine.inbox import CLIENT_INBOX
from antiphon.engine.ingress import AppendRequest, Ingress
from antiphon.engine.scoring import FRAME_BYTES, Scores, ScoringService, ScoringStream
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import (
    AppendAudio,
    BargeIn,
    CancelInput,
    CancelResponse,
    ClearInput,
    CloseSession,
    CommitInput,
    CreateResponse,
    Heartbeat,
    OverlapAction,
    UpdateSession,
)
from antiphon.events.config import ConfigPatch, Limits, TurnDetection
from antiphon.events.events import AudioReceived, ErrorReported
from antiphon.sessions.plugins import ECHO
from antiphon.stages.base import Append
from antiphon.stages.scripted import Cue, Hang, ScriptedStage, Take

from .worlds import TALK, World, opening, settle, world
from tests.rules import rule

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


@rule("E3", "Q4.15", "E4")
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


async def test_what_the_client_wants_of_a_chunk_is_decided_by_the_session() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        attachment.append(AppendRequest(data=SPOKEN, overlap="drop", force_listen=True, force_barge_in=True))
        await settle()
        (command,) = [
            entry.command
            for entry in await here.recorded(attachment.session)
            if isinstance(entry.command, AppendAudio)
        ]
        assert (command.overlap, command.force_listen, command.force_barge_in) == ("drop", True, True)


@rule("E1", "E2", "E19")
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


@rule("E2")
async def test_a_commit_takes_all_the_sound_before_it() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(input_format=AudioFormat("pcm16", 24_000))))
        attachment.append(AppendRequest(data=b"\x00\x20" * 2_400))
        attachment.send(CommitInput(attachment=1))
        await settle()
        assert sum(event.ref.size for event in await received(here, attachment.session)) == 3_200
        assert (await order(here, attachment.session))[-1] != "AppendAudio"


@rule("E1", "E2", "E5")
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


@rule("E12", "E13", "B24")
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


@rule("E24")
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


@rule("E38", "P58")
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


@rule("D6")
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


@rule("F10")
async def test_a_scorer_that_fails_is_told_and_the_sound_is_kept() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES), event_id="mine"))
        scoring.answer(failed=True)
        await settle()
        assert await codes(here, attachment.session) == ["server_vad_unavailable"]
        (event,) = await received(here, attachment.session)
        assert (event.scored, event.speech) == (False, False)


@rule("F10")
async def test_a_scorer_that_goes_on_to_fail_is_told_once_until_it_works_again() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        for failed in (True, True, False, True):
            attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
            scoring.answer(0, failed=failed)
            await settle()
        assert await codes(here, attachment.session) == ["server_vad_unavailable"] * 2
        assert [event.scored for event in await received(here, attachment.session)] == [False, False, True, False]


@rule("E13")
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


@rule("A22")
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
        assert here.hub.session(attachment.session).lease.client_seq == 3


def way_in(here: World, session: str) -> Ingress:
    return here.hub._live[session].ingress  # pyright: ignore[reportPrivateUsage]


async def test_a_cancel_stays_behind_the_commands_that_wait_for_scores() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        attachment.send(CreateResponse(attachment=1))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        attachment.send(CancelResponse(attachment=1))
        await settle()
        assert await order(here, attachment.session) == []
        scoring.answer(1)
        scoring.answer(2)
        await settle()
        kinds = [kind for kind in await order(here, attachment.session) if not kind.startswith("Stage")]
        assert kinds == ["AppendAudio", "CreateResponse", "CancelResponse", "AppendAudio"]


async def test_a_cancel_of_the_input_drops_the_sound_since_the_last_other_command() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        attachment.send(Heartbeat(attachment=1))
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        attachment.send(CancelInput(attachment=1))
        assert way_in(here, attachment.session).reserved == FRAME_BYTES
        scoring.answer(1)
        scoring.answer(2)
        await settle()
        assert await order(here, attachment.session) == ["AppendAudio", "Heartbeat", "CancelInput"]
        assert way_in(here, attachment.session).reserved == 0


async def test_behind_an_update_a_cancel_passes_only_sound_too() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
        attachment.append(AppendRequest(data=SPOKEN))
        attachment.send(Heartbeat(attachment=1))
        attachment.append(AppendRequest(data=SPOKEN))
        attachment.send(CancelInput(attachment=1))
        attachment.append(AppendRequest(data=SPOKEN))
        assert way_in(here, attachment.session).reserved == 2 * len(SPOKEN)
        await settle()
        assert await order(here, attachment.session) == [
            "UpdateSession",
            "AppendAudio",
            "Heartbeat",
            "CancelInput",
            "AppendAudio",
        ]
        assert way_in(here, attachment.session).reserved == len(SPOKEN)


async def test_a_cancel_right_behind_an_update_comes_right_behind_it() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
        attachment.append(AppendRequest(data=SPOKEN))
        attachment.send(CancelInput(attachment=1))
        await settle()
        assert await order(here, attachment.session) == ["UpdateSession", "CancelInput"]


async def test_what_waits_behind_an_update_or_for_scores_counts_as_waiting() -> None:
    scoring = Slow()
    async with world(scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        inside = way_in(here, attachment.session)
        attachment.append(AppendRequest(data=bytes(FRAME_BYTES)))
        for _ in range(CLIENT_INBOX // 2):
            attachment.send(Heartbeat(attachment=1))
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
        for _ in range(20 * CLIENT_INBOX):
            attachment.send(Heartbeat(attachment=1))
        assert inside._waiting == CLIENT_INBOX + REFUSALS_BURST  # pyright: ignore[reportPrivateUsage]
        scoring.answer(1)
        await settle(400)
        assert inside._waiting == 0  # pyright: ignore[reportPrivateUsage]
        assert attachment.current
        assert await codes(here, attachment.session) == ["input_backpressure"] * REFUSALS_BURST


async def test_an_update_that_is_refused_lets_go_of_what_came_behind_it() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(voice="nobody")))
        attachment.send(Heartbeat(attachment=1))
        await settle()
        assert await order(here, attachment.session) == ["UpdateSession", "Heartbeat"]


FAST = replace(ECHO, capabilities=replace(ECHO.capabilities, input_format=AudioFormat("pcm16", 24_000)))


@rule("F10")
async def test_voice_activity_that_cannot_be_told_at_the_models_rate_is_told_once() -> None:
    scoring = Slow()
    async with world(plugin=FAST, scorer=scoring) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        for _ in range(3):
            attachment.append(AppendRequest(data=SPOKEN))
        await settle()
        assert await codes(here, attachment.session) == ["server_vad_unavailable"]
        assert [event.scored for event in await received(here, attachment.session)] == [False] * 3
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=None)))
        attachment.append(AppendRequest(data=SPOKEN))
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=SPOKEN))
        await settle()
        assert await codes(here, attachment.session) == ["server_vad_unavailable"] * 2


@rule("E5", "E2")
@pytest.mark.parametrize(
    ("data", "sound"),
    [
        (SPOKEN + b"\x00", AudioFormat("pcm16", 16_000)),
        (SPOKEN[:1_598], AudioFormat("pcm_f32le", 16_000)),
        (b"\xff" * 1_600, AudioFormat("pcm_f32le", 16_000)),
    ],
)
async def test_sound_that_is_not_what_it_claims_to_be_is_refused_and_not_kept(
    data: bytes, sound: AudioFormat
) -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        attachment.append(AppendRequest(data=data, format=sound))
        await settle()
        assert await codes(here, attachment.session) == ["bad_audio"]
        assert await received(here, attachment.session) == []


@rule("E19")
async def test_the_rate_may_change_from_one_append_to_the_next() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        for rate in (16_000, 48_000, 8_000):
            attachment.append(AppendRequest(data=bytes(rate // 5), format=AudioFormat("pcm16", rate)))
        attachment.send(CommitInput(attachment=1))
        await settle()
        assert await codes(here, attachment.session) == []
        events = await received(here, attachment.session)
        assert abs(sum(event.ref.size for event in events) - 3 * 3_200) <= 8, "all of it, at the model's rate"


@rule("E11")
async def test_sound_whose_scores_come_when_the_session_is_closing_is_dropped() -> None:
    slow = Slow()
    async with world(scorer=slow) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(data=SPOKEN))
        await settle()
        attachment.send(CloseSession(control_id="close", attachment=1))
        await settle()
        if slow.waiting:
            slow.answer(990)
        await settle()
        assert await received(here, attachment.session) == []
        assert await codes(here, attachment.session) == []


PNG = b"\x89PNG\r\n\x1a\n" + bytes(50)
SEEING = replace(
    ECHO,
    capabilities=replace(ECHO.capabilities, chunk_period_ms=100, optional_input_modalities=("text", "video")),
)


@rule("E7", "E22", "E12")
async def test_pictures_reach_the_stage_with_the_unit_of_their_sound() -> None:
    async with world(ScriptedStage(default=(Hang(),)), plugin=SEEING) as here:
        attachment = await here.hub.open(opening(patch=TALK))
        pictures = (PNG, PNG + b"2")
        attachment.append(AppendRequest(data=SPOKEN, frames=pictures, frames_size=200))
        attachment.append(AppendRequest(data=SPOKEN))
        attachment.append(AppendRequest(data=SPOKEN, frames=(PNG + b"3",), frames_size=100))
        attachment.append(AppendRequest(data=SPOKEN))
        await settle()
        told = [message for message in here.scripted.messages if isinstance(message, Append)]
        assert [message.frames for message in told] == [pictures, (PNG + b"3",)]
        assert [message.data for message in told] == [SPOKEN * 2] * 2
        assert [message.seq for message in told] == [1, 2]
        (event, *_) = await received(here, attachment.session)
        assert await here.log.samples.read(attachment.session, event.frames[1]) == pictures[1]


@rule("E8")
async def test_pictures_without_sound_are_no_speech_and_pass_the_detector_by() -> None:
    slow = Slow()
    alone = replace(
        SEEING.capabilities, required_input_modalities=("video",), optional_input_modalities=("audio", "text")
    )
    async with world(plugin=replace(SEEING, capabilities=alone), scorer=slow) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        attachment.append(AppendRequest(frames=(PNG,), frames_size=80))
        await settle()
        assert slow.waiting == []
        (event,) = await received(here, attachment.session)
        assert (event.speech, event.ref.size, [ref.size for ref in event.frames]) == (False, 0, [len(PNG)])


@rule("E12")
async def test_pictures_count_against_the_credit_as_they_came() -> None:
    limit = Limits().input_bytes
    async with world(plugin=SEEING) as here:
        attachment = await here.hub.open(opening())
        attachment.append(AppendRequest(data=SPOKEN, frames=(PNG,), frames_size=limit - len(SPOKEN) + 1))
        await settle()
        assert await codes(here, attachment.session) == ["input_backpressure"]
        attachment.append(AppendRequest(data=SPOKEN, frames=(PNG,), frames_size=limit - len(SPOKEN)))
        await settle()
        assert len(await received(here, attachment.session)) == 1


@rule("L1", "E38")
async def test_what_comes_behind_an_update_that_waits_is_understood_when_it_holds() -> None:
    stage = ScriptedStage(default=(Take(), Cue("go"), Take(), Take(), Hang()))
    async with world(stage, plugin=SEEING) as here:
        attachment = await here.hub.open(opening(patch=TALK))
        attachment.append(AppendRequest(data=SPOKEN * 2))
        attachment.append(AppendRequest(data=SPOKEN * 2))
        await settle()
        patch = ConfigPatch(input_format=AudioFormat("pcm_f32le", 16_000))
        attachment.send(UpdateSession(attachment=1, patch=patch))
        attachment.append(AppendRequest(data=np.full(800, 0.25, "<f4").tobytes()))
        await settle()
        assert [event.ref.size for event in await received(here, attachment.session)] == [3_200, 3_200]
        stage.cue("go")
        await settle()
        assert [event.ref.size for event in await received(here, attachment.session)] == [3_200, 3_200, 1_600]


@rule("P58", "E38", "D6")
@pytest.mark.parametrize("numbered", [False, True])
async def test_an_update_that_waits_in_the_session_holds_up_no_cancel_heartbeat_or_close(numbered: bool) -> None:
    stage = ScriptedStage(default=(Take(99),))
    async with world(stage, plugin=SEEING) as here:
        attachment = await here.hub.open(opening(patch=TALK))
        numbers = iter(range(1, 9))

        def seq() -> int | None:
            return next(numbers) if numbered else None

        attachment.append(AppendRequest(data=SPOKEN * 2, client_seq=seq()))
        attachment.append(AppendRequest(data=SPOKEN * 2, client_seq=seq()))
        await settle()
        patch = ConfigPatch(input_format=AudioFormat("pcm_f32le", 16_000))
        attachment.send(UpdateSession(attachment=1, patch=patch, client_seq=seq()))
        attachment.append(AppendRequest(data=np.full(800, 0.25, "<f4").tobytes(), client_seq=seq()))
        attachment.send(CommitInput(attachment=1, client_seq=seq()))
        attachment.send(Heartbeat(attachment=1, client_seq=seq()))
        await settle()
        held = way_in(here, attachment.session)._runner.session.input.stream.held  # pyright: ignore[reportPrivateUsage]
        assert [type(waiting.command).__name__ for waiting in held] == [
            "UpdateSession",
            "AppendAudio",
            "CommitInput",
        ]
        assert [ref.size for ref in held[1].refs] == [1_600], "it was understood as the update says"
        attachment.send(BargeIn(attachment=1, client_seq=seq()))
        attachment.send(CloseSession(control_id="c1", attachment=1))
        await settle()
        assert (await order(here, attachment.session))[-7:-2] == [
            "UpdateSession",
            "AppendAudio",
            "CommitInput",
            "Heartbeat",
            "BargeIn",
        ]
        assert "CloseSession" in await order(here, attachment.session)
        assert await codes(here, attachment.session) == []


@rule("E3", "E23", "P58")
@pytest.mark.parametrize(("spoken", "asked"), [(False, None), (True, None), (True, "drop")])
async def test_what_the_resampler_held_is_of_one_kind_with_the_append_that_it_ends(
    spoken: bool, asked: OverlapAction | None
) -> None:
    async with world() as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(input_format=AudioFormat("pcm16", 24_000))))
        attachment.append(AppendRequest(data=b"\x00\x20" * 2_400, speech=spoken, overlap=asked, force_listen=True))
        attachment.send(CommitInput(attachment=1))
        await settle()
        sounds = [
            entry.command
            for entry in await here.recorded(attachment.session)
            if isinstance(entry.command, AppendAudio)
        ]
        assert len(sounds) == 2
        assert [(one.speech, one.overlap, one.force_listen) for one in sounds] == [(spoken, asked, True)] * 2
        assert await codes(here, attachment.session) == []


@rule("P58")
async def test_cancels_behind_sound_that_waits_for_its_scores_or_for_an_update_cost_no_more_than_a_few() -> None:
    scoring = Slow()
    async with world(scorer=scoring, settings=HubSettings(input_bytes=2**30, shutdown_ms=200)) as here:
        attachment = await here.hub.open(opening(patch=ConfigPatch(turn_detection=TurnDetection())))
        for _ in range(CLIENT_INBOX // 2):
            attachment.append(AppendRequest(data=bytes(2)))
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(instructions="new")))
        for _ in range(CLIENT_INBOX // 2 - 1):
            attachment.append(AppendRequest(data=bytes(2)))
        for _ in range(CLIENT_INBOX):
            attachment.send(CancelResponse(attachment=1))
        ingress = way_in(here, attachment.session)
        assert ingress.reserved == 2 * (CLIENT_INBOX - 1)
        attachment.send(CancelInput(attachment=1))
        assert ingress.reserved == CLIENT_INBOX
