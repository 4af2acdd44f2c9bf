"""The page in a real browser: talk, interrupt, lose the line, resume; what is heard is told honestly."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from playwright.async_api import expect

from .chromium import browsing, spoken, write
from .scene import (
    ANSWERS,
    BLOCK,
    READ,
    answers,
    events,
    first_answer_fell_silent,
    listen,
    numbers,
    start,
    until,
    whole,
)
from tests.acceptance.servers import ServerProcess

pytestmark = pytest.mark.timeout(60)

TRIALS = 200


async def test_a_question_is_answered_aloud_and_playback_is_told_as_it_was(
    server: ServerProcess, tmp_path: Path
) -> None:
    microphone = write(tmp_path / "question.wav", spoken(0.5, 1.2, 6))
    async with browsing(server.url, microphone) as (page, complaints):
        await start(page)
        await until(page, f"{ANSWERS}[0]?.done && {ANSWERS}[0].heardMs >= {ANSWERS}[0].receivedMs - 1")
        (answer,) = await answers(page)
        assert 1_000 < answer["receivedMs"] < 4_000
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
    microphone = write(tmp_path / "interruption.wav", spoken(0.5, 2.2, 1.5, 0.8, 8))
    async with browsing(server.url, microphone, open_to_tests=True) as (page, complaints):
        await start(page)
        await listen(page)
        await until(page, f"{ANSWERS}[0]?.cut")
        await first_answer_fell_silent(page)
        await until(page, "seen.some((one) => one.type === 'conversation.item.truncated')")
        answer = (await answers(page))[0]
        truncated = (await events(page, "conversation.item.truncated"))[0]
        # What it was told in time is what it keeps: an acknowledgement may still have been under way.
        assert 0 < truncated["audio_end_ms"] <= answer["heardMs"] < answer["receivedMs"]
        await expect(page.locator(".row.answer.cut small")).to_contain_text("interrupted after")
        await until(page, f"{ANSWERS}[1]?.heardMs > 200")  # and it goes on
        await page.get_by_role("button", name="End").click()
        await expect(page.get_by_role("button", name="New conversation")).to_be_visible()
        past = await page.evaluate(f"antiphon.timeline.stopped - {ANSWERS}[0].cut.at")
        await page.get_by_role("slider").hover(position={"x": 1280 * 0.78 - past * 64, "y": 100})
        await expect(page.locator("#readout")).to_contain_text("Interrupted:")
        assert not complaints


async def test_the_button_silences_the_answer_within_one_block(server: ServerProcess, tmp_path: Path) -> None:
    microphone = write(tmp_path / "question.wav", spoken(0.5, 2, 8))
    async with browsing(server.url, microphone, open_to_tests=True) as (page, complaints):
        await start(page)
        await listen(page)
        await until(page, f"{ANSWERS}[0]?.heardMs > 500")
        await page.keyboard.press("Escape")
        await until(page, f"{ANSWERS}[0].cut")
        await first_answer_fell_silent(page)
        await until(page, "seen.some((one) => one.type === 'output_audio_buffer.cleared')")
        assert not complaints


async def test_a_page_that_may_share_no_memory_is_silenced_by_a_message(
    server: ServerProcess, tmp_path: Path
) -> None:
    microphone = write(tmp_path / "question.wav", spoken(0.5, 2, 8))
    async with browsing(server.url, microphone) as (page, complaints):
        assert await page.evaluate("crossOriginIsolated")
        await page.evaluate("() => { Object.defineProperty(globalThis, 'crossOriginIsolated', { value: false }); }")
        await start(page)
        await until(page, f"{ANSWERS}[0]?.heardMs > 500")
        await page.keyboard.press("Escape")
        await until(page, f"{ANSWERS}[0].cut")
        assert (await answers(page))[0]["heardMs"] < (await answers(page))[0]["receivedMs"]
        assert not complaints


async def test_a_lost_line_is_resumed_in_the_middle_of_an_answer(server: ServerProcess, tmp_path: Path) -> None:
    microphone = write(tmp_path / "question.wav", spoken(0.5, 2, 8))
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


async def test_a_reload_goes_on_with_the_conversation(server: ServerProcess, tmp_path: Path) -> None:
    """What plays is interrupted where it stands; the words stay, and so does the session."""
    microphone = write(tmp_path / "question.wav", spoken(0.5, 2, 8))
    async with browsing(server.url, microphone) as (page, complaints):
        await start(page)
        await until(page, f"{ANSWERS}[0]?.heardMs > 500 && antiphon.talk.story.turns[0].text")
        session = await page.evaluate("antiphon.talk.line.id")
        words = await page.locator(".row.user .heard").text_content()
        await page.reload()
        await until(page, "globalThis.antiphon?.talk?.line.status === 'open' && antiphon.talk.sound")
        assert await page.evaluate("antiphon.talk.line.id") == session
        assert await page.locator(".row.user .heard").first.text_content() == words
        await expect(page.locator(".row.answer.cut small")).to_contain_text("interrupted after")
        assert await page.evaluate("sessionStorage.getItem('conversation')") is None, "another tab finds nothing"
        await page.evaluate(READ)
        await page.get_by_role("textbox", name="Write instead").fill("Are you there?")
        await page.keyboard.press("Enter")
        await expect(page.locator(".row.answer").last).to_contain_text("Are you there?")
        assert whole(await numbers(page))
        assert not await events(page, "error")
        await page.get_by_role("button", name="End").click()
        await expect(page.get_by_role("button", name="New conversation")).to_be_visible()
        await page.reload()
        await expect(page.get_by_role("button", name="Start talking")).to_be_visible()
        assert not complaints


async def test_an_answer_that_has_not_begun_is_waited_for_by_the_next_page(server: ServerProcess) -> None:
    async with browsing(server.url, None) as (page, _):
        await start(page, "Push to talk")
        left = await page.evaluate(
            "() => { antiphon.talk.story.answerBegan('resp_1', 0); return antiphon.talk.leave(); }"
        )
        assert left["expected"] == ["resp_1"]
        assert left["line"]["id"] == await page.evaluate("antiphon.talk.line.id")
        assert await page.evaluate("antiphon.talk.leave()") is None


async def test_a_reload_that_finds_the_session_gone_says_so(server: ServerProcess) -> None:
    async with browsing(server.url, None) as (page, _):
        gone = {
            "line": {"id": "duplex-none", "lastNumber": 1, "tokens": ["x"], "waiting": []},
            "expected": [],
            "sentMs": 0,
            "careful": False,
            "rows": [{"id": "item_1", "voice": "user", "cut": False, "words": ["Hello?", "", ""]}],
        }
        await page.evaluate("(state) => sessionStorage.setItem('conversation', JSON.stringify(state))", gone)
        await page.reload()
        await expect(page.get_by_role("button", name="New conversation")).to_be_visible()
        await expect(page.get_by_role("alert")).to_be_visible()
        await expect(page.locator(".row.user")).to_contain_text("Hello?")
        await page.reload()
        await expect(page.get_by_role("button", name="Start talking")).to_be_visible()


async def test_a_killed_server_is_come_back_to(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    microphone = write(tmp_path / "question.wav", spoken(0.5, 1.2, 20))
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


AGAIN_AND_AGAIN = """
async (trials) => {
  const { talk } = antiphon;
  const { sound } = talk;
  const found = [];
  for (let i = 0; i < trials; i += 1) {
    sound.play(`answer ${i}`, 48_000, new Float32Array(48_000).fill(0.1), 0);
    await new Promise((go) => setTimeout(go, 20 + ((i * 7) % 23)));
    const before = sound.frame;
    talk.speechStarted({ item_id: `turn ${i}`, audio_start_ms: 0 });
    const { frame } = talk.interrupted;
    while (heard.upto < frame + 8 * 128) await new Promise((go) => setTimeout(go, 5));
    found.push([frame - before, Math.max(...heard.loud) - frame]);
    heard.loud = [];
  }
  return found;
}
"""


async def test_whenever_somebody_cuts_in_the_block_that_is_due_is_the_last_that_is_heard(
    server: ServerProcess, tmp_path: Path
) -> None:
    """If the speaker learns of it before that block begins it fades out; then or else nothing sounds behind it."""
    quiet = write(tmp_path / "quiet.wav", spoken(50))
    async with browsing(server.url, quiet, open_to_tests=True) as (page, _):
        await start(page)
        await listen(page)
        with anyio.fail_after(50):
            found: list[tuple[int, int]] = await page.evaluate(AGAIN_AND_AGAIN, TRIALS)
    last = [heard for _, heard in found]
    assert len(last) == TRIALS
    assert max(last) < BLOCK
    sounding = sum(one >= -BLOCK for one in last)
    assert sounding > 0.9 * TRIALS, "nothing played that could be interrupted"
