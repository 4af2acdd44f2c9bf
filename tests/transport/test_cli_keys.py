"""`antiphon keys`, and a server that takes them."""

import json
from pathlib import Path

import pytest

from antiphon.transport.client import RealtimeClient, SessionLost
from antiphon.transport.keys import Keys

from .test_cli_serve import served
from .test_cli_talk import Run, run

__all__ = ["run"]


def test_a_key_is_shown_once(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    code, said, told = run("keys", "add", "kiosk", "--sessions", "4", "--events-per-s", "100", "--data", data)
    assert code == 0
    text = said.strip()
    assert Keys(file=data / "keys.json").find([text]) is not None
    assert "once" in told
    assert text not in told
    code, said, _ = run("keys", "list", "--data", data)
    assert code == 0
    assert "kiosk" in said
    assert text not in said
    code, said, _ = run("keys", "list", "--data", data, "--json")
    (row,) = json.loads(said)
    assert (row["name"], row["sessions"], row["events_per_s"]) == ("kiosk", 4, 100)
    assert run("keys", "remove", row["id"], "--data", data)[1] == f"removed kiosk ({row['id']})\n"
    assert "nobody can come in" in run("keys", "list", "--data", data)[1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("list",), "there is no file of keys"),
        (("remove", "nobody"), "there is no file of keys"),
        (("add", "\x1b[31mred"), "a key's name is"),
        (("add", "x", "--sessions", "0"), "it must be at least 1"),
        (("add", ""), "it is empty"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    code, said, told = run("keys", *arguments, "--keys", tmp_path / "keys.json")
    assert code == 2
    assert said == ""
    assert why in told
    assert told.count("\n") == 1
    assert "\x1b" not in told


def test_without_a_command_it_explains(run: Run) -> None:
    code, said, _ = run("keys")
    assert code == 0
    assert "antiphon keys add kiosk" in said


@pytest.mark.parametrize("origin", ["example.org", "https://a/path", "*", "https://"])
def test_an_origin_is_what_browsers_send(run: Run, origin: str) -> None:
    code, _, told = run("serve", "--origin", origin)
    assert code == 2
    assert "it is no origin" in told


def test_a_file_of_keys_that_was_named_must_be_there(run: Run, tmp_path: Path) -> None:
    code, _, told = run("serve", "--pipeline", "echo", "--data", tmp_path, "--keys", tmp_path / "none.json")
    assert code == 2
    assert "antiphon keys add" in told


async def test_a_server_takes_the_keys_of_its_data_directory(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    key = run("keys", "add", "one", "--data", data)[1].strip()
    async with served(data, "--pipeline", "echo", "--host", "0.0.0.0") as operator:
        await operator.listens()
        address = operator.address.replace("0.0.0.0", "127.0.0.1")
        async with RealtimeClient(address, api_key=key) as client:
            assert client.session_id
        with pytest.raises(SessionLost, match="http_401"):
            await RealtimeClient(address).__aenter__()
        assert await operator.ends() == 0
    assert key not in operator.said
