"""Bundles: what goes in comes out, and nothing that only looks like one does any harm."""

import io
import json
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from antiphon.engine import bundle, bundle_reader
from antiphon.engine.bundle import Manifest, Span
from antiphon.engine.bundle_reader import Bundle, BundleError, is_bundle
from antiphon.events.audio import SampleRef
from antiphon.events.log import SoundGone, Transaction, Unavailable, UnknownSession, to_json

from tests.talks import talk as spoken

pytestmark = pytest.mark.anyio

HEADER = b'{"antiphon_log":1}'


@pytest.fixture(scope="module")
def talk() -> list[Transaction]:
    return spoken("All is well.").log


def sound(ref: SampleRef) -> bytes:
    """What lies at each place of each stream."""
    key = zlib.crc32(ref.stream.encode())
    return bytes((key + at // 3) % 251 for at in range(ref.start, ref.end))


async def two_pages(log: list[Transaction]) -> AsyncIterator[list[Transaction]]:
    yield log[:5]
    yield log[5:]


async def written(
    path: Path, log: list[Transaction], gone: Callable[[SampleRef], bool] = lambda _: False
) -> Manifest:
    async def read(ref: SampleRef) -> bytes:
        if gone(ref):
            raise SoundGone("gone")
        return sound(ref)

    file = io.BytesIO()
    found = await bundle.write(file, HEADER, "duplex-1", two_pages(log), read)
    await anyio.Path(path).write_bytes(file.getvalue())
    return found


def wanted(log: list[Transaction], stream: str) -> int:
    return max(ref.end for entry in log for ref in bundle.refs_in(entry.events) if ref.stream == stream)


async def test_a_bundle_gives_back_the_log_and_every_span_of_its_sound(
    tmp_path: Path, talk: list[Transaction]
) -> None:
    path = tmp_path / "a.antiphon"
    manifest = await written(path, talk)
    assert (manifest.session, manifest.transactions, manifest.missing) == ("duplex-1", len(talk), 0)
    assert {part.stream: part.spans for part in manifest.streams} == {
        "in": (Span(0, wanted(talk, "in")),),
        "out": (Span(0, wanted(talk, "out")),),
    }
    found = Bundle(path)
    assert found.manifest == manifest
    assert list(found.lines()) == [HEADER + b"\n", *(to_json(entry) + b"\n" for entry in talk)]
    found.check()
    assert found.read_now(SampleRef("in", 0, wanted(talk, "in"))) == sound(SampleRef("in", 0, wanted(talk, "in")))
    for ref in (SampleRef("in", 0, 10), SampleRef("in", 1_001, 977), SampleRef("out", 3, wanted(talk, "out") - 3)):
        assert await found.read("duplex-1", ref) == sound(ref)


async def test_the_same_session_makes_the_same_bytes(tmp_path: Path, talk: list[Transaction]) -> None:
    await written(tmp_path / "a", talk)
    await written(tmp_path / "b", talk)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


async def test_anybody_can_look_into_it_and_it_may_be_written_to_a_pipe(talk: list[Transaction]) -> None:
    class Pipe(io.RawIOBase):
        taken = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object, /) -> int:
            assert isinstance(data, (bytes, bytearray, memoryview))
            self.taken += bytes(data)
            return len(data)

    async def read(ref: SampleRef) -> bytes:
        return sound(ref)

    pipe = Pipe()
    await bundle.write(pipe, HEADER, "duplex-1", two_pages(talk), read)  # type: ignore[arg-type]
    with zipfile.ZipFile(io.BytesIO(pipe.taken)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["log.jsonl", "samples/in", "samples/out", "manifest.json"]
        assert json.loads(archive.read("manifest.json"))["antiphon_bundle"] == 1


async def test_what_is_past_its_retention_is_counted_and_what_is_left_keeps_its_place(
    tmp_path: Path, talk: list[Transaction]
) -> None:
    size = wanted(talk, "in")
    begins = 4 * 1024
    manifest = await written(tmp_path / "a", talk, lambda ref: ref.stream == "in" and ref.start < begins)
    part = next(part for part in manifest.streams if part.stream == "in")
    assert part.spans == (Span(begins, size - begins),)
    assert manifest.missing == begins
    found = Bundle(tmp_path / "a")
    kept = SampleRef("in", begins + 7, 100)
    assert await found.read("duplex-1", kept) == sound(kept)
    for gone in (SampleRef("in", begins - 1, 2), SampleRef("in", size - 1, 2), SampleRef("img", 0, 1)):
        with pytest.raises(SoundGone, match="not there any more"):
            await found.read("duplex-1", gone)
    with pytest.raises(UnknownSession):
        await found.read("another", kept)


async def test_sound_that_is_there_and_cannot_be_read_is_not_left_out(talk: list[Transaction]) -> None:
    async def read(ref: SampleRef) -> bytes:
        raise Unavailable("the disk is asleep")

    with pytest.raises(Unavailable, match="asleep"):
        await bundle.write(io.BytesIO(), HEADER, "duplex-1", two_pages(talk), read)


async def test_a_session_without_any_sound_left_is_a_log(tmp_path: Path, talk: list[Transaction]) -> None:
    manifest = await written(tmp_path / "a", talk, lambda _: True)
    assert manifest.streams == ()
    assert manifest.missing == wanted(talk, "in") + wanted(talk, "out")
    Bundle(tmp_path / "a").check()
    assert Bundle(tmp_path / "a").read_now(SampleRef("in", 0, 1)) is None


async def test_pieces_are_small_however_long_the_stream_is(
    tmp_path: Path, talk: list[Transaction], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (bundle, bundle_reader):
        monkeypatch.setattr(module, "PIECE", 4_096)
    asked: list[int] = []

    def gone(ref: SampleRef) -> bool:
        asked.append(ref.size)
        return False

    await written(tmp_path / "a", talk, gone)
    largest = max(ref.size for entry in talk for ref in bundle.refs_in(entry.events))
    assert max(asked) <= largest + 4_096
    Bundle(tmp_path / "a").check()


# -- what is none --------------------------------------------------------------------------------------------


def of(entries: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP file with these entries."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data, packed if not name.startswith("samples") else zipfile.ZIP_STORED)
    return file.getvalue()


def manifest(log: bytes, **changes: object) -> bytes:
    said = {
        "antiphon_bundle": 1,
        "session": "duplex-1",
        "transactions": 1,
        "log_bytes": len(log),
        "log_crc": zlib.crc32(log),
    }
    return json.dumps(said | changes).encode()


def stream(data: bytes, *spans: tuple[int, int]) -> dict[str, object]:
    return {"streams": [{"stream": "in", "spans": spans, "crc": zlib.crc32(data)}]}


LINE = b"{}\n"
TRAVERSAL = "../../evil"
BOMB = bytes(10_000_000)
HOSTILE = {
    "text": (b"hello", "it is no bundle"),
    "empty": (b"", "it is no bundle"),
    "cut off": (of({"log.jsonl": LINE, "manifest.json": manifest(LINE)})[:-30], "it is cut off"),
    "something behind it": (of({"log.jsonl": LINE, "manifest.json": manifest(LINE)}) + b"x", "something was added"),
    "a path": (
        of({"log.jsonl": LINE, "manifest.json": manifest(LINE), TRAVERSAL: b"x"}),
        r"entry '\.\./\.\./evil'",
    ),
    "no manifest": (of({"log.jsonl": LINE}), "no manifest.json"),
    "no log": (of({"manifest.json": manifest(LINE)}), "no log.jsonl"),
    "a bomb": (of({"log.jsonl": BOMB, "manifest.json": manifest(BOMB)}), "unpacks to 10,000,000 bytes"),
    "a later layout": (
        of({"log.jsonl": LINE, "manifest.json": manifest(LINE, antiphon_bundle=2, session=None)}),
        "layout 2, which a later version",
    ),
    "no JSON": (of({"log.jsonl": LINE, "manifest.json": b"{"}), "its manifest cannot be read"),
    "a manifest of another log": (
        of({"log.jsonl": LINE, "manifest.json": manifest(b"")}),
        "not as long as it says",
    ),
    "a stream that is not there": (
        of({"log.jsonl": LINE, "manifest.json": manifest(LINE, **stream(b"x", (0, 1)))}),
        "'in' is not what it says",
    ),
    "a stream of another size": (
        of({"log.jsonl": LINE, "samples/in": b"x", "manifest.json": manifest(LINE, **stream(b"x", (0, 2)))}),
        "'in' is not what it says",
    ),
    "spans that overlap": (
        of(
            {
                "log.jsonl": LINE,
                "samples/in": b"xx",
                "manifest.json": manifest(LINE, **stream(b"xx", (0, 1), (0, 1))),
            }
        ),
        "'in' has no order",
    ),
    "a span from nowhere": (
        of({"log.jsonl": LINE, "samples/in": b"x", "manifest.json": manifest(LINE, **stream(b"x", (-5, 1)))}),
        "'in' has no order",
    ),
    "a span without end": (
        of({"log.jsonl": LINE, "samples/in": b"x", "manifest.json": manifest(LINE, **stream(b"x", (1 << 60, 1)))}),
        "'in' has no order",
    ),
    "a stream twice": (
        of({"log.jsonl": LINE, "manifest.json": manifest(LINE, streams=stream(b"")["streams"] * 2)}),  # type: ignore[operator]
        "says twice",
    ),
    "packed otherwise": (
        of({"log.jsonl": LINE, "manifest.json": manifest(LINE)}, zipfile.ZIP_BZIP2),
        "packed in another way",
    ),
    "many entries": (of({f"{n:060}": b"" for n in range(1_000)}), "there is more in it than a session"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_bundle_is_refused_by_name(tmp_path: Path, name: str) -> None:
    data, words = HOSTILE[name]
    path = tmp_path / "x.antiphon"
    path.write_bytes(data)
    with pytest.raises(BundleError, match=words):
        Bundle(path)
    assert list(tmp_path.iterdir()) == [path]


async def test_an_entry_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(of({"log.jsonl": LINE, "manifest.json": manifest(LINE), "samples/in": b""}))
    path.write_bytes(path.read_bytes().replace(b"samples/in", b"log.jsonl\0"))
    with pytest.raises(BundleError):
        Bundle(path)


async def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    data = bytearray(of({"log.jsonl": LINE, "manifest.json": manifest(LINE)}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(BundleError, match="encrypted"):
        Bundle(tmp_path / "x")


async def test_an_announcement_that_hides_a_longer_one_is_seen_through(tmp_path: Path) -> None:
    data = of({"log.jsonl": LINE, "manifest.json": manifest(LINE)})
    end = data[-22:]
    large = bundle_reader._END_64.pack(b"PK\x06\x06", 44, 0, 0, 0, 0, 9, 9, 1 << 30, 0)
    locator = bundle_reader._LOCATOR.pack(b"PK\x06\x07", 0, len(data) - 22, 1)
    (tmp_path / "x").write_bytes(data[:-22] + large + locator + end)
    with pytest.raises(BundleError, match="more in it than a session"):
        Bundle(tmp_path / "x")


async def test_every_byte_that_is_changed_is_noticed_or_changes_nothing(
    tmp_path: Path, talk: list[Transaction]
) -> None:
    whole, path = tmp_path / "whole", tmp_path / "x"
    await written(whole, talk)
    refs = [SampleRef(stream, 0, wanted(talk, stream)) for stream in ("in", "out")]
    expected = list(Bundle(whole).lines()), list(map(Bundle(whole).read_now, refs))
    data = whole.read_bytes()
    for at in [*range(0, len(data), 97), *range(len(data) - 600, len(data))]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            found = Bundle(path)
            assert (list(found.lines()), list(map(found.read_now, refs))) == expected
        except BundleError:
            pass


async def test_a_cut_is_noticed_wherever_it_is(tmp_path: Path, talk: list[Transaction]) -> None:
    await written(tmp_path / "whole", talk)
    data = (tmp_path / "whole").read_bytes()
    for size in range(0, len(data), 211):
        (tmp_path / "x").write_bytes(data[:size])
        with pytest.raises(BundleError):
            Bundle(tmp_path / "x")


async def test_damaged_sound_is_not_played(tmp_path: Path, talk: list[Transaction]) -> None:
    path = tmp_path / "x"
    await written(path, talk)
    found = Bundle(path)
    data = bytearray(path.read_bytes())
    data[data.index(sound(SampleRef("in", 0, 64))) + 5_000] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(Unavailable, match="is damaged"):
            await found.read("duplex-1", SampleRef("in", 0, 10))
    assert await found.read("duplex-1", SampleRef("out", 0, 10)) == sound(SampleRef("out", 0, 10))
    with pytest.raises(BundleError, match="'in' is damaged"):
        found.check()
    path.unlink()
    with pytest.raises(Unavailable, match="cannot read"):
        await found.read("duplex-1", SampleRef("out", 0, 10))


def test_a_bundle_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(of({"log.jsonl": LINE}))
    (tmp_path / "y").write_text("{}")
    assert [is_bundle(tmp_path / name) for name in ("x", "y", "missing")] == [True, False, False]
