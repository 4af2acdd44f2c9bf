"""The page of a session in a real browser: it opens from a file, is looked at by hand and by keys, asks nobody."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright, expect

from antiphon.transport.session_page import session_page

from .chromium import FLAGS, Complaints, browsing, executable
from tests.acceptance.servers import ServerProcess
from tests.transport.serving import Wire
from tests.transport.test_session_page import Loud, spoken

pytestmark = pytest.mark.timeout(60)

VIEW = "[antiphon.view.from, antiphon.view.until]"


async def drawn(page: Page) -> None:
    """Wait until the page has drawn itself; its policy refuses what `wait_for_function` would evaluate in it."""
    while not await page.evaluate("!!globalThis.antiphon?.hits"):
        await page.evaluate("new Promise(requestAnimationFrame)")


@asynccontextmanager
async def looking(folder: Path, *, width: int = 1280, dark: bool = False, hash_: str = "") -> AsyncIterator[Page]:
    """Open the page of a session from a file; nothing but the file may be asked for, and nothing may go wrong."""
    file = folder / "session.html"
    file.write_bytes(await session_page(spoken().log, Loud()))
    complaints, asked = Complaints(), list[str]()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable(), args=[*FLAGS])
        try:
            context = await browser.new_context(
                viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
            )
            page = await context.new_page()
            page.on("console", complaints.heard)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(f"{file.as_uri()}{hash_}")
            await drawn(page)
            yield page
        finally:
            await browser.close()
    assert not complaints
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]


async def view(page: Page) -> tuple[float, float]:
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    start, end = await page.evaluate(VIEW)
    return float(start), float(end)


async def place(page: Page, lane: str, at: str) -> dict[str, float]:
    """Return where a time lies in a lane."""
    found: dict[str, float] = await page.evaluate(
        f"({{ x: antiphon.view.x({at}), y: antiphon.layout.{lane}.y + antiphon.layout.{lane}.height / 2 }})"
    )
    return found


async def entry(page: Page) -> Any:
    """Return the entry that is shown."""
    await expect(page.locator("#entry-text")).to_contain_text("{")
    return json.loads(await page.locator("#entry-text").inner_text())


async def test_it_opens_and_says_what_it_is_about(tmp_path: Path) -> None:
    async with looking(tmp_path) as page:
        await expect(page.locator("#name")).to_have_text("duplex-1")
        await expect(page.locator("#facts")).to_contain_text("1 turn · 1 answer · 1 interruption")
        await expect(page.locator("#latencies li")).to_have_count(1)
        await expect(page.locator("#latencies")).to_contain_text("asr 40 · llm 35 · tts 105 · sending 84")
        start, end = await view(page)
        assert start <= 0
        assert end >= await page.evaluate("antiphon.data.seconds")


async def test_what_is_pointed_at_is_named_and_what_is_pressed_is_shown_whole(tmp_path: Path) -> None:
    async with looking(tmp_path) as page:
        score, readout = page.locator("#score"), page.locator("#readout")
        await score.hover(position=await place(page, "answer", "antiphon.data.interruptions[0].at"))
        await expect(readout).to_contain_text("Interrupted: barge in")
        await score.hover(position=await place(page, "waits", "antiphon.data.waits[0].start + 0.05"))
        await expect(readout).to_contain_text("silence: ")
        await score.hover(position=await place(page, "sent", "antiphon.data.answers[0].first + 0.1"))
        await expect(readout).to_contain_text("0.90 s of sound sent in 0 ms, 0.40 s of it heard")
        await score.hover(position=await place(page, "events", "antiphon.data.answers[0].created"))
        await expect(readout).to_contain_text("ResponseCreated")
        await score.click(position=await place(page, "answer", "antiphon.data.interruptions[0].at"))
        shown = await entry(page)
        assert shown["seq"] == await page.evaluate("antiphon.data.interruptions[0].seq")
        assert "Interrupted" in [event["type"] for event in shown["events"]]


async def test_it_zooms_and_moves_by_wheel_buttons_and_hand(tmp_path: Path) -> None:
    async with looking(tmp_path) as page:
        whole = await view(page)
        box = await page.locator("#score").bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + 700, box["y"] + 100)
        meant = await page.evaluate("antiphon.view.at(700)")
        await page.mouse.wheel(0, -400)
        near = await view(page)
        assert near[1] - near[0] < 0.6 * (whole[1] - whole[0])
        assert await page.evaluate("antiphon.view.at(700)") == pytest.approx(meant, abs=0.01)
        await page.mouse.down()
        await page.mouse.move(box["x"] + 500, box["y"] + 100)
        await page.mouse.up()
        assert await page.evaluate("antiphon.view.at(500)") == pytest.approx(meant, abs=0.02)
        await expect(page.locator("#entry-text")).to_be_empty()  # what was dragged was not pressed
        await page.get_by_role("button", name="Zoom out").click()
        assert (await view(page))[1] - (await view(page))[0] > near[1] - near[0]
        await page.get_by_role("button", name="Whole").click()
        assert await view(page) == pytest.approx(whole)


async def test_keys_are_enough(tmp_path: Path) -> None:
    async with looking(tmp_path) as page:
        score = page.get_by_role("slider")
        await score.focus()
        await page.keyboard.press("Home")
        assert (await entry(page))["seq"] == 1
        await page.keyboard.press("ArrowRight")
        await expect(page.locator("#entry-name")).to_contain_text("SpeechStarted")  # past the quiet ones
        await page.keyboard.press("Alt+ArrowLeft")
        await expect(page.locator("#entry-name")).to_contain_text("AppendAudio → AudioReceived")
        await page.keyboard.press("i")
        await expect(page.locator("#entry-name")).to_contain_text("Interrupted")
        assert "Interrupted" in (await score.get_attribute("aria-valuetext") or "")
        before = await view(page)
        await page.keyboard.press("+")
        after = await view(page)
        assert after[1] - after[0] == pytest.approx((before[1] - before[0]) / 2)
        await page.keyboard.press("Shift+ArrowLeft")
        assert (await view(page))[0] < after[0]
        await page.keyboard.press("0")
        assert await view(page) == pytest.approx(before)
        await page.keyboard.press("/")
        await page.keyboard.type("sessionresumed")
        await expect(page.locator("#found")).to_have_text("1")
        await page.keyboard.press("Enter")
        await expect(page.locator("#entry-name")).to_contain_text("SessionResumed")


async def test_an_address_leads_to_an_entry(tmp_path: Path) -> None:
    async with looking(tmp_path, hash_="#seq=7") as page:
        assert (await entry(page))["seq"] == 7
        assert await page.evaluate("antiphon.view.x(antiphon.entries.at(6)) - antiphon.view.width / 2") < 100


@pytest.mark.parametrize("dark", [False, True])
async def test_it_is_as_wide_as_a_telephone(tmp_path: Path, dark: bool) -> None:
    async with looking(tmp_path, width=390, dark=dark) as page:
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        await page.locator("#latencies button").click()
        await expect(page.locator("#entry-name")).to_contain_text("AudioDelta")
        paper = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert paper == ("rgb(21, 23, 27)" if dark else "rgb(248, 244, 236)")


async def test_a_server_shows_its_sessions_under_its_policy(server: ServerProcess) -> None:
    """The list, and a session that still goes on, with nothing that the policy would not let run."""
    address = f"ws{server.url.removeprefix('http')}/v1/realtime?model=echo"
    async with Wire.to(address) as wire, browsing(f"{server.url}/sessions", None, width=390) as (page, complaints):
        session = (await wire.until("session.created"))["session"]["id"]
        await page.reload()
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        await page.get_by_role("link", name=session).click()
        await page.wait_for_url("**/sessions/*")
        await drawn(page)
        await expect(page.locator("#name")).to_have_text(session)
        await expect(page.locator("#facts")).to_contain_text("not closed")
        await page.get_by_role("slider").focus()
        await page.keyboard.press("Home")
        assert (await entry(page))["seq"] == 1
        assert not complaints
