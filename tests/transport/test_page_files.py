"""The page's files over HTTP: types, policy, and what need not be sent again."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

import anyio.to_thread
import pytest

from antiphon.transport.access import Access
from antiphon.transport.keys import Keys

from .serving import serving

PAGE = Path(__file__).resolve().parents[2] / "transport" / "page"


def fetch(url: str, headers: dict[str, str]) -> tuple[int, Message, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


async def got(url: str, **headers: str) -> tuple[int, Message, bytes]:
    return await anyio.to_thread.run_sync(
        fetch, url, {name.replace("_", "-"): value for name, value in headers.items()}
    )


async def test_the_page_stands_at_the_root_and_needs_no_key() -> None:
    async with serving(access=Access(keys=Keys.of("secret"))) as here:
        status, headers, body = await got(here.http + "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert body == (PAGE / "index.html").read_bytes()


@pytest.mark.parametrize("name", sorted(path.name for path in PAGE.iterdir()))
async def test_every_file_is_served_with_its_type(name: str) -> None:
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
    async with serving() as here:
        status, headers, body = await got(f"{here.http}/page/{name}")
    assert status == 200
    assert headers["content-type"].startswith(types[name.rpartition(".")[2]])
    assert headers["x-content-type-options"] == "nosniff"
    assert body == (PAGE / name).read_bytes()


async def test_what_a_browser_has_is_not_sent_again() -> None:
    async with serving() as here:
        _, first, _ = await got(here.http + "/page/app.js")
        status, again, body = await got(here.http + "/page/app.js", If_None_Match=f'"other", W/{first["etag"]}')
        changed, _, _ = await got(here.http + "/page/app.js", If_None_Match='"other"')
    assert (status, body, again["etag"]) == (304, b"", first["etag"])
    assert changed == 200


async def test_nothing_comes_from_elsewhere_and_no_script_stands_in_the_page() -> None:
    async with serving() as here:
        _, headers, body = await got(here.http + "/")
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert not re.findall(rb"<style|<script>|\son\w+=|\sstyle=|https?://", body)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_what_is_written_can_be_read_by_day_and_by_night(theme: int) -> None:
    """4.5 to 1 for text, 3 to 1 for what is not (WCAG AA)."""
    blocks = re.findall(r":root \{(.*?)\}", (PAGE / "style.css").read_text(), re.S)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", blocks[theme]))
    for ground in ("paper", "page"):
        for ink in ("ink", "soft", "you", "answer", "rubric"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for mark in ("good", "edge"):
            assert contrast(colours[mark], colours[ground]) >= 3, (mark, ground)
    for filled in ("answer", "you"):
        assert contrast(colours["on-primary"], colours[filled]) >= 4.5


@pytest.mark.parametrize("name", ["nothing.js", "..%2fhttp_api.py", "../http_api.py", ".."])
async def test_nothing_else_is_served(name: str) -> None:
    async with serving() as here:
        status, headers, _ = await got(f"{here.http}/page/{name}")
    assert (status, headers["content-type"]) == (404, "application/json")
