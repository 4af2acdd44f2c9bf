"""The other ways to talk, and the ways round obstacles: send, hold, a key, no microphone, a keyboard, a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from .chromium import browsing, spoken, write
from .scene import ANSWERS, events, numbers, start, until, whole
from tests.acceptance.servers import ServerProcess

pytestmark = pytest.mark.timeout(60)

SPY = """
() => {
  const { view } = antiphon.talk;
  globalThis.said = [];
  const shown = view.said;
  view.said = (event) => { said.push(event); shown(event); };
}
"""


@pytest.fixture
def talking(tmp_path: Path) -> Path:
    return write(tmp_path / "talking.wav", spoken(0.3, 20))


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    return write(tmp_path / "quiet.wav", spoken(20))


async def said(page: Page, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await page.evaluate("(kind) => said.filter((one) => one.type === kind)", kind)
    return found


async def test_a_turn_is_sent_with_a_button(server: ServerProcess, talking: Path) -> None:
    async with browsing(server.url, talking) as (page, complaints):
        await start(page, "Send button")
        await until(page, "antiphon.talk.story.sentMs > 1200")
        assert not await page.evaluate(f"{ANSWERS}.length")
        await page.get_by_role("button", name="Send turn").click()
        await until(page, f"{ANSWERS}[0]?.heardMs > 400")
        (committed,) = await events(page, "input_audio_buffer.committed")
        assert committed["event"]["is_speech"] is True
        assert whole(await numbers(page))
        assert not complaints


async def test_what_is_said_while_the_line_is_lost_arrives_once(server: ServerProcess, talking: Path) -> None:
    async with browsing(server.url, talking) as (page, _):
        await start(page, "Send button")
        for sockets in (2, 3):
            said_ms = await page.evaluate("antiphon.talk.story.sentMs")
            await until(page, f"antiphon.talk.story.sentMs > {said_ms + 300}")
            await page.get_by_role("button", name="Lose the line").click()
            await until(page, f"antiphon.talk.line.sockets === {sockets}")
        said_ms = await page.evaluate("() => { antiphon.talk.commit(); return antiphon.talk.story.sentMs; }")
        await until(page, "seen.some((one) => one.type === 'input_audio_buffer.speech_stopped')")
        (stopped,) = await events(page, "input_audio_buffer.speech_stopped")
        assert stopped["audio_end_ms"] == said_ms
        assert whole(await numbers(page))
        assert not await events(page, "error")


async def test_the_space_bar_holds_the_floor(turns: ServerProcess, talking: Path) -> None:
    """Nothing is sent while the button is up; what was held is committed as it is let go (S-G5, S-G7)."""
    async with browsing(turns.url, talking) as (page, complaints):
        await start(page, "Push to talk")
        await page.evaluate(SPY)
        await until(page, "antiphon.talk.story.mic.length > 25")
        assert not await said(page, "input_audio_buffer.append")
        await page.keyboard.down(" ")
        await expect(page.get_by_role("button", name="Let go to send")).to_be_visible()
        await until(page, "antiphon.talk.story.sentMs >= 800")
        await page.keyboard.up(" ")
        await until(page, f"{ANSWERS}[0]?.heardMs > 300")
        appends = await said(page, "input_audio_buffer.append")
        assert all(one["is_speech"] for one in appends)
        (commit,) = await said(page, "input_audio_buffer.commit")
        assert commit["create_response"] is True
        kinds = [one["type"] for one in await page.evaluate("said") if "input_audio" in one["type"]]
        assert kinds == ["input_audio_buffer.append"] * len(appends) + ["input_audio_buffer.commit"]
        # The button goes down over the answer: it is silent here, and not cancelled at the server (S-G4).
        await page.keyboard.down(" ")
        await until(page, f"{ANSWERS}[0].cut")
        sent = await page.evaluate("antiphon.talk.story.sentMs")
        await until(page, f"antiphon.talk.story.sentMs >= {sent + 800}")
        await page.keyboard.up(" ")
        await until(page, f"{ANSWERS}[1]?.heardMs > 0")
        assert not await said(page, "response.cancel")
        assert (await events(page, "response.done"))[0]["response"]["status"] == "completed"
        assert not complaints


async def test_the_camera_is_followed_between_the_turns(watching: ServerProcess, talking: Path) -> None:
    """Two pictures are a turn while the button is up; while it is held each piece carries the newest (S-G6)."""
    async with browsing(watching.url, talking) as (page, complaints):
        await start(page, "Push to talk")
        await page.evaluate(SPY)
        await page.get_by_role("button", name="Camera").click()
        await until(page, "seen.filter((one) => one.type === 'response.done').length === 1")
        pictures = (await said(page, "input_audio_buffer.append"))[0]
        assert (pictures["is_speech"], len(pictures["video_frames"])) == (False, 2)
        assert all(picture.startswith("/9j/") for picture in pictures["video_frames"])  # JPEG
        await page.keyboard.down(" ")
        await until(page, "said.some((one) => one.is_speech)")
        await page.keyboard.up(" ")
        spoken_at = await page.evaluate("said.findIndex((one) => one.is_speech)")
        assert len((await page.evaluate("said"))[spoken_at]["video_frames"]) == 1
        await until(
            page, "document.querySelectorAll('.row.user').length === 1"
        )  # pictures are nothing that was said
        assert not await events(page, "error")
        assert not complaints


async def test_a_short_sound_over_the_answer_lets_it_go_on(server: ServerProcess, tmp_path: Path) -> None:
    microphone = write(tmp_path / "mhm.wav", spoken(0.5, 2.2, 1.5, 0.2, 10))
    async with browsing(server.url, microphone) as (page, complaints):
        await page.get_by_text("Key, model and manners").click()
        await page.get_by_role("checkbox").check()
        await start(page)
        await until(page, "antiphon.talk.story.marks.some((mark) => mark.kind === 'goes-on')")
        await until(page, f"{ANSWERS}[0].heardMs >= {ANSWERS}[0].receivedMs - 1")
        (hold,) = await page.evaluate("antiphon.talk.story.holds")
        (answer,) = await page.evaluate(ANSWERS)
        assert answer["cut"] is None
        # While it stood still nothing was heard of it.
        assert not [one for one in answer["spans"] if hold["from"] + 0.1 < one["until"] - 0.01 < hold["to"] - 0.05]
        assert await events(page, "output_audio_buffer.resumed")
        assert not complaints


async def test_a_key_is_asked_for_and_stays_in_the_tab(tmp_path: Path, quiet: Path) -> None:
    server = ServerProcess(tmp_path / "data", extra=("--api-key", "open-sesame"))
    server.start()
    try:
        async with browsing(server.url, quiet) as (page, _):
            await page.get_by_role("button", name="Start talking").click()
            await expect(page.get_by_role("alert")).to_contain_text("wants an API key")
            await expect(page.get_by_label("API key")).to_be_focused()
            await page.keyboard.type("open-sesame")
            sockets: list[str] = []
            page.on("websocket", lambda socket: sockets.append(socket.url))
            await start(page)
            assert sockets
            assert not [url for url in [page.url, *sockets] if "sesame" in url]
            assert await page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
            assert not await page.evaluate("document.documentElement.outerHTML.includes('sesame')")
    finally:
        server.close()


async def test_without_a_microphone_one_can_write(server: ServerProcess, quiet: Path) -> None:
    async with browsing(server.url, quiet) as (page, _):
        refuse = (
            "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', 'NotAllowedError'))"
        )
        await page.evaluate(f"() => {{ {refuse} }}")
        await page.get_by_role("button", name="Start talking").click()
        await expect(page.get_by_role("alert")).to_contain_text("You can still write")
        await page.get_by_role("textbox", name="Write instead").fill("Good evening")
        await page.keyboard.press("Enter")
        await expect(page.locator(".row.user")).to_contain_text("Good evening")
        await expect(page.locator(".row.answer")).to_contain_text('You said: "Good evening"')
        await expect(page.locator("#live")).to_contain_text("Good evening")  # and it is told aloud


async def test_everything_can_be_reached_with_the_keyboard(server: ServerProcess, tmp_path: Path) -> None:
    microphone = write(tmp_path / "question.wav", spoken(0.5, 1.2, 10))
    async with browsing(server.url, microphone) as (page, _):
        await page.get_by_role("radio", name="Conversation").focus()
        await page.keyboard.press("Enter")
        await until(page, f"globalThis.antiphon.talk && {ANSWERS}[0]?.heardMs > 600")
        timeline = page.get_by_role("slider")
        await timeline.focus()
        await page.keyboard.press("ArrowLeft")
        assert "Answer" in (await timeline.get_attribute("aria-valuetext") or "")
        await page.keyboard.press("ArrowLeft")
        assert "You: " in (await timeline.get_attribute("aria-valuetext") or "")
        await page.keyboard.press("Enter")  # shows the event of that moment
        await expect(page.locator("#detail")).to_contain_text("input_audio_buffer.speech_started")
        await page.locator("#events [aria-selected=true]").focus()
        await page.keyboard.press("ArrowDown")
        await expect(page.locator("#detail")).not_to_contain_text("input_audio_buffer.speech_started")
        await page.get_by_role("searchbox").fill("response.created")
        await expect(page.locator("#events li:visible")).to_have_count(1)


async def test_a_phone_shows_all_of_it_and_moves_little_if_asked_to(server: ServerProcess, quiet: Path) -> None:
    async with browsing(server.url, quiet, width=360, height=740) as (page, complaints):
        await page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        fits = "document.documentElement.scrollWidth <= innerWidth"
        assert await page.evaluate(fits)
        await expect(page.get_by_role("button", name="Start talking")).to_be_in_viewport()
        await start(page, "Push to talk")
        assert await page.evaluate(fits)
        for name in ("Hold to talk", "Lose the line", "End"):
            await expect(page.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
        await page.get_by_role("button", name="Lose the line").click()
        assert await page.evaluate("getComputedStyle(document.querySelector('.dot')).animationName") == "none"
        assert await page.evaluate(fits)
        assert not complaints


async def test_the_policy_holds_in_the_browser(server: ServerProcess, quiet: Path) -> None:
    async with browsing(server.url, quiet) as (page, complaints):
        script = "Object.assign(document.createElement('script'), { textContent: 'globalThis.bad = 1' })"
        await page.evaluate(f"() => {{ document.body.append({script}); }}")
        assert await page.evaluate("globalThis.bad === undefined")
        assert any("Content Security Policy" in one for one in complaints)
