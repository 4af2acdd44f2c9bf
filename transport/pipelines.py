"""Pipelines as data: what answers, where it runs, and how many sessions it can hold."""

from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

Factory = str
"""A dotted name: `module:callable`."""


class StageChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stage, and its hosting: on the event loop, in a thread, or in a process of its own."""

    factory: Factory
    hosting: Literal["inline", "thread", "process"]
    arguments: dict[str, object] = {}


class VoiceActivity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What scores speech; it runs in a thread, for all sessions together."""

    factory: Factory


class Pipeline(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to answer. `plugin` names the session half, `model` what clients are shown."""

    name: str
    model: str
    plugin: str
    max_sessions: int
    stage: StageChoice
    voice_activity: VoiceActivity


class PipelineError(Exception):
    """There is no such pipeline, or its description is wrong. The message names what."""


_decode = msgspec.toml.decode


def shipped() -> list[str]:
    """Return the names of the pipelines that come with the package."""
    folder = files("antiphon.stages") / "pipelines"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name: str) -> Pipeline:
    """Return a shipped pipeline.

    Raises:
        PipelineError: there is none of this name.
    """
    if name not in shipped():
        raise PipelineError(f"there is no pipeline {name!r}; there are: {', '.join(shipped())}")
    return read((files("antiphon.stages") / "pipelines" / f"{name}.toml").read_text("utf-8"))


def read(text: str) -> Pipeline:
    """Return the pipeline that a description in TOML says.

    Raises:
        PipelineError: a key is missing, unknown or of the wrong type; the message names it.
    """
    try:
        return _decode(text, type=Pipeline)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise PipelineError(f"the description of a pipeline is wrong: {error}") from error
