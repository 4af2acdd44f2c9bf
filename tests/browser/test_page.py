"""The page in a real browser: talk, interrupt, lose the line, resume; what is heard is told honestly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from playwright.async_api import Page, expect

from .chromium import browsing, spoken, write
from tests.acceptance.servers import ServerProcess

pytestmark = pytest.mark.timeout(60)

BLOCK = 128
PATIENCE_S = 20

# Listens to what leaves the speaker, beside the page's own account of it: the last loud sample of each block.
TAP = """
class Tap extends AudioWorkletProcessor {
  constructor() { super(); this.loud = []; this.blocks = 0; }
  process([[input]]) {
    for (let i = (input ?? []).length - 1; i >= 0; i -= 1) {
      if (Math.abs(input[i]) > 1e-4) { this.loud.push(currentFrame + i); break; }
    }
    if ((this.blocks += 1) % 8 === 0) {
      this.port.postMessage({ loud: this.loud, upto: currentFrame + 128 });
      this.loud = [];
    }
    return true;
  }
}
registerProcessor("tap", Tap);
"""

LISTEN = """
async (TAP) => {
  const { sound } = antiphon.talk;
  globalThis.heard = { loud: [], upto: 0 };
  const source = URL.createObjectURL(new Blob([TAP], { type: "text/javascript" }));
  await sound.context.audioWorklet.addModule(source);
  const tap = new AudioWorkletNode(sound.context, "tap", { numberOfOutputs: 0 });
  tap.port.onmessage = ({ data }) => {
    heard.loud.push(...data.loud);
    heard.upto = data.upto;
  };
  sound.speaker.connect(tap);
}
"""

READ = """
() => {
  const { view } = antiphon.talk;
  globalThis.seen = [];
  const shown = view.event;
  view.event = (event) => { seen.push(event); shown(event); };
}
"""

ANSWERS = "[...antiphon.talk.story.answers.values()]"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    one = ServerProcess(tmp_path_factory.mktemp("page") / "data")
    one.start()
    yield one
    one.close()


async def until(page: Page, condition: str) -> None:
    """Wait until something is so."""
    with anyio.fail_after(PATIENCE_S):
        # The page's policy forbids the evaluation that would wait inside it.
        while not await page.evaluate(condition):  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def start(page: Page, profile: str = "Conversation") -> None:
    """Begin to talk, and keep what the server says."""
    await page.get_by_role("radio", name=profile).check()
    await page.get_by_role("button", name="Start talking").click()
    await until(page, "globalThis.antiphon.talk?.line.status === 'open' && antiphon.talk.sound")
    await page.evaluate(READ)


async def listen(page: Page) -> None:
    """Put an ear at the speaker. The page's policy would not let this in: it is switched off for it."""
    await page.evaluate(LISTEN, TAP)


async def answers(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await page.evaluate(ANSWERS)
    return found


async def events(page: Page, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await page.evaluate("(kind) => seen.filter((one) => one.type === kind)", kind)
    return found


async def numbers(page: Page) -> list[int]:
    found: list[int] = await page.evaluate("seen.map((one) => one.server_event_seq).filter(Boolean)")
    return found


def whole(found: list[int]) -> bool:
    """Whether every number came once, in order."""
    return found == list(range(found[0], found[0] + len(found)))


async def nothing_sounds_behind(page: Page, frame: int) -> None:
    """The speaker sounded until `frame`, and at most to the end of the block that played then."""
    rate = await page.evaluate("antiphon.talk.sound.context.sampleRate")
    await until(page, f"heard.upto > {frame + rate // 4}")
    loud: list[int] = await page.evaluate("heard.loud")
    assert [one for one in loud if frame - rate // 2 < one <= frame], "nothing played that could be interrupted"
    late = [one for one in loud if frame + BLOCK < one < frame + rate // 4]
    assert not late, f"sound up to {late[-1] - frame} frames behind the interruption"


async def test_a_question_is_answered_aloud_and_playback_is_told_as_it_was(
    server: ServerProcess, tmp_path: Path
) -> None:
    microphone = write(tmp_path / "question.wav", spoken(0.8, 1.6, 6))
    async with browsing(server.url, microphone) as (page, complaints):
        await start(page)
        await until(page, f"{ANSWERS}[0]?.done && {ANSWERS}[0].heardMs >= {ANSWERS}[0].receivedMs - 1")
        (answer,) = await answers(page)
        assert 1_500 < answer["receivedMs"] < 4_000
        await until(page, "seen.filter((one) => one.type === 'playback.acknowledged').length > 3")
        await expect(page.locator(".row.user .heard")).to_contain_text("ms of speech")
        await expect(page.locator(".row.answer .heard")).to_contain_text("You said")
        await expect(page.locator(".row.answer .unheard")).to_have_text("")
        assert whole(await numbers(page))
        told = (await events(page, "playback.acknowledged"))[-1]["event"]["playback"]
        assert abs(told["played_ms"] - answer["heardMs"]) <= 250
        await page.get_by_role("button", name="End").click()
        await expect(page.get_by_role("button", name="New conversation")).to_be_visible()
        assert not complaints


async def test_a_voice_over_the_answer_silences_it_within_one_block(server: ServerProcess, tmp_path: Path) -> None:
    microphone = write(tmp_path / "interruption.wav", spoken(0.8, 3, 1.6, 1, 8))
    async with browsing(server.url, microphone, open_to_tests=True) as (page, complaints):
        await start(page)
        await listen(page)
        await until(page, f"{ANSWERS}[0]?.cut")
        await nothing_sounds_behind(page, await page.evaluate("antiphon.talk.interrupted.frame"))
        await until(page, "seen.some((one) => one.type === 'conversation.item.truncated')")
        answer = (await answers(page))[0]
        truncated = (await events(page, "conversation.item.truncated"))[0]
        # What it was told in time is what it keeps: an acknowledgement may still have been under way.
        assert 0 < truncated["audio_end_ms"] <= answer["heardMs"] < answer["receivedMs"]
        await expect(page.locator(".row.answer.cut small")).to_contain_text("interrupted after")
        await until(page, f"{ANSWERS}[1]?.heardMs > 200")  # and it goes on
        assert not complaints


async def test_the_button_silences_the_answer_within_one_block(server: ServerProcess, tmp_path: Path) -> None:
    microphone = write(tmp_path / "question.wav", spoken(0.8, 3, 8))
    async with browsing(server.url, microphone, open_to_tests=True) as (page, complaints):
        await start(page)
        await listen(page)
        await until(page, f"{ANSWERS}[0]?.heardMs > 500")
        await page.keyboard.press("Escape")
        await until(page, f"{ANSWERS}[0].cut")
        await nothing_sounds_behind(page, await page.evaluate("antiphon.talk.interrupted.frame"))
        await until(page, "seen.some((one) => one.type === 'output_audio_buffer.cleared')")
        assert not complaints


async def test_a_lost_line_is_resumed_in_the_middle_of_an_answer(server: ServerProcess, tmp_path: Path) -> None:
    microphone = write(tmp_path / "question.wav", spoken(0.8, 3, 8))
    async with browsing(server.url, microphone) as (page, _):
        await start(page)
        await until(page, f"{ANSWERS}[0]?.heardMs > 300")
        await page.get_by_role("button", name="Lose the line").click()
        await expect(page.get_by_role("status")).to_contain_text("Line lost")
        await until(page, "antiphon.talk.line.sockets === 2")
        await until(page, f"{ANSWERS}[0].done && {ANSWERS}[0].heardMs >= {ANSWERS}[0].receivedMs - 1")
        assert whole(await numbers(page))
        assert len(await answers(page)) == 1
        kinds = await page.evaluate("antiphon.talk.story.marks.map((mark) => mark.kind)")
        assert kinds == ["lost", "resumed"]


async def test_a_killed_server_is_come_back_to(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    microphone = write(tmp_path / "question.wav", spoken(0.8, 1.5, 20))
    try:
        async with browsing(server.url, microphone) as (page, _):
            await start(page)
            await until(page, f"{ANSWERS}[0]?.heardMs > 300")
            await anyio.to_thread.run_sync(server.kill)
            await expect(page.get_by_role("status")).to_contain_text("Line lost")
            await anyio.to_thread.run_sync(server.start)
            await until(page, "antiphon.talk.line.sockets === 2")
            await page.get_by_role("textbox", name="Write instead").fill("Are you there?")
            await page.keyboard.press("Enter")
            await expect(page.locator(".row.answer").last).to_contain_text("Are you there?")
            assert whole(await numbers(page))
    finally:
        server.close()
