"""Keys: known by their digests, kept in a file that is read again when it changes."""

import stat
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus

from antiphon.engine.clock import VirtualClock
from antiphon.transport.access import Access
from antiphon.transport.keys import KeyFileError, Keys, add, digest, load, remove
from antiphon.transport.serve import ServeSettings, access_for
from antiphon.transport.server import KEYS_US

from .serving import Wire, becomes, serving

DOUBLED = {"id": "a", "name": "a", "sha256": "0" * 64}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys.json"


@pytest.mark.parametrize("keys", [("",), (" ",), ("good", "")])
def test_an_empty_key_is_no_key(keys: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        Keys.of(*keys)


def test_no_key_is_kept_in_words() -> None:
    keys = Keys.of("a-secret")
    assert "a-secret" not in repr(keys.known())
    assert keys.find(["wrong", "a-secret"]) == keys.known()[0]
    assert keys.find(["a-secre", "a-secret ", "", digest("a-secret")]) is None


def test_the_file_holds_a_digest_that_only_its_owner_reads(file: Path) -> None:
    key, text = add(file, "kiosk", sessions=4, bytes_per_s=200_000)
    assert text.startswith("ak_")
    assert len(text) == 3 + 43
    assert text not in file.read_text()
    assert digest(text) in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load(file) == (key,)
    assert Keys(file=file).find([text]) == key
    assert [other.name for other in file.parent.iterdir()] == ["keys.json"]


def test_keys_come_and_go_by_name_or_id(file: Path) -> None:
    first, _ = add(file, "first")
    second, text = add(file, "second")
    with pytest.raises(KeyFileError, match="a key 'first'"):
        add(file, "first")
    assert remove(file, "first") == first
    with pytest.raises(KeyFileError, match="no key 'first'"):
        remove(file, "first")
    assert Keys(file=file).find([text]) == second
    assert remove(file, second.id) == second
    assert load(file) == ()


@pytest.mark.parametrize("name", ["", "\x1b[2J", "a\nb", "../x", "-x", "x" * 65])
def test_a_name_is_one_that_a_terminal_can_show(file: Path, name: str) -> None:
    with pytest.raises(KeyFileError, match="a key's name is"):
        add(file, name)
    assert not file.exists()


def test_a_file_without_a_key_lets_nobody_in(file: Path) -> None:
    assert not Keys(file=file).needed
    add(file, "one")
    remove(file, "one")
    assert Keys(file=file).needed
    assert Keys(file=file).find([""]) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is damaged"),
        ("{}", None),
        ('{"antiphon_keys": 2}', "is damaged"),
        ('{"keys": [{"id": "a", "name": "a", "sha256": "short"}]}', "is damaged"),
        ('{"keys": [], "more": 1}', "is damaged"),
        (
            msgspec.json.encode({"keys": [DOUBLED, {**DOUBLED, "name": "b", "sha256": "1" * 64}]}).decode(),
            "two keys have one id",
        ),
        (msgspec.json.encode({"keys": [{**DOUBLED, "sessions": 0}]}).decode(), "is damaged"),
    ],
)
def test_a_damaged_file_is_told(file: Path, text: str, why: str | None) -> None:
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)
    if why is None:
        assert load(file) == ()
    else:
        with pytest.raises(KeyFileError, match=why):
            load(file)


def test_a_file_that_others_may_write_is_refused(file: Path) -> None:
    add(file, "one")
    file.chmod(0o644)
    assert len(load(file)) == 1
    file.chmod(0o660)
    with pytest.raises(KeyFileError, match="mode 660"):
        load(file)


def test_a_file_that_was_damaged_meanwhile_changes_nothing(file: Path) -> None:
    key, text = add(file, "one")
    keys = Keys(file=file)
    file.write_text("{")
    with capture_logs() as told:
        keys.refresh()
        keys.refresh()
    assert keys.find([text]) == key
    assert [line["log_level"] for line in told] == ["error"]
    file.unlink()
    with capture_logs():
        keys.refresh()
    assert keys.find([text]) == key


async def test_a_key_that_is_removed_opens_nothing_from_then_on(file: Path) -> None:
    _, gone = add(file, "gone")
    _, stays = add(file, "stays")
    clock = VirtualClock()
    keys = Keys(file=file)
    async with serving(access=Access(keys=keys), clock=clock) as served:
        async with Wire.to(served.url, additional_headers={"api-key": gone}) as wire:
            await wire.next()
            remove(file, "gone")
            _, new = add(file, "new")
            clock.advance(KEYS_US)
            await becomes(lambda: keys.find([gone]) is None)
            await wire.send("input_audio_buffer.clear")
            await wire.until("input_audio_buffer.cleared")  # who is connected stays
        with pytest.raises(InvalidStatus):
            async with Wire.to(served.url, additional_headers={"api-key": gone}):
                pass
        for text in (stays, new):
            async with Wire.to(served.url, additional_headers={"api-key": text}) as wire:
                await wire.next()


def test_the_keys_of_the_data_directory_need_no_name(file: Path) -> None:
    settings = ServeSettings(data=file.parent)
    open_to_all = access_for(settings).keys
    assert not open_to_all.needed
    add(file, "one")
    assert access_for(settings).keys.needed
    with capture_logs():
        open_to_all.refresh()
    assert open_to_all.needed
    with pytest.raises(KeyFileError, match="there is no file of keys"):
        access_for(msgspec.structs.replace(settings, key_file=file.with_name("other.json")))
