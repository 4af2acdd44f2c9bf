"""What was seen in the field with other servers, over a real socket: each docstring is the symptom."""

import base64
import math
from struct import pack
from typing import Any

import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.stages.base import AnyMessage, Report, Submit
from antiphon.stages.echo import EchoStage
from antiphon.stages.scripted import Cue, Finish, Late, Say, ScriptedStage

from .held import HeldStage
from .serving import Serving, Wire, becomes, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

DUPLEX = "?duplex=1&model=m"
RATE = 24_000


def tone(ms: int, level: int = 12_000) -> bytes:
    """Return a 440 Hz tone at 24 kHz."""
    samples = RATE * ms // 1000
    values = (int(level * math.sin(2 * math.pi * 440 * index / RATE)) for index in range(samples))
    return b"".join(pack("<h", value) for value in values)


async def append(wire: Wire, sound: bytes) -> None:
    """Send sound in pieces of 100 ms."""
    for start in range(0, len(sound), RATE // 5):
        await wire.send(
            "input_audio_buffer.append", audio=base64.b64encode(sound[start : start + RATE // 5]).decode()
        )


async def say(wire: Wire, text: str = "Hello?", **fields: Any) -> None:
    """Say something in writing."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await wire.send("conversation.item.create", item=item, **fields)


async def answered(wire: Wire) -> dict[str, Any]:
    """Ask in writing; return the response when it is done."""
    await say(wire)
    await wire.send("response.create")
    done = await wire.until("response.done")
    response: dict[str, Any] = done["response"]
    return response


async def durable(served: Serving, wire: Wire, ms: int) -> None:
    """Wait until so much of the sound of answers is recorded."""
    session = wire.seen[0]["session"]["id"]
    size = AudioFormat("pcm16", RATE).bytes_for(ms)
    await becomes(lambda: (found := served.hub.session(session)) is not None and found.output.position >= size)


@rule("I15")
async def test_a_truncation_beyond_the_sound() -> None:
    """A truncation longer than the audio: an error is shown, and the assistant never speaks again."""
    script = (Say("one two", 200), Finish())
    async with serving(stage=ScriptedStage(default=script)) as served, Wire.to(served.url) as wire:
        await wire.next()
        item_id = (await answered(wire))["output"][0]["id"]
        await wire.send(
            "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=500, event_id="t"
        )
        refused = (await wire.until("error"))["error"]
        assert (refused["event_id"], refused["param"]) == ("t", "audio_end_ms")
        assert "200ms is already shorter than 500ms" in refused["message"]
        again = await answered(wire)
        assert again["status"] == "completed"
        assert again["output"][0]["content"][0]["transcript"] == "one two"
        sounds = [event for event in wire.seen if event["type"] == "response.output_audio.delta"]
        assert [event["response_id"] == again["id"] for event in sounds] == [False, True]


@rule("I16")
async def test_a_truncation_to_nothing_before_the_first_sound() -> None:
    """The user cuts in before the first delta, the client truncates to 0 ms: the item is stuck, or talks on."""
    script = (Say("one "), Cue("go"), Say("two", 300), Finish())
    stage = ScriptedStage(default=script)
    async with serving(stage=stage) as served, Wire.to(served.url) as wire:
        await wire.next()
        await say(wire)
        await wire.send("response.create")
        item_id = (await wire.until("response.output_item.added"))["item"]["id"]
        await wire.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=0)
        assert (await wire.until("conversation.item.truncated"))["audio_end_ms"] == 0
        stage.cue("go")
        done = (await wire.until("response.done"))["response"]
        assert done["status"] == "completed"
        assert done["output"][0]["content"][0]["transcript"] == ""
        await wire.send("conversation.item.retrieve", item_id=item_id)
        assert (await wire.until("conversation.item.retrieved"))["item"]["content"][0]["transcript"] == ""
        assert (await answered(wire))["output"][0]["content"][0]["transcript"] == "one two"


@rule("I17", "I3")
@pytest.mark.parametrize(("played_ms", "words"), [(1_200, "one two six ten"), (0, "")])
async def test_the_item_of_an_interrupted_answer_is_what_was_heard(played_ms: int, words: str) -> None:
    """Interrupted after 1.2 of 3 seconds, the model goes on as if it had said everything, or repeats all of it."""
    clock = VirtualClock()
    script = (Say("one two six ten now and for you all yes", 3_000), Cue("never"))
    async with serving(stage=ScriptedStage(default=script), clock=clock) as served, Wire.to(served.url) as wire:
        await wire.next()
        await say(wire)
        await wire.send("response.create")
        await wire.until("response.output_audio.delta")
        clock.advance(played_ms * 1000)
        await wire.send("response.cancel")
        item = (await wire.until("response.done"))["response"]["output"][0]
        assert item["status"] == "incomplete"
        assert item["content"][0]["transcript"] == words
        await wire.send("conversation.item.retrieve", item_id=item["id"])
        shown = (await wire.until("conversation.item.retrieved"))["item"]
        assert (shown["status"], shown["content"][0]["transcript"]) == ("incomplete", words)


@rule("G20", "P16")
@pytest.mark.parametrize("query", ["", DUPLEX])
async def test_cancel_then_create_at_once(query: str) -> None:
    """`response.cancel` and `response.create` in one breath: "already has an active response", or two answers."""
    stage = HeldStage()
    async with serving(stage=stage) as served, Wire.to(served.url + query) as wire:
        await wire.next()
        await say(wire)
        await wire.send("response.create")
        first = (await wire.until("response.created"))["response"]["id"]
        await wire.send("response.cancel")
        await say(wire, "Differently, please.")
        await wire.send("response.create")
        second = (await wire.until("response.created"))["response"]["id"]
        await becomes(lambda: len(stage.running) == 1)
        stage.finish()
        done = await wire.until("response.done")
        assert done["response"]["id"] == second
        ends = [
            (event["response"]["id"], event["response"]["status"])
            for event in wire.seen
            if event["type"] == "response.done"
        ]
        assert ends == [(first, "cancelled"), (second, "completed")]
        assert "error" not in wire.kinds()


@rule("G6", "G2")
async def test_the_detector_and_the_client_both_ask_for_an_answer() -> None:
    """Server VAD commits and answers while the client sends `response.create`: two answers speak at once."""
    stage = HeldStage()
    async with serving(stage=stage) as served, Wire.to(served.url) as wire:
        await wire.next()
        await append(wire, tone(600) + bytes(RATE * 2))
        await wire.send("response.create", event_id="mine")
        refused = (await wire.until("error"))["error"]
        assert (refused["code"], refused["event_id"]) == ("conversation_already_has_active_response", "mine")
        assert wire.kinds().count("response.created") == 1
        assert len(stage.running) == 1
        stage.finish()
        assert (await wire.until("response.done"))["response"]["status"] == "completed"


@rule("F5")
async def test_a_short_noise_during_an_answer() -> None:
    """A hum or a rustle of 200 ms: the assistant stops in the middle of a sentence and nobody asked anything."""
    stage = HeldStage()
    async with serving(stage=stage) as served, Wire.to(served.url) as wire:
        await wire.next()
        await say(wire)
        await wire.send("response.create")
        await wire.until("response.output_audio.delta")
        await append(wire, tone(200, level=60) + bytes(RATE * 2))
        await wire.send("session.heartbeat")
        await wire.until("session.heartbeat_ack")
        stage.finish()
        assert (await wire.until("response.done"))["response"]["status"] == "completed"
        assert not [kind for kind in wire.kinds() if kind.startswith("input_audio_buffer")]


@rule("P52", "D24")
async def test_queued_commands_of_a_dead_connection() -> None:
    """The socket dies with commands under way: they are lost, or carried out twice after the reconnect."""
    async with serving() as served:
        async with Wire.to(served.url + DUPLEX) as first:
            created = await first.next()
            for seq in range(1, 6):
                await say(first, str(seq), client_seq=seq, event_id=f"e{seq}")
            await first.until("conversation.item.done")
            first.socket.transport.abort()
        async with Wire.to(served.url + "?duplex=1") as second:
            await second.send(
                "session.resume",
                session_id=created["session"]["id"],
                resume_token=created["resume_token"],
                last_received_server_event_seq=first.numbers()[-1],
            )
            applied = (await second.until("session.resumed"))["last_client_seq"]
            assert applied >= 1
            for seq in range(1, 9):  # everything again, and three that are new
                await say(second, str(seq), client_seq=seq, event_id=f"e{seq}")
            await say(second, "ten", client_seq=10, event_id="e10")
            refused = (await second.until("error"))["error"]
            assert (refused["code"], refused["event_id"]) == ("client_seq_gap", "e10")
        seen = first.seen + second.seen
    texts = [event["item"]["content"][0]["text"] for event in seen if event["type"] == "conversation.item.done"]
    assert texts == [str(seq) for seq in range(1, 9)]


async def test_the_negotiated_format_survives_a_resume() -> None:
    """After a reconnect the server takes G.711 for 16-bit samples, and hears noise of half the length."""
    async with serving() as served:
        async with Wire.to(served.url + DUPLEX) as first:
            created = await first.next()
            session = created["session"]["id"]
            await first.send("session.update", session={"input_audio_format": "g711_ulaw", "modalities": ["text"]})
            await first.until("session.updated")
            first.socket.transport.abort()
        async with Wire.to(served.url + "?duplex=1") as second:
            await second.send(
                "session.resume",
                session_id=session,
                resume_token=created["resume_token"],
                last_received_server_event_seq=first.numbers()[-1],
            )
            resumed = await second.until("session.resumed")
            assert resumed["session"]["input_audio_format"] == "g711_ulaw"
            for _ in range(10):
                sound = base64.b64encode(b"\x12\x34\x92" * 267).decode()  # 801 bytes: no whole 16-bit samples
                await second.send("input_audio_buffer.append", audio=sound)
            await second.send("input_audio_buffer.commit", create_response=True)
            done = await second.until("response.done")
            assert "error" not in second.kinds()
            words = done["response"]["output"][0]["content"][0]["text"]
            heard_ms = int("".join(letter for letter in words if letter.isdigit()))
            assert 950 <= heard_ms <= 1_001


class Fragile(EchoStage):
    """An echo that raises in the sessions that it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    def start(self, report: Report) -> None:
        """Be ready."""
        super().start(report)

    def handle(self, message: AnyMessage) -> None:
        """Answer, or raise."""
        if isinstance(message, Submit) and message.payload.session in self.broken:
            raise ZeroDivisionError("as the test says")
        super().handle(message)


@rule("P57", "K16")
async def test_a_stage_that_raises_in_one_session_leaves_the_others_alone() -> None:
    """One conversation's model raises: every conversation on the server ends, or waits for ever."""
    stage = Fragile()
    async with (
        serving(stage=stage) as served,
        Wire.to(served.url) as one,
        Wire.to(served.url) as other,
    ):
        broken = (await one.next())["session"]["id"]
        await other.next()
        stage.broken.add(broken)
        failed = await answered(one)
        assert failed["status"] == "failed"
        assert one.kinds().count("error") == 1
        assert (await answered(other))["status"] == "completed"
        assert "error" not in other.kinds()
        stage.broken.clear()
        assert (await answered(one))["status"] == "completed"


@rule("G38", "P15")
async def test_a_stage_that_goes_on_after_a_cancel() -> None:
    """The generator ignores the cancel: its sound is heard under the next answer, or a second `response.done`."""
    first = (Say("one ", 100), Late("late", 1_000), Late("later", 1_000), Cue("never"))
    stage = ScriptedStage(scripts={0: first}, default=(Say("New.", 100), Finish()))
    async with serving(stage=stage) as served, Wire.to(served.url) as wire:
        await wire.next()
        await say(wire)
        await wire.send("response.create")
        await wire.until("response.output_audio.delta")
        await wire.send("response.cancel")
        assert (await wire.until("response.done"))["response"]["status"] == "cancelled"
        assert (await answered(wire))["output"][0]["content"][0]["transcript"] == "New."
    words = [event["delta"] for event in wire.seen if event["type"] == "response.output_audio_transcript.delta"]
    assert words == ["one ", "New."]


@rule("E12", "P28")
async def test_sound_without_a_commit_up_to_the_limit() -> None:
    """A client appends for hours and never commits: the server's memory grows, or the session dies."""
    settings = HubSettings(input_bytes=200_000)
    async with serving(settings=settings) as served, Wire.to(served.url) as wire:
        session = (await wire.next())["session"]["id"]
        await wire.send("session.update", session={"turn_detection": None})
        await wire.until("session.updated")
        for _ in range(100):
            await append(wire, tone(100))
        await wire.send("session.heartbeat")
        await wire.until("session.heartbeat_ack")
        refused = [event["error"]["code"] for event in wire.seen if event["type"] == "error"]
        assert refused
        assert set(refused) == {"rate_limit_exceeded"}
        found = served.hub.session(session)
        assert found is not None
        assert 0 < found.input.reserved <= 200_000
        await wire.send("input_audio_buffer.commit")
        await wire.until("conversation.item.done")
        await wire.send("response.create")
        done = (await wire.until("response.done"))["response"]
        assert done["status"] == "completed"


@rule("I11", "I16")
async def test_clear_after_completion_then_a_late_acknowledgement() -> None:
    """The output is cleared behind `response.done`, the last ack is still under way: an error, or all text back."""
    clock = VirtualClock()
    script = (Say("one two six ten now and for you all yes", 3_000), Finish())
    async with (
        serving(stage=ScriptedStage(default=script), clock=clock) as served,
        Wire.to(served.url + DUPLEX) as wire,
    ):
        await wire.next()
        response = await answered(wire)
        clock.advance(1_000_000)
        await wire.send("output_audio_buffer.clear")
        assert (await wire.until("output_audio_buffer.cleared"))["response_id"] == response["id"]
        await wire.send("playback.ack", response_id=response["id"], played_ms=1_200)
        told = (await wire.until("playback.acknowledged"))["event"]
        assert (told["playback"]["committed_ms"], told["history_committed"]) == (1_200, True)
        await wire.send("conversation.item.retrieve", item_id=f"item_{response['id']}")
        shown = (await wire.until("conversation.item.retrieved"))["item"]
        assert shown["content"][0]["transcript"] == "one two six ten"


@rule("I6")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "bad_event"),
        ({"played_ms": True}, "bad_event"),
        ({"played_ms": "10"}, "bad_event"),
        ({"played_ms": -1}, "bad_event"),
        ({"played_ms": 10, "response_id": "resp_none"}, "playback_item_not_found"),
        ({"played_ms": 10, "item_id": "item_none"}, "playback_item_not_found"),
        ({"played_ms": 10, "response_id": "resp_a", "item_id": "item_resp_b"}, "playback_item_mismatch"),
    ],
)
async def test_acknowledgements_that_cannot_be(fields: dict[str, Any], code: str) -> None:
    """An acknowledgement of nothing takes the session down, or marks the next answer as played."""
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        await wire.send("playback.ack", event_id="a", **fields)
        refused = await wire.error()
        assert (refused["code"], refused["event_id"]) == (code, "a")
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"


WAITS = "?duplex=1&model=m&autostart=0"


@rule("I1", "L11", "Q4.17")
@pytest.mark.parametrize(
    ("query", "chosen", "policy"),
    [
        ("", None, "commit_all_on_done"),
        (WAITS, None, "ack_only"),
        (WAITS, "commit_all_on_done", "commit_all_on_done"),
        (WAITS, "no such policy", "commit_all_on_done"),
    ],
)
async def test_the_playback_policy_is_chosen_at_opening_and_stays(
    query: str, chosen: str | None, policy: str
) -> None:
    """A client switches the policy in the middle of a session: what was never heard is suddenly remembered."""
    async with serving() as served, Wire.to(served.url + query) as wire:
        if query:
            await wire.send("session.update", session={"playback_commit_policy": chosen} if chosen else {})
        assert (await wire.until("session.created"))["session"]["playback_commit_policy"] == policy
        other = "ack_only" if policy == "commit_all_on_done" else "commit_all_on_done"
        await wire.send("session.update", session={"playback_commit_policy": other, "instructions": "refused"})
        assert (await wire.until("error"))["error"]["param"] == "session.playback_commit_policy"
        await wire.send("session.update", session={"playback_commit_policy": policy, "instructions": "taken"})
        updated = (await wire.until("session.updated"))["session"]
        assert (updated["playback_commit_policy"], updated["instructions"]) == (policy, "taken")


@rule("J10")
async def test_fifty_rounds_of_a_tool_with_duplicate_outputs() -> None:
    """Tools are called for an hour, outputs are sent twice: a result stands there twice, or the turn is refused."""
    async with serving() as served, Wire.to(served.url) as wire:
        await wire.next()
        await wire.send("session.update", session={"modalities": ["text"], "turn_detection": None})
        for n in range(50):
            call = {"type": "function_call", "call_id": f"call-{n}", "name": "look", "arguments": "{}"}
            output = {"type": "function_call_output", "call_id": f"call-{n}", "output": f"result {n}"}
            await wire.send("conversation.item.create", item=call)
            await wire.send("conversation.item.create", item=output)
            await wire.send("conversation.item.create", item=output, event_id=f"again-{n}")
            await wire.send("response.create")
            done = (await wire.until("response.done"))["response"]
            assert done["status"] == "completed"
            assert f"result {n}" in done["output"][0]["content"][0]["text"]
    refused = [event["error"] for event in wire.seen if event["type"] == "error"]
    assert [error["event_id"] for error in refused] == [f"again-{n}" for n in range(50)]
    assert {error["code"] for error in refused} == {"invalid_function_call_output"}
    added = [event["item"] for event in wire.seen if event["type"] == "conversation.item.added"]
    assert len([item for item in added if item["type"] == "function_call_output"]) == 50
