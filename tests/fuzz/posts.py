"""Requests with a body: for a chat completion, and for a client secret."""

import json
import random
from typing import Any

from . import mutations

TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hello"}]}),
    (
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
            ],
            "tools": [TOOL],
            "tool_choice": "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_completion_tokens": 20,
            "temperature": 0.5,
            "seed": 1,
            "n": 1,
            "stop": ["x"],
            "metadata": {"a": "b"},
            "user": "me",
        },
    ),
    (
        "/v1/chat/completions",
        {
            "model": "m",
            "modalities": ["text", "audio"],
            "audio": {"voice": "default", "format": "wav"},
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "say it"},
                        {"type": "input_audio", "input_audio": {"data": "UklGRiQAAABXQVZF", "format": "wav"}},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                    ],
                }
            ],
        },
    ),
    (
        "/v1/realtime/client_secrets",
        {
            "expires_after": {"anchor": "created_at", "seconds": 600},
            "session": {
                "type": "realtime",
                "model": "m",
                "instructions": "Be brief.",
                "audio": {"input": {"turn_detection": {"type": "server_vad"}}, "output": {"voice": "default"}},
                "tools": [{"type": "function", "name": "look", "parameters": {}}],
            },
        },
    ),
)


def strange(rng: random.Random) -> bytes:
    """Draw a request, the body of which is mostly wrong."""
    path, asked = rng.choice(ASKED)
    body = json.dumps(asked).encode() if rng.random() < 0.1 else mutations.mutated(rng, asked)
    heads = ["Host: here", "Authorization: Bearer right"]
    if rng.random() < 0.9:
        heads.append(f"Content-Type: {rng.choice(('application/json', 'application/json', 'text/plain', '', ';'))}")
    roll = rng.random()
    if roll < 0.1:
        heads.append("Transfer-Encoding: chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if rng.random() < 0.7 else body
    else:
        size = len(body) if roll < 0.93 else rng.choice((0, len(body) // 2, len(body) + 5, 2**40))
        heads.append(f"Content-Length: {size}")
    method = "POST" if rng.random() < 0.97 else rng.choice(("GET", "PUT", "DELETE"))
    return "\r\n".join((f"{method} {path} HTTP/1.1", *heads, "", "")).encode() + body
