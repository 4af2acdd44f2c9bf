"""What is shipped: a wheel made from an sdist holds the six folders with their data, and imports alone."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from pathlib import Path

import pytest

FOLDERS = ("events", "sessions", "stages", "kernels", "engine", "transport")

# Data that the engine reads at run time: where it may lie, and one planted file for each rule, deep enough to
# show that the rule reaches below the first folder.
DATA = {"transport": ("page/*", "session_files/*"), "stages": ("**/*.toml",)}
PLANTED = (
    "transport/page/planted.js",
    "stages/planted/deeper/pipeline.toml",
    "stages/planted/deeper/a.py",
)


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


@pytest.fixture(scope="module")
def checkout(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree without what is built or ignored, so that building leaves no trace."""
    copy = tmp_path_factory.mktemp("checkout") / "antiphon"
    copy.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache")
    for folder in (*FOLDERS, "src"):
        shutil.copytree(root / folder, copy / folder, symlinks=True, ignore=ignore)
    for file in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(root / file, copy / file)
    for name in PLANTED:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the sdist and from nothing else; offline, with the tools of this environment."""
    out = tmp_path_factory.mktemp("dist")
    # `-P` keeps the checkout off the path. Without --sdist or --wheel, build makes the wheel from the sdist.
    run(sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", out, checkout, cwd=out)
    (made,) = out.glob("*.whl")
    assert len(list(out.glob("*.tar.gz"))) == 1
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel installed by pip into a folder of its own."""
    target = tmp_path_factory.mktemp("target")
    offline = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", target, wheel, cwd=target)
    return target


def expected(checkout: Path) -> set[str]:
    """Every source file of the six folders, and their data, as the wheel should name them."""
    files = {"antiphon/__init__.py", "antiphon/__main__.py", "antiphon/py.typed"}
    for folder in FOLDERS:
        data = [path for pattern in DATA.get(folder, ()) for path in (checkout / folder).glob(pattern)]
        found = [*(checkout / folder).rglob("*.py"), *data]
        files |= {f"antiphon/{path.relative_to(checkout).as_posix()}" for path in found if path.is_file()}
    return files


def test_the_wheel_holds_the_six_folders_and_their_data(checkout: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {f"antiphon/{name}" for name in PLANTED} <= inside
    assert inside == expected(checkout)


def test_the_wheel_names_its_licence_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(info["METADATA"]).decode()
        commands = archive.read(info["entry_points.txt"]).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "licenses/LICENSE" in info
    assert "antiphon = antiphon.__main__:main" in commands


def test_the_installed_wheel_imports_without_the_checkout(checkout: Path, installed: Path, root: Path) -> None:
    """Everything but the kernels and the concrete stages imports with the core's dependencies alone."""
    folders = ("events", "sessions", "engine", "transport")
    modules = ["antiphon.stages.base"]
    for folder in folders:
        for path in sorted((checkout / folder).rglob("*.py")):
            name = path.relative_to(checkout).with_suffix("")
            if path.name != "__main__.py":
                modules.append("antiphon." + ".".join(name.parts))
    # The editable install of this environment is set aside; what is asserted is where each module came from.
    program = f"""
import importlib, sys
sys.path[:] = [{str(installed)!r}] + [path for path in sys.path if not path.startswith({str(root / "src")!r})]
for name in {modules!r}:
    file = importlib.import_module(name).__file__
    assert file.startswith({str(installed)!r}), file
"""
    run(sys.executable, "-P", "-W", "error", "-c", program, cwd=installed)


def test_the_installed_wheel_serves_without_the_checkout(installed: Path, root: Path) -> None:
    """The server of the wheel answers; the models are not needed for that."""
    program = f"""
import sys
sys.path[:] = [{str(installed)!r}] + [path for path in sys.path if not path.startswith({str(root / "src")!r})]
from antiphon.transport import cli
assert cli.__file__.startswith({str(installed)!r}), cli.__file__
sys.argv = ["antiphon", "serve", "--pipeline", "echo", "--port", "0"]
cli.main()
"""
    command = (sys.executable, "-P", "-W", "error", "-c", program)
    with subprocess.Popen(command, cwd=installed, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said, _, address = server.stdout.readline().strip().rpartition(" ")
            assert said == "listening on"
            with urllib.request.urlopen(f"{address}/v1/models", timeout=10) as answer:
                assert answer.status == 200
        finally:
            server.terminate()
    assert server.returncode == 0


def test_the_links_are_relative_and_the_folders_are_namespaces(root: Path) -> None:
    for folder in FOLDERS:
        link = root / "src" / "antiphon" / folder
        assert link.readlink() == Path("../..") / folder
        assert not (root / folder / "__init__.py").exists()


def names(requirements: list[str]) -> set[str]:
    """The distributions that requirement lines name, written the same way."""
    found = {re.split(r"[^\w.-]", line.strip(), maxsplit=1)[0] for line in requirements}
    return {re.sub(r"[-_.]+", "-", name).lower() for name in found if name}


# Under the GPL, or carrying GPL code: a voice stage calls such a program in a process of its own.
GPL = {
    "espeak-ng", "espeakng", "espeakng-loader", "phonemizer", "phonemizer-fork", "piper-phonemize",
    "piper-tts", "py-espeak-ng",
}  # fmt: skip
HEAVY = {"llama-cpp-python", "torch", "torchaudio", "torchvision", "transformers", "vllm"}


def test_the_pins_hold_no_torch_and_no_gpl(root: Path) -> None:
    """The pins are the whole environment of the demo and of the tests, whatever asked for each of them."""
    pinned = names((root / "requirements/constraints.txt").read_text().splitlines())
    assert not pinned & (GPL | HEAVY)


def under_gpl(licence: str) -> bool:
    """Whether a line of metadata names the GPL or the AGPL; the LGPL (soxr) is another licence."""
    return re.search(r"\bA?GPL|(?<!Lesser )General Public License", licence) is not None


def test_no_installed_pin_is_under_the_gpl(root: Path) -> None:
    found: list[str] = []
    for name in names((root / "requirements/constraints.txt").read_text().splitlines()):
        metadata = importlib.metadata.metadata(name)
        stated = [metadata.get("License-Expression", ""), metadata.get("License", "").partition("\n")[0]]
        stated += [line for line in metadata.get_all("Classifier", []) if line.startswith("License")]
        found += [f"{name}: {line}" for line in stated if under_gpl(line)]
    assert not found


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("GPL-3.0-or-later", True),
        ("GNU GPL v3", True),
        ("AGPL-3.0-only", True),
        ("License :: OSI Approved :: GNU General Public License v3 (GPLv3)", True),
        ("License :: OSI Approved :: GNU Affero General Public License v3", True),
        ("LGPL-2.1-or-later", False),
        ("License :: OSI Approved :: GNU Lesser General Public License v2 or later (LGPLv2+)", False),
        ("MIT", False),
    ],
)
def test_the_gpl_is_told_from_the_lgpl(licence: str, expected: bool) -> None:
    assert under_gpl(licence) == expected


def test_every_dependency_of_the_demo_and_the_tools_is_pinned(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = names(
        [
            *project["dependencies"],
            *(line for extra in ("voice", "demo", "dev") for line in extras[extra]),
        ]
    )
    pinned = names((root / "requirements/constraints.txt").read_text().splitlines())
    assert asked <= pinned


def test_every_dependency_is_explained(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    asked = names(
        [
            *project["dependencies"],
            *(line for extra in project["optional-dependencies"].values() for line in extra),
        ]
    )
    explained = set(re.findall(r"`([a-z0-9-]+)`", (root / "docs/dependencies.md").read_text()))
    assert asked <= explained
