"""A real Chromium whose microphone is a WAV file, and the page of a real server in it."""

from __future__ import annotations

import os
import shutil
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.async_api import ConsoleMessage, Page, async_playwright

RATE = 48_000
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)


def executable() -> str:
    """Return the browser. Without one the test is skipped with the reason; where everything must run it fails."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing = "there is no Chromium: `make browser` as root, or install the package `chromium`"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def spoken(*phrases: float) -> NDArray[np.int16]:
    """Return something like speech: seconds of voice and of silence by turns, beginning with silence."""
    parts = [_voice(seconds) if i % 2 else np.zeros(int(seconds * RATE)) for i, seconds in enumerate(phrases)]
    return (np.concatenate(parts) * 32_767).astype(np.int16)


def _voice(seconds: float) -> NDArray[np.float64]:
    """A glottal tone with formants, in syllables."""
    t = np.arange(int(seconds * RATE)) / RATE
    pitch = 2 * np.pi * np.cumsum(130 + 18 * np.sin(2 * np.pi * 0.9 * t)) / RATE
    tone = sum(np.sin(n * pitch) / n * (1 + 1.5 * np.exp(-(((n * 130 - 600) / 300) ** 2))) for n in range(1, 20))
    syllables = 0.25 + 0.75 * np.clip(np.sin(2 * np.pi * 3.2 * t), 0, 1)
    return np.asarray(0.16 * tone * syllables)


def write(path: Path, samples: NDArray[np.int16]) -> Path:
    """Write what the microphone shall hear."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, len(samples), "NONE", ""))
        file.writeframes(samples.tobytes())
    return path


class Complaints(list[str]):
    """What the page's console says is wrong, and what it throws."""

    def heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.append(message.text)


@asynccontextmanager
async def browsing(
    url: str,
    microphone: Path | None,
    *,
    width: int = 1280,
    height: int = 800,
    dark: bool = False,
    open_to_tests: bool = False,
) -> AsyncIterator[tuple[Page, Complaints]]:
    """Open the page of a server in a browser of its own. The file is played to the microphone once; None: it beeps.

    `open_to_tests`: modules that are not the server's may be loaded into it.
    """
    heard = [] if microphone is None else [f"--use-file-for-fake-audio-capture={microphone}%noloop"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable(), args=[*FLAGS, *heard])
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            bypass_csp=open_to_tests,
        )
        await context.grant_permissions(["microphone", "camera"])
        page = await context.new_page()
        complaints = Complaints()
        page.on("console", complaints.heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        try:
            await page.goto(url)
            yield page, complaints
        finally:
            await browser.close()
