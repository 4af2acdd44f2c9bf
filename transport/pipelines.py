"""Pipelines as data: what answers, where it runs, and how many sessions it can hold."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

Factory = str
"""A dotted name: `module:callable`."""


class StageChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stage, and its hosting: on the event loop, in a thread, or in a process of its own."""

    factory: Factory
    hosting: Literal["inline", "thread", "process"]
    arguments: dict[str, object] = {}
    models: tuple[str, ...] = ()
    """Arguments that name a model: a packaged one, a local path, or a place on a hub."""


class VoiceActivity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What scores speech; it runs in a thread, for all sessions together."""

    factory: Factory
    arguments: dict[str, object] = {}
    models: tuple[str, ...] = ()


class Pipeline(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to answer. `plugin` names the session half, `model` what clients are shown.

    `warm_up` units of sound are given to the model before the first client is let in, else as many as it wants.
    """

    name: str
    model: str
    plugin: str
    max_sessions: int
    warm_up: int | None = None
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
    """Return a shipped pipeline, or the one that a file describes (a path that ends in `.toml`).

    Raises:
        PipelineError: there is none of this name, or the file cannot be used.
    """
    if name.endswith(".toml"):
        try:
            return read(Path(name).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise PipelineError(f"cannot read the pipeline {name}: {error}") from error
    if name not in shipped():
        raise PipelineError(
            f"there is no pipeline {name!r}; there are: {', '.join(shipped())}, or name a file that ends in .toml"
        )
    return read((files("antiphon.stages") / "pipelines" / f"{name}.toml").read_text("utf-8"))


def with_models(pipeline: Pipeline, models: Mapping[str, str]) -> Pipeline:
    """Return the pipeline with other models in the places named (`asr`, `llm`, …).

    Raises:
        PipelineError: the pipeline has no such place.
    """
    stage, activity = pipeline.stage, pipeline.voice_activity
    for place, model in models.items():
        if place in stage.models:
            stage = replace(stage, arguments={**stage.arguments, place: model})
        elif place in activity.models:
            activity = replace(activity, arguments={**activity.arguments, place: model})
        else:
            known = ", ".join((*stage.models, *activity.models)) or "none"
            raise PipelineError(
                f"the pipeline {pipeline.name!r} has no model {place!r} to replace (it has: {known})"
            )
    return replace(pipeline, stage=stage, voice_activity=activity)


def read(text: str) -> Pipeline:
    """Return the pipeline that a description in TOML says.

    Raises:
        PipelineError: a key is missing, unknown or of the wrong type; the message names it.
    """
    try:
        return _decode(text, type=Pipeline)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise PipelineError(f"the description of a pipeline is wrong: {error}") from error
