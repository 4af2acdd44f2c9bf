"""Requests for an upgrade: valid ones of each dialect, and what strangers send instead."""

import random

from .frames import damaged

KEY = "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="
BETA = "OpenAI-Beta: realtime=v1"
HEADS = ("Host: here", "Upgrade: websocket", "Connection: Upgrade", KEY, "Sec-WebSocket-Version: 13")
PATHS = (
    "/v1/realtime",
    "/v1/realtime?model=m",
    "/v1/realtime?duplex=1&model=m",
    "/v1/realtime?duplex=1&model=m&autostart=0",
    "/v1/duplex",
)
ODD_PATHS = (
    "/",
    "/health",
    "/v1/models",
    "/v1/models/antiphon",
    "/v1/models/..%2f..%2fetc",
    "/v1/realtime/",
    "/v1/realtime?resumable=1",
    "/v1/realtime?session_id=sess_0&resume_token=x&last_event_id=event_0",
    "/v1/realtime?session_id=%ff&resume_token=%00&last_event_id=" + "event_" + "f" * 32,
    "/v1/realtime?observe=sess_0&observer_token=x",
    "/v1/realtime?observe=%ff&observer_token=%ff&resume=1&duplex=1",
    "/v1/realtime?observe=&session_id=&resume_token=",
    "/v1/realtime?api_key=%e2",
    "/v1/realtime?intent=transcription",
    "/v1/realtime?call_id=1",
    "/v1/realtime?model=" + "m" * 300,
    "/v1/realtime?model=" + "m" * 70_000,
    "/v1/realtime?model=../../x",
    "/v1/realtime?model=%ff%fe%00",
    "/v1/realtime?duplex=%31&duplex=0&&==&%",
    "/v1/realtime?" + "a=1&" * 2000,
    "/v1/realtime#part",
    "//v1/realtime",
    "/v1/../v1/realtime",
    "/%76%31/realtime",
    "/v1/realtime;x",
    "http://elsewhere/v1/realtime",
    "http://[::1/v1/realtime",
    "//[/v1/realtime",
    "*",
    "v1/realtime",
    "/v1/real\ttime",
    "/v1/re\xe9ltime",
)
ODD_HEADS = (
    "Sec-WebSocket-Protocol: realtime",
    "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.secret",
    "Sec-WebSocket-Protocol: openai-beta.realtime-v1",
    "Sec-WebSocket-Protocol: ,,;\x01",
    "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
    "Sec-WebSocket-Extensions: permessage-deflate; =; x",
    "Sec-WebSocket-Extensions: " + "a," * 500,
    "Sec-WebSocket-Version: 12",
    "Sec-WebSocket-Version: thirteen",
    "Sec-WebSocket-Key: short",
    "Sec-WebSocket-Key: @@@@",
    "Sec-WebSocket-Key: x3JJHM\xe2DL1EzLkh9GBhXDw==",
    "Sec-WebSocket-Version: 1\xb3",
    "Sec-WebSocket-Protocol: r\xe9altime",
    "Sec-WebSocket-Extensions: \xff",
    "api-key: \xe2",
    "Origin: \xe2",
    "OpenAI-Beta: \xff",
    "Upgrade: websock\xe9t",
    "Connection: \xff, Upgrade",
    KEY,
    BETA,
    "Upgrade: h2c",
    "Upgrade: websocket, h2c",
    "Connection: close",
    "Connection: keep-alive, Upgrade",
    "Origin: http://evil.example",
    "Authorization: Bearer x",
    "Authorization: Bearer right",
    "Authorization: bearer  right ",
    "Authorization: Basic right",
    "Authorization:",
    "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.right",
    "Sec-WebSocket-Protocol: openai-insecure-api-key.r\xe9ght",
    "Authorization: \xff\xfe",
    "Content-Length: 5",
    "Content-Length: -1",
    "Content-Length: 5, 6",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Expect: 100-continue",
    "Host: there",
    "Host: [",
    "Host: [::1",
    "Host: a:b:c",
    "X: " + "y" * 9000,
    "X: " + "z" * 70_000,
    ": no name",
    "No colon",
    " folded",
    "Na me: x",
    "X\0: y",
    "X: a\rb",
    "X: a\0b",
)
NOISE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(60)),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"\0" * 100,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x81\x80\0\0\0\0",
    b"x" * 70_000,
)


def request(path: str, *more: str) -> bytes:
    """Return the valid request for a websocket."""
    return "\r\n".join((f"GET {path} HTTP/1.1", *HEADS, *more, "", "")).encode("latin-1")


def strange(rng: random.Random) -> bytes:
    """Draw a request that is wrong, or merely unusual."""
    if rng.random() < 0.1:
        return rng.choice(NOISE) + (request(PATHS[0]) if rng.random() < 0.5 else b"")
    if rng.random() < 0.35:
        heads = rng.choices(ODD_HEADS, k=rng.choice((1, 1, 2)))
        return request(rng.choice(PATHS if rng.random() < 0.7 else ODD_PATHS), *heads)
    path = rng.choice(PATHS if rng.random() < 0.4 else ODD_PATHS)
    method = rng.choice((*["GET"] * 5, "POST", "HEAD", "OPTIONS", "get", "CONNECT", "G" * 50, "", "GET "))
    version = rng.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2", "HTTP/1.1 ", "", "http/1.1"))
    heads = list(HEADS)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        heads.pop(rng.randrange(len(heads)))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        heads.insert(rng.randrange(len(heads) + 1), rng.choice(ODD_HEADS))
    if rng.random() < 0.05:
        heads += ["X: y"] * rng.choice((100, 3000))
    end = rng.choice(("\r\n", "\r\n", "\r\n", "\r\n", "\n"))
    data = end.join((f"{method} {path} {version}", *heads, "", "")).encode("latin-1")
    if rng.random() < 0.15:
        data += rng.choice(
            (
                b"hello",
                b"5\r\nhello\r\n0\r\n\r\n",
                b"zz\r\n",
                request(PATHS[0]),
                b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
            )
        )
    if rng.random() < 0.15:
        data = damaged(rng, data)
    return data[: rng.randrange(len(data))] if data and rng.random() < 0.08 else data
