"""Models are found, checked once, prepared once and mended; what is absent says how to get it."""

from __future__ import annotations

import hashlib
import json
import os
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from antiphon.stages import assets
from antiphon.stages.asset_errors import AssetCorrupt, AssetMissing
from antiphon.stages.asset_manifest import ASSETS, DEFAULTS, Asset, PinnedFile, PinnedOutput

from .models import model

PARTS = {"model.bin.part1": b"first half, ", "model.bin.part2": b"second half", "config.json": b"{}"}
WHOLE = b"first half, second half"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Site:
    """A folder of installed packages with one package, "toy", and a manifest over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hashed: list[str] = []
        for name, data in PARTS.items():
            (folder / name).write_bytes(data)
        files = tuple(PinnedFile("toy", "1.0", name, len(data), sha(data)) for name, data in PARTS.items())
        self.plain = Asset("plain", "asr", "a toy", "MIT", "pip install toy==1.0", files)
        self.folderful = Asset("folderful", "asr", "a toy", "MIT", "pip install toy==1.0", files, as_folder=True)
        outputs = (PinnedOutput("model.bin", len(WHOLE), sha(WHOLE)),)
        self.joined = Asset(
            "joined", "asr", "a toy", "MIT", "pip install toy==1.0", files, recipe="join", outputs=outputs
        )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "site").mkdir()
    made = Site(tmp_path / "site")

    def distribution(package: str) -> SimpleNamespace:
        if package != "toy":
            raise metadata.PackageNotFoundError(package)
        return SimpleNamespace(locate_file=lambda path: made.folder / path)

    hash_file = assets._hash_file

    def counted(path: Path) -> str:
        made.hashed.append(path.name)
        return hash_file(path)

    absent = Asset("absent", "asr", "x", "MIT", "pip install more", (PinnedFile("gone", "2.0", "x", 1, sha(b"")),))
    monkeypatch.setattr(assets, "ASSETS", (made.plain, made.folderful, made.joined, absent))
    monkeypatch.setattr(assets.metadata, "distribution", distribution)
    monkeypatch.setattr(assets, "_hash_file", counted)
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "cache"))
    return made


def test_a_file_or_its_folder(site: Site) -> None:
    assert assets.locate("plain") == site.folder / "model.bin.part1"
    assert assets.locate("folderful") == site.folder


def test_files_are_hashed_once(site: Site) -> None:
    assets.locate("plain")
    assert sorted(site.hashed) == sorted(PARTS)
    assets.locate("plain")
    assert len(site.hashed) == len(PARTS)


def test_a_changed_file_is_hashed_again_and_refused(site: Site) -> None:
    assets.locate("plain")
    changed = site.folder / "config.json"
    changed.write_bytes(b"[]")
    state = changed.stat()
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    with pytest.raises(AssetCorrupt) as caught:
        assets.locate("plain")
    assert (caught.value.name, caught.value.path) == ("plain", str(changed))
    assert (caught.value.expected, caught.value.found) == (sha(b"{}"), sha(b"[]"))
    assert caught.value.found in str(caught.value)


def test_what_is_absent_says_how_to_get_it(site: Site) -> None:
    with pytest.raises(AssetMissing, match=r"gone==2\.0.*pip install more") as caught:
        assets.locate("absent")
    assert (caught.value.name, caught.value.how_to_get) == ("absent", "pip install more")
    (site.folder / "config.json").unlink()
    with pytest.raises(AssetMissing, match=r"config\.json.*--force-reinstall --no-deps toy==1\.0"):
        assets.locate("plain")
    with pytest.raises(KeyError, match="known are plain"):
        assets.locate("unheard of")


def test_a_prepared_model_is_made_once_and_whole(site: Site) -> None:
    shares: list[float] = []
    folder = assets.locate("joined", shares.append)
    assert shares == [1.0]
    assert (folder / "model.bin").read_bytes() == WHOLE
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.bin", "prepared.json"]
    assert assets.locate("joined", shares.append) == folder
    assert shares == [1.0]
    # Nothing half-made is left beside it.
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_recipe_that_gives_other_bytes_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = (PinnedOutput("model.bin", 1, sha(b"other")),)
    wrong = Asset("joined", "asr", "", "MIT", "", site.joined.files, recipe="join", outputs=pinned)
    monkeypatch.setattr(assets, "ASSETS", (wrong,))
    with pytest.raises(AssetCorrupt):
        assets.locate("joined")
    assert list((assets.cache_dir() / "models").iterdir()) == []
    # With other versions of the tools than the manifest's, what they give cannot be known beforehand.
    other = Asset(
        "joined", "asr", "", "MIT", "", site.joined.files, recipe="join", tools=(("tool", "9"),), outputs=pinned
    )
    monkeypatch.setattr(assets, "ASSETS", (other,))
    assert (assets.locate("joined") / "model.bin").read_bytes() == WHOLE


def test_a_damaged_prepared_model_is_found_and_mended(site: Site) -> None:
    folder = assets.locate("joined")
    (folder / "model.bin").write_bytes(b"damaged")
    with pytest.raises(AssetCorrupt):
        assets.locate("joined")
    shown: list[tuple[str, float]] = []
    done = assets.prepare(["joined", "absent"], lambda name, share: shown.append((name, share)))
    assert done["joined"] == folder
    assert (folder / "model.bin").read_bytes() == WHOLE
    assert isinstance(done["absent"], AssetMissing)
    assert ("joined", 1.0) in shown
    assert not [name for name, _ in shown if name == "absent"]


def test_a_lost_record_is_mended_too(site: Site) -> None:
    folder = assets.locate("joined")
    (folder / "prepared.json").unlink()
    with pytest.raises(AssetCorrupt):
        assets.locate("joined")
    assert assets.prepare(["joined"], lambda *_: None)["joined"] == folder


def test_a_damaged_package_is_left_to_its_installer(site: Site) -> None:
    (site.folder / "config.json").write_bytes(b"damaged")
    assert isinstance(assets.prepare(["joined"], lambda *_: None)["joined"], AssetCorrupt)
    assert (site.folder / "config.json").read_bytes() == b"damaged"


def test_without_a_writable_cache_checking_works_and_preparing_says_why(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "file"))
    assert assets.locate("plain").is_file()
    with pytest.raises(AssetMissing, match="ANTIPHON_CACHE"):
        assets.locate("joined")


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "here"))
    assert assets.cache_dir() == tmp_path / "here"
    monkeypatch.delenv("ANTIPHON_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert assets.cache_dir() == tmp_path / "xdg" / "antiphon"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert assets.cache_dir() == tmp_path / ".cache" / "antiphon"


# --- other models ------------------------------------------------------------------------------------------


def test_a_path_is_taken_as_it_is(site: Site, tmp_path: Path) -> None:
    assert assets.resolve("asr", str(tmp_path)) == tmp_path
    assert assets.resolve("asr", "folderful") == site.folder


@pytest.mark.parametrize("name", ["./nowhere/model", "/nowhere/model", "~/nowhere/model", "nonsense"])
def test_a_path_that_is_not_there_lists_the_names(site: Site, name: str) -> None:
    with pytest.raises(AssetMissing, match="plain, folderful, joined"):
        assets.resolve("asr", name)


def test_looking_prepares_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        pytest.fail("it must not prepare")

    monkeypatch.setattr(assets, "_prepare", never)
    found = assets.look(["plain", "joined", "absent"])
    assert (found["plain"], found["joined"]) == (True, False)
    assert isinstance(found["absent"], AssetMissing)


def test_the_command_says_how_to_get_each_model_and_eats_no_brackets(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bracketed = Asset(
        "bracketed", "asr", "x", "MIT", "pip install 'x[voice]'", (PinnedFile("gone", "2.0", "x", 1, sha(b"")),)
    )
    monkeypatch.setattr(assets, "ASSETS", (site.plain, site.joined, bracketed))
    monkeypatch.setattr(assets, "DEFAULTS", {"asr": "plain"})
    assert assets.main(["--look"]) == 0
    said = capsys.readouterr().out
    assert "ready    plain" in said
    assert "prepared at its first use" in said
    assert "optional bracketed: x (0 MB, MIT), not installed; get it with: pip install 'x[voice]'" in said
    assert assets.main(["--look", "bracketed"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("missing  bracketed: the Python package gone==2.0 is missing; get it with:")
    assert "pip install 'x[voice]'" in said


def test_what_a_hub_says_at_length_becomes_one_line(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    class Offline(Hub):
        def snapshot_download(self, place: str) -> str:
            raise OSError("offline\nmore about it\nand more")

    monkeypatch.setattr(assets, "load_module", lambda name, *, how_to_get: Offline(site.folder))
    with pytest.raises(AssetMissing, match=r"cannot be fetched from the hub \(offline\)") as caught:
        assets.resolve("asr", "owner/model")
    assert "\n" not in str(caught.value)


def test_every_advice_is_a_command_that_works_in_a_clone() -> None:
    for asset in ASSETS:
        assert asset.how_to_get.startswith(("make voice", ".venv/bin/pip install "))


def test_a_hub_needs_its_library(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, *, how_to_get: str) -> None:
        raise AssetMissing(name, "the library", how_to_get)

    monkeypatch.setattr(assets, "load_module", absent)
    with pytest.raises(AssetMissing, match="pip install huggingface_hub"):
        assets.resolve("asr", "owner/model")


class Hub:
    """Stands in for huggingface_hub: what is asked for appears in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []

    def snapshot_download(self, place: str) -> str:
        self.asked.append(place)
        if place == "owner/absent":
            raise OSError("404")
        return str(self.folder)

    def hf_hub_download(self, place: str, file: str) -> str:
        self.asked.append(f"{place}:{file}")
        path = self.folder / Path(file).name
        path.write_bytes(b"data")
        return str(path)

    def file_exists(self, place: str, file: str) -> bool:
        return file.endswith(".json")


def test_a_hub_s_models_and_files(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(tmp_path)
    monkeypatch.setattr(assets, "load_module", lambda name, *, how_to_get: hub)
    assert assets.resolve("asr", "owner/model") == tmp_path
    assert assets.resolve("vad", "owner/model/deep/vad.onnx") == tmp_path / "vad.onnx"
    assert hub.asked == ["owner/model", "owner/model:deep/vad.onnx", "owner/model:deep/vad.onnx.json"]
    with pytest.raises(AssetMissing, match="404"):
        assets.resolve("asr", "owner/absent")


def test_a_voice_needs_its_configuration(site: Site, tmp_path: Path) -> None:
    (tmp_path / "voice.onnx").write_bytes(b"")
    with pytest.raises(AssetMissing, match=r"voice\.onnx\.json"):
        assets.resolve("tts", str(tmp_path / "voice.onnx"))


# --- the real manifest -------------------------------------------------------------------------------------


def test_the_manifest_is_complete() -> None:
    assert len({asset.name for asset in ASSETS}) == len(ASSETS)
    kinds = {asset.name: asset.kind for asset in ASSETS}
    assert {kinds[name] for name in DEFAULTS.values()} == set(DEFAULTS) == {"vad", "asr", "llm", "tts"}
    for asset in ASSETS:
        assert asset.files
        assert asset.licence
        assert all(len(pinned.sha256) == 64 and pinned.size > 0 for pinned in (*asset.files, *asset.outputs))
        assert bool(asset.outputs) == (asset.recipe is not None)
        if asset.recipe is not None:
            assert tuple(tool for tool, _ in asset.tools) == assets._TOOLS[asset.recipe]


@pytest.mark.models
@pytest.mark.parametrize("asset", ASSETS, ids=lambda asset: asset.name)
def test_the_recipes_give_the_pinned_bytes(asset: Asset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(asset.kind, asset.name)  # skips where it is absent
    if asset.recipe is None:
        pytest.skip("this one is used as it is packaged")
    installed = tuple((tool, metadata.version(tool)) for tool, _ in asset.tools)
    if installed != asset.tools:
        pytest.skip(f"the manifest pins the output of {asset.tools}; installed are {installed}")
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path))
    folder = assets.locate(asset.name)
    record = json.loads((folder / "prepared.json").read_text())
    assert {pinned.path: pinned.sha256 for pinned in asset.outputs}.items() <= record.items()
    for pinned in asset.outputs:
        assert (folder / pinned.path).stat().st_size == pinned.size


@pytest.mark.models
def test_the_command_is_idempotent(capsys: pytest.CaptureFixture[str]) -> None:
    model("vad")
    assert assets.main(["silero"]) == 0
    assert assets.main(["silero"]) == 0
    assert "ready" in capsys.readouterr().out
    assert assets.main(["unheard-of"]) == 2
    assert "known are silero" in capsys.readouterr().err
