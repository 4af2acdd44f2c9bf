"""The import table of docs/design.md and two rules of the house, held over the syntax tree of every file."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

FOLDERS = ("events", "sessions", "stages", "kernels", "engine", "transport")

# What a folder may import of ours, beside itself. An entry is a module; what lies below it is meant too.
OURS: dict[str, tuple[str, ...]] = {
    "events": (),
    "sessions": ("events",),
    "stages": ("events", "kernels"),
    "kernels": (),
    "engine": ("events", "sessions", "stages.base"),
    "transport": ("events", "engine"),
}
ALSO_OURS = {"transport/serve.py": ("stages",)}  # the one place that knows concrete stages

# The two pure folders: of third parties only msgspec, and nothing that reads a clock or the machine, or that
# waits. Chance: an id for a new session has to come from somewhere (events.ids), but never from a decision.
THIRD_PARTIES = {"events": {"msgspec"}, "sessions": {"msgspec"}}
IMPURE = {
    "asyncio", "concurrent", "multiprocessing", "os", "random", "selectors", "socket", "subprocess", "threading",
    "time", "uuid",
}  # fmt: skip

MODELS = {"ctranslate2", "diffusers", "onnxruntime", "torch", "transformers", "triton", "vllm"}
SERVERS = {"starlette", "uvicorn", "websockets"}
FOREIGN: dict[str, set[str]] = {
    "events": IMPURE,
    "sessions": IMPURE | {"secrets"},
    "engine": MODELS | SERVERS,
    "transport": MODELS,
}
WIRE = {"anyio", "asyncio"} | SERVERS  # transport/wire*.py thinks and does no I/O

BOUNDARIES = ("engine/boundary.py", "engine/hosts.py")  # where everything may be caught


@dataclass(frozen=True)
class Imported:
    """One module that a file names: its absolute dotted name, where, and whether it was named relatively."""

    name: str
    line: int
    relative: bool = False


def imports(path: PurePosixPath, tree: ast.Module) -> Iterator[Imported]:
    """Every module that a file imports, wherever the import stands; guards for type checkers count too."""
    package = ("antiphon", *path.parent.parts)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (Imported(alias.name, node.lineno) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package[: len(package) - level + 1] if level else ()
                base = ".".join((*above, module) if module else above)
                if base == "antiphon" or base.removeprefix("antiphon.") in FOLDERS:
                    # These are namespaces: what is taken out of them is itself a module.
                    yield from (Imported(f"{base}.{alias.name}", node.lineno, level > 0) for alias in names)
                else:
                    yield Imported(base, node.lineno, level > 0)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Imported(name, node.lineno)


def within(module: str, roots: tuple[str, ...]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def import_faults(path: PurePosixPath, tree: ast.Module) -> Iterator[tuple[int, str]]:
    folder = path.parts[0]
    allowed = (folder, *OURS[folder], *ALSO_OURS.get(str(path), ()))
    if str(path) == "stages/base.py":  # the engine sees it, so it sees no concrete stage
        allowed = ("events", "stages.base")
    foreign = FOREIGN.get(folder, set[str]())
    if folder == "transport" and path.name.startswith("wire"):
        foreign = foreign | WIRE
    if str(path) == "stages/base.py":
        foreign = foreign | MODELS
    for imported in imports(path, tree):
        top, _, below = imported.name.partition(".")
        if top == "antiphon":
            if below == "__version__":
                continue
            if not below:
                yield imported.line, "imports antiphon as a whole: name the module"
            elif below.split(".")[0] not in FOLDERS:
                yield imported.line, f"imports {imported.name}, which is none of the six folders"
            elif not within(below, allowed):
                yield imported.line, f"imports {imported.name}, which {path} may not"
        elif top in FOLDERS:
            yield imported.line, f"imports {top} by its bare name: antiphon.{top}"
        elif top in foreign:
            yield imported.line, f"imports {top}, which {path} may not"
        elif folder in THIRD_PARTIES and top not in sys.stdlib_module_names | THIRD_PARTIES[folder]:
            yield imported.line, f"imports {top}: of third parties, {folder} knows msgspec only"


def own_style_faults(files: dict[PurePosixPath, ast.Module]) -> Iterator[str]:
    """Inside one folder, files name each other in one way: all relatively or all absolutely.

    pyright reads the root folders and follows `antiphon.x` through the links in src, so a class that is
    reached both ways counts as two classes.
    """
    for folder in FOLDERS:
        seen: dict[bool, str] = {}
        for path, tree in files.items():
            for imported in imports(path, tree):
                if path.parts[0] == folder and within(imported.name, (f"antiphon.{folder}",)):
                    seen.setdefault(imported.relative, f"{path}:{imported.line}")
        if len(seen) == 2:
            yield f"{folder} names its own modules relatively ({seen[True]}) and absolutely ({seen[False]})"


def caught(kind: ast.expr | None) -> Iterator[str]:
    """The names in an except clause; an empty clause catches BaseException."""
    match kind:
        case None:
            yield "BaseException"
        case ast.Tuple(elts=kinds):
            for one in kinds:
                yield from caught(one)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case _:
            pass


def catch_faults(path: PurePosixPath, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """`except Exception` stands at the two boundaries; a BaseException may be re-raised."""
    if str(path) in BOUNDARIES:
        return
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=kind, body=body):
                names = set(caught(kind))
                reraises = isinstance(body[-1], ast.Raise) and body[-1].exc is None
                if "Exception" in names or ("BaseException" in names and not reraises):
                    yield node.lineno, "catches everything outside the boundaries of a session and of a host"
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=kinds):
                if {"Exception", "BaseException"} & {name for kind in kinds for name in caught(kind)}:
                    yield node.lineno, "suppresses everything outside the boundaries of a session and of a host"
            case _:
                pass


def names_task_group(node: ast.expr | None) -> bool:
    """Whether an annotation or a called constructor is a task group."""
    match node:
        case ast.Call(func=called):
            return names_task_group(called)
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name.rpartition(".")[2] in {"TaskGroup", "create_task_group"}
        case _:
            return False


def task_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """No task outlives its block: `create_task` is a method of a task group and of nothing else."""
    groups: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.withitem(context_expr=made, optional_vars=ast.Name(id=name)) if names_task_group(made):
                groups.add(name)
            case ast.arg(arg=name, annotation=kind) if names_task_group(kind):
                groups.add(name)
            case _:
                pass
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="create_task")) if name in groups:
                pass
            case ast.Call(
                func=ast.Attribute(attr="create_task" | "ensure_future" as made)
                | ast.Name(id="create_task" | "ensure_future" as made)
            ):
                yield node.lineno, f"calls {made} outside a task group"
            case _:
                pass


def faults(path: str, source: str) -> list[str]:
    """Everything that one file does against the table and the two rules."""
    where = PurePosixPath(path)
    tree = ast.parse(source)
    found = [*import_faults(where, tree), *catch_faults(where, tree), *task_faults(tree)]
    return [f"{path}:{line}: {text}" for line, text in sorted(found)]


def sources(root: Path) -> dict[PurePosixPath, str]:
    return {
        PurePosixPath(path.relative_to(root).as_posix()): path.read_text("utf-8")
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_keeps_to_the_table(root: Path, folder: str) -> None:
    found = [
        fault
        for path, text in sources(root).items()
        if path.parts[0] == folder
        for fault in faults(str(path), text)
    ]
    assert not found, "\n" + "\n".join(found)


def test_each_folder_names_its_own_modules_in_one_way(root: Path) -> None:
    found = list(own_style_faults({path: ast.parse(text) for path, text in sources(root).items()}))
    assert not found, "\n" + "\n".join(found)


def test_there_is_something_to_check(root: Path) -> None:
    assert {path.parts[0] for path in sources(root)} >= {
        "events",
        "sessions",
        "stages",
        "engine",
        "transport",
    }


PLANTED = [
    # the table
    ("events/a.py", "import antiphon.sessions.state"),
    ("events/a.py", "from antiphon.engine import hub"),
    ("events/a.py", "import numpy"),
    ("events/a.py", "from asyncio import Queue"),
    ("events/a.py", "import os.path"),
    ("events/a.py", "import time"),
    ("sessions/a.py", "import anyio"),
    ("sessions/a.py", "import asyncio"),
    ("sessions/a.py", "import torch"),
    ("sessions/a.py", "import structlog"),
    ("sessions/a.py", "from time import monotonic"),
    ("sessions/a.py", "import random"),
    ("sessions/a.py", "import secrets"),
    ("sessions/a.py", "import numpy"),
    ("sessions/a.py", "from uuid import uuid4"),
    ("sessions/a.py", "from os import environ"),
    ("sessions/a.py", "from antiphon.engine.hub import Hub"),
    ("sessions/a.py", "from antiphon.stages.base import Stage"),
    ("sessions/a.py", "from antiphon import transport"),
    ("stages/a.py", "from antiphon.sessions import state"),
    ("stages/a.py", "import antiphon.engine"),
    ("stages/a.py", "import antiphon.transport.wire as wire"),
    ("stages/base.py", "from antiphon.stages.vad import Vad"),
    ("stages/base.py", "from .vad import Vad"),
    ("stages/base.py", "import torch"),
    ("kernels/a.py", "from antiphon.events import ids"),
    ("kernels/a.py", "from antiphon.stages.base import Stage"),
    ("engine/a.py", "from antiphon.stages.vad import Vad"),
    ("engine/a.py", "from antiphon.stages import vad"),
    ("engine/a.py", "import antiphon.stages"),
    ("engine/a.py", "from antiphon.stages.base_other import x"),
    ("engine/a.py", "from antiphon.transport.wire import decode"),
    ("engine/a.py", "from antiphon.kernels import norm"),
    ("engine/a.py", "import websockets.asyncio.server"),
    ("engine/a.py", "import torch"),
    ("transport/a.py", "from antiphon.sessions.state import Session"),
    ("transport/a.py", "from antiphon.stages.base import Stage"),
    ("transport/cli.py", "from antiphon.stages.vad import Vad"),
    ("transport/serve.py", "from antiphon.sessions import state"),
    ("transport/serve.py", "from antiphon.kernels import norm"),
    ("transport/wire.py", "import anyio"),
    ("transport/wire_duplex.py", "from websockets.exceptions import ConnectionClosed"),
    # every way of writing an import
    ("sessions/a.py", "from ..engine import hub"),
    ("sessions/a.py", "from .. import engine"),
    ("sessions/deep/a.py", "from ...engine.hub import Hub"),
    ("engine/a.py", "from ..stages.vad import Vad"),
    ("sessions/a.py", "def f():\n    import antiphon.engine.hub"),
    (
        "sessions/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from antiphon.engine.hub import Hub",
    ),
    ("sessions/a.py", "try:\n    import anyio\nexcept ImportError:\n    pass"),
    ("sessions/a.py", "import importlib\nimportlib.import_module('antiphon.engine.hub')"),
    ("sessions/a.py", "__import__('random')"),
    ("sessions/a.py", "import msgspec, time"),
    ("engine/a.py", "import events"),
    ("engine/a.py", "from kernels.norm import norm"),
    ("engine/a.py", "import antiphon"),
    ("engine/a.py", "from antiphon.elsewhere import x"),
    # everything is caught in two places only
    ("engine/a.py", "try:\n    f()\nexcept Exception:\n    pass"),
    ("engine/a.py", "try:\n    f()\nexcept (ValueError, Exception) as error:\n    pass"),
    ("stages/a.py", "try:\n    f()\nexcept:\n    pass"),
    ("stages/a.py", "try:\n    f()\nexcept builtins.Exception:\n    pass"),
    ("stages/a.py", "try:\n    f()\nexcept* Exception:\n    pass"),
    ("transport/a.py", "try:\n    f()\nexcept BaseException:\n    pass"),
    ("transport/a.py", "import contextlib\nwith contextlib.suppress(Exception):\n    f()"),
    # no task outlives its block
    ("engine/a.py", "import asyncio\nasyncio.create_task(f())"),
    ("engine/a.py", "from asyncio import create_task\ncreate_task(f())"),
    ("engine/a.py", "import asyncio\nasyncio.get_running_loop().create_task(f())"),
    ("engine/a.py", "import asyncio\nasyncio.ensure_future(f())"),
    ("engine/a.py", "def f(loop):\n    loop.create_task(g())"),
]


@pytest.mark.parametrize(("path", "source"), PLANTED)
def test_a_planted_fault_is_found(path: str, source: str) -> None:
    assert len(faults(path, source)) == 1


ALLOWED = [
    ("events/a.py", "import enum\nimport msgspec\nfrom .ids import SessionId\nfrom antiphon.events.ids import ItemId"),
    ("sessions/a.py", "from antiphon.events import commands\nfrom . import phases\nfrom .policies.vad import fold"),
    ("stages/base.py", "from antiphon.events.ids import RequestId\nimport anyio"),
    ("stages/a.py", "import torch, numpy, anyio, time\nfrom .base import Stage\nfrom antiphon.kernels.norm import norm"),
    ("stages/deep/a.py", "from ..base import Stage\nfrom antiphon.stages import base"),
    ("kernels/a.py", "import torch\nimport triton\nfrom .common import tile"),
    ("engine/a.py", "from antiphon.stages import base\nfrom antiphon.stages.base import Stage\nimport anyio, structlog"),
    ("engine/a.py", "import antiphon.sessions.decide\nfrom antiphon import __version__\nfrom ..stages.base import Stage"),
    ("engine/boundary.py", "try:\n    f()\nexcept Exception:\n    pass"),
    ("engine/hosts.py", "try:\n    f()\nexcept Exception:\n    pass"),
    ("engine/a.py", "try:\n    f()\nexcept BaseException:\n    undo()\n    raise"),
    ("engine/a.py", "try:\n    f()\nexcept (ValueError, OSError):\n    pass"),
    ("engine/a.py", "async def f():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(g())"),
    ("engine/a.py", "def f(group: asyncio.TaskGroup):\n    group.create_task(g())"),
    ("transport/a.py", "from antiphon.engine import hub\nimport anyio, websockets, starlette.routing"),
    ("transport/serve.py", "from antiphon.stages.vad import Vad\nfrom antiphon.stages import assets"),
    ("transport/wire.py", "import msgspec, pybase64\nfrom antiphon.events import commands\nfrom .wire_names import NAMES"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "source"), ALLOWED)
def test_what_the_table_allows_passes(path: str, source: str) -> None:
    assert faults(path, source) == []


def test_two_ways_of_naming_one_folder_are_found() -> None:
    tree = ast.parse("from .a import A\nfrom antiphon.events.a import A as B")
    assert len(list(own_style_faults({PurePosixPath("events/b.py"): tree}))) == 1
    assert not list(own_style_faults({PurePosixPath("engine/b.py"): ast.parse("from .a import A")}))
