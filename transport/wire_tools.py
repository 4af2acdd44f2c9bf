"""Tools and tool choice: checked, brought into one form, and handed on as JSON text (WIRE 4.3)."""

import re
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from antiphon.events.config import JsonText

from .wire_client import ABSENT
from .wire_errors import WireError, bad_value, missing, quoted, translate
from .wire_limits import MOST_TOOLS_JSON, bounded

MOST_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class FunctionIn(Struct, frozen=True):
    """The function of a tool in the chat spelling."""

    name: str
    description: str | None = None
    parameters: Raw = ABSENT


class ToolIn(Struct, frozen=True):
    """A tool in either spelling."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: Raw = ABSENT
    function: FunctionIn | None = None


class Tool(Struct, frozen=True, omit_defaults=True):
    """A tool in the one spelling that is kept and shown."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: Raw = ABSENT


class Choice(Struct, frozen=True):
    """The object spelling of a tool choice."""

    type: str
    name: str | None = None


_decode_tools = msgspec.json.Decoder(list[ToolIn] | None).decode
_decode_kept = msgspec.json.Decoder(list[Tool]).decode
_Choice = Literal["none", "auto", "required"] | Choice
_decode_choice = msgspec.json.Decoder(_Choice | None).decode


def tools_from(raw: Raw, path: str) -> JsonText:
    """Return the tools that a client gave, in the form that is kept; null clears them.

    Raises:
        WireError: `bad_event` or `unsupported`.
    """
    try:
        given = _decode_tools(raw) or []
    except msgspec.ValidationError as error:
        raise translate(error, list[ToolIn], f"{path}.") from None
    if len(given) > MOST_TOOLS:
        raise bad_value(f"There are at most {MOST_TOOLS} tools.", path)
    tools = [_tool(tool, f"{path}[{index}]") for index, tool in enumerate(given)]
    if len({tool.name for tool in tools}) != len(tools):
        raise bad_value("Two tools have the same name.", path)
    return bounded(msgspec.json.encode(tools).decode(), MOST_TOOLS_JSON, path)


def choice_from(raw: Raw, tools: JsonText, path: str) -> JsonText:
    """Return the tool choice that a client gave; null means `auto`.

    Raises:
        WireError: `bad_event`.
    """
    try:
        choice = _decode_choice(raw)
    except msgspec.ValidationError as error:
        raise translate(error, _Choice, f"{path}.") from None
    if isinstance(choice, Choice):
        if choice.type != "function":
            raise bad_value("A tool choice names a function.", f"{path}.type")
        if choice.name not in {tool.name for tool in _decode_kept(tools)}:
            raise bad_value(f"There is no tool {quoted(choice.name or '')}.", f"{path}.name")
    return msgspec.json.encode(choice or "auto").decode()


def _tool(tool: ToolIn, path: str) -> Tool:
    if tool.type == "mcp":
        raise WireError("unsupported", "MCP tools are not supported.", f"{path}.type")
    if tool.type != "function":
        raise bad_value(f"There is no tool type {quoted(tool.type)}.", f"{path}.type")
    function = tool.function or tool
    if function.name is None:
        raise missing(f"{path}.name")
    if not _NAME.match(function.name):
        raise bad_value("A tool's name has 1 to 64 of A-Z a-z 0-9 _ -.", f"{path}.name")
    return Tool("function", function.name, function.description, function.parameters)
