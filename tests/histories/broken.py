"""Two logs that `antiphon replay` must not pass: one is damaged, one says what nobody decides."""

import msgspec

SOURCE = "spoken_turn"


def place_in(lines: list[bytes]) -> int:
    """Return the transaction of a log in which speech interrupts an answer: that is where it is broken."""
    return next(seq for seq, line in enumerate(lines, 1) if b'"type":"Interrupted"' in line)


def broken(name: str, log: str) -> dict[str, str]:
    """Return what is made of the log of a scene, by name."""
    if name != SOURCE:
        return {}
    head, *lines = log.encode().splitlines()
    at = place_in(lines) - 1
    cut = lines[at][: len(lines[at]) // 2]
    transaction = msgspec.json.decode(lines[at])
    ended = next(event for event in transaction["events"] if event["type"] == "ResponseEnded")
    ended["status"] = "completed"
    changed = msgspec.json.encode(transaction)
    return {
        "damaged": _text(head, [*lines[:at], cut, *lines[at + 1 :]]),
        "divergent": _text(head, [*lines[:at], changed, *lines[at + 1 :]]),
    }


def _text(head: bytes, lines: list[bytes]) -> str:
    return b"".join(line + b"\n" for line in [head, *lines]).decode()
