"""How much JSON of a client is kept: options, tools, and fields that are only shown again (WIRE 12.15)."""

from collections.abc import Mapping

from antiphon.events.config import JsonText
from antiphon.events.items import MOST_WORDS, Item, written

from .wire_errors import bad_value

MOST_TOOLS_JSON = 1024 * 1024
MOST_OPTIONS = 64 * 1024
MOST_SHOWN = 16 * 1024
MOST_INPUT = 4 * 1024 * 1024
"""Bytes of `response.input`: what one answer is made from."""


def bounded(text: JsonText, most: int, path: str) -> JsonText:
    """Return a JSON text of at most `most` bytes.

    Raises:
        WireError: `bad_event`.
    """
    if len(text.encode()) > most:
        raise bad_value(f"This has at most {most} bytes of JSON.", path)
    return text


def check_options(options: Mapping[str, JsonText], path: str) -> None:
    """Accept the options of `extra_body` that are kept, with those that were given before.

    Raises:
        WireError: `bad_event`.
    """
    if (
        sum(len(key.encode()) + len(text.encode()) for key, text in options.items() if text != "null")
        > MOST_OPTIONS
    ):
        raise bad_value(f"The options have at most {MOST_OPTIONS} bytes of JSON together.", path)


def check_written(item: Item, path: str) -> None:
    """Accept the words of an item.

    Raises:
        WireError: `bad_event`.
    """
    if written(item) > MOST_WORDS:
        raise bad_value(f"The words of one item have at most {MOST_WORDS} bytes.", path)
