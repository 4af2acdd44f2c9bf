"""Bodies of requests that are no text, come too slowly, or not at all: the same answer from every endpoint."""

import logging

import anyio
import pytest

from antiphon.transport import http_body

from .serving import Serving, serving

pytestmark = pytest.mark.anyio

ENDPOINTS = ("/v1/chat/completions", "/v1/realtime/client_secrets")


def asked(path: str, size: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()


async def answer(served: Serving, sent: bytes) -> bytes:
    """Return the beginning of the answer."""
    async with await anyio.connect_tcp("127.0.0.1", served.server.port) as stream:
        await stream.send(sent)
        with anyio.fail_after(10):
            return await stream.receive()


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_body_that_is_no_text_is_refused(path: str) -> None:
    body = b'{"messages":[{"role":"user","content":"\xff"}],"session":{"instructions":"\xff"}}'
    async with serving() as served:
        assert (await answer(served, asked(path, len(body)) + body)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_body_that_does_not_come_is_not_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_body, "BODY_S", 0.05)
    async with serving() as served:
        assert (await answer(served, asked(path, 100) + b"{")).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_who_goes_in_the_middle_of_a_body_is_no_error(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served:
        async with await anyio.connect_tcp("127.0.0.1", served.server.port) as stream:
            await stream.send(asked(path, 100) + b"{")
        assert b"200 OK" in await answer(served, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
