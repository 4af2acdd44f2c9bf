"""`/sessions`: what an administrator sees, and that nobody else sees anything."""

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest

from antiphon.engine.datadir import DataPaths
from antiphon.engine.sqlite_reader import SqliteReader
from antiphon.events.log import Corrupt, SessionRow, Transaction, Unavailable
from antiphon.transport import http_sessions, page_making
from antiphon.transport.access import Access, Denied, Request
from antiphon.transport.administration import check_administrator, is_local
from antiphon.transport.keys import ApiKey, Keys, digest
from antiphon.transport.session_page import parts

from .serving import Serving, Wire, serving
from .test_page_files import got
from .test_session_page import index, spoken
from tests.talks import keep

ADMIN = ApiKey(id="key_1", name="ops", sha256=digest("ak_ops"), admin=True)
CLIENT = ApiKey(id="key_2", name="kiosk", sha256=digest("ak_kiosk"))
KEYED = Access(keys=Keys([ADMIN, CLIENT]))


def basic(key: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'anybody:{key}'.encode()).decode()}"}


async def talked(here: Serving, **headers: str) -> str:
    """Let a session be opened and stay; return its id."""
    async with Wire.to(f"{here.url}?model=echo", additional_headers=headers or None) as wire:
        created = await wire.until("session.created")
        await wire.send("input_audio_buffer.append", audio=base64.b64encode(bytes(4_800)).decode())
        await wire.send("input_audio_buffer.clear")
        await wire.until("input_audio_buffer.cleared")
        session: str = created["session"]["id"]
        status, _, body = await got(f"{here.http}/sessions/{session}", **headers)
        assert status == 200
        assert index(body.decode())["tableau"]["closed"] is None, "while it goes on"
    return session


# -- who may look --------------------------------------------------------------------------------------------


def asked(host: str = "127.0.0.1:8000", **headers: str) -> Request:
    return Request(path="/sessions", query={}, headers={"host": host, **headers})


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:8000"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1"])
def test_without_keys_this_machine_may_look(host: str, peer: str) -> None:
    check_administrator(Access(), asked(host), peer)


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("127.0.0.1", "10.0.0.7"),
        ("127.0.0.1", None),
        ("evil.example", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("[", "::1"),
    ],
)
def test_another_machine_may_not_nor_a_page_whose_name_points_here(host: str, peer: str | None) -> None:
    with pytest.raises(Denied) as denied:
        check_administrator(Access(), asked(host), peer)
    assert denied.value.status == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer ak_other"}, 401),
        ({"authorization": "Basic !!"}, 401),
        ({"authorization": "Basic " + base64.b64encode(b"\xff\xfe").decode()}, 401),
        ({"authorization": "Basic " + base64.b64encode(b"ak_ops").decode()}, 401),
        ({"authorization": "Bearer ak_kiosk"}, 403),
        (basic("ak_kiosk"), 403),
    ],
)
def test_with_keys_only_an_administrator_may_look(headers: dict[str, str], status: int) -> None:
    with pytest.raises(Denied) as denied:
        check_administrator(KEYED, asked(**{name.lower(): value for name, value in headers.items()}), "127.0.0.1")
    assert denied.value.status == status


def test_an_administrators_key_may_be_shown_in_each_way() -> None:
    for headers in ({"authorization": "Bearer ak_ops"}, {"api-key": "ak_ops"}, basic("ak_ops")):
        check_administrator(
            KEYED, asked("any", **{name.lower(): value for name, value in headers.items()}), "10.0.0.7"
        )


def test_what_is_no_address_is_not_local() -> None:
    assert [is_local(host) for host in ("", "localhost.", "127.0.0.2", "0.0.0.0")] == [False, False, True, False]


async def test_a_browser_is_asked_for_the_key() -> None:
    async with serving(access=KEYED) as here:
        for path in ("/sessions", "/sessions/any"):
            status, headers, body = await got(here.http + path)
            assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
            assert headers["www-authenticate"].startswith("Basic ")
            status, headers, body = await got(here.http + path, **basic("ak_kiosk"))
            assert (status, json.loads(body)["error"]["code"]) == (403, "administrator_needed")
            assert "www-authenticate" not in headers
        status, headers, _ = await got(here.http + "/v1/models")
        assert (status, "www-authenticate" in headers) == (401, False)
        assert (await got(here.http + "/sessions/any", **basic("ak_ops")))[0] == 404


# -- what is seen --------------------------------------------------------------------------------------------


async def test_sessions_are_listed_and_shown_also_while_they_go_on() -> None:
    async with serving(access=KEYED) as here:
        session = await talked(here, Authorization="Bearer ak_ops")
        status, headers, body = await got(here.http + "/sessions", **basic("ak_ops"))
        text = body.decode()
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert f'<a href="/sessions/{session}">{session}</a>' in text
        assert "1 session<" in text
        status, headers, body = await got(f"{here.http}/sessions/{session}", **basic("ak_ops"))
        assert status == 200
        assert index(body.decode())["tableau"]["session"] == session
        policy = headers["content-security-policy"]
        assert policy.startswith(parts().policy)
        assert "frame-ancestors 'none'" in policy
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_names_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = '<script>alert("x")</script>/..?#'
    async with serving() as here:
        session = await talked(here)
        read, rows = here.log.read, await here.log.sessions()

        async def renamed(name: str, after: int, limit: int = 1000) -> list[Transaction]:
            assert name == evil
            return await read(session, after, limit)

        async def listed(_state: object = None) -> list[SessionRow]:
            return [msgspec.structs.replace(rows[0], session=evil, model="<b>")]

        monkeypatch.setattr(here.log, "read", renamed)
        monkeypatch.setattr(here.log, "sessions", listed)
        _, _, body = await got(here.http + "/sessions")
        assert b"<script" not in body
        assert b"<b>" not in body
        (address,) = re.findall(r'href="(/sessions/.*?)"', body.decode())
        assert address == f"/sessions/{quote(evil, safe='')}"
        assert (await got(here.http + address))[0] == 200


async def test_what_is_not_there_is_404() -> None:
    async with serving() as here:
        for name in ("nobody", "", "..%2f..%2fetc%2fpasswd", "%00"):
            status, _, body = await got(f"{here.http}/sessions/{name}")
            assert (status, json.loads(body)["error"]["code"]) == (404, 404), name


async def test_the_list_has_the_newest_and_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "LISTED", 1)
    async with serving() as here:
        await talked(here)
        newest = await talked(here)
        _, _, body = await got(here.http + "/sessions")
    assert re.findall(r'href="/sessions/(.*?)"', body.decode()) == [newest]
    assert "2 sessions, the newest 1 of them" in body.decode()


async def test_what_cannot_be_shown_is_told_and_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as here:
        session = await talked(here)
        address = f"{here.http}/sessions/{session}"
        monkeypatch.setattr(page_making, "LONGEST", 2)
        status, _, body = await got(address)
        assert (status, "antiphon log timeline" in body.decode()) == (413, True)
        monkeypatch.setattr(page_making, "LONGEST", 200_000)
        whole = here.log.read

        async def headless(name: str, after: int, limit: int = 1000) -> list[Transaction]:
            return (await whole(name, after, limit))[1:] if not after else []

        monkeypatch.setattr(here.log, "read", headless)
        assert (await got(address))[0] == 500

        async def torn(_name: str, _after: int, _limit: int = 1000) -> list[Transaction]:
            raise Corrupt(3, "its checksum does not match")

        monkeypatch.setattr(here.log, "read", torn)
        status, _, body = await got(address)
        assert (status, "record 3 is damaged" in body.decode()) == (503, True)

        async def gone(_state: object = None) -> list[object]:
            raise Unavailable("the disk is gone")

        monkeypatch.setattr(here.log, "sessions", gone)
        assert (await got(here.http + "/sessions"))[0] == 503


async def test_one_page_is_made_at_a_time_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "WAITING", 1)
    begun, go_on, made = anyio.Event(), anyio.Event(), 0

    async def slowly(*_arguments: object) -> bytes:
        nonlocal made
        made += 1
        begun.set()
        await go_on.wait()
        return b"page"

    async with serving() as here:
        session = await talked(here)
        monkeypatch.setattr(http_sessions, "made_here", slowly)
        found: list[int] = []

        async def ask() -> None:
            found.append((await got(f"{here.http}/sessions/{session}"))[0])

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await begun.wait()
            group.start_soon(ask)
            group.start_soon(ask)
            while not found:
                await anyio.lowlevel.checkpoint()
            assert (found, made) == ([503], 1), "the third one is told at once"
            go_on.set()
    assert sorted(found) == [200, 200, 503]


# -- made by a process of its own ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sessions") / "data"
    anyio.run(keep, root, spoken().log)
    return root


async def test_a_process_of_its_own_reads_the_same_page(data: Path) -> None:
    page = await page_making.made_apart(data, "duplex-1")
    reader = SqliteReader(DataPaths(data))
    assert page == await page_making.made_here(reader.read, reader.samples.read, "duplex-1")
    await reader.aclose()
    assert index(page.decode())["tableau"]["closed"] == "client_close"


@pytest.mark.parametrize("name", ["duplex", "latest", "--data", "../data/log.sqlite3", "", "a\0b", "x" * 5_000])
async def test_a_session_is_meant_by_its_whole_id(data: Path, name: str) -> None:
    with pytest.raises(page_making.Unshown) as unshown:
        await page_making.made_apart(data, name)
    assert unshown.value.answer == page_making.Answer(404, "There is no such session.")


async def test_what_goes_wrong_there_is_told_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(page_making.Unshown) as unshown:
        await page_making.made_apart(tmp_path / "nowhere", "duplex-1")
    assert unshown.value.answer.status == 503
    monkeypatch.setattr(page_making.sys, "executable", "/bin/false")
    with pytest.raises(page_making.Unshown) as unshown:
        await page_making.made_apart(tmp_path, "duplex-1")
    assert unshown.value.answer.status == 500
    monkeypatch.setattr(page_making, "PATIENCE_S", 0)
    with pytest.raises(page_making.Unshown) as unshown:
        await page_making.made_apart(tmp_path, "duplex-1")
    assert unshown.value.answer.status == 503


def test_the_process_gives_way_and_says_why_there_is_no_page(
    data: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    gave_way: list[int] = []
    monkeypatch.setattr(page_making.os, "nice", gave_way.append)
    monkeypatch.setattr(page_making.sys, "argv", ["page_making", str(data), "duplex-1"])
    assert page_making.main() == 0
    assert capfdbinary.readouterr().out.startswith(b"<!doctype html>")
    monkeypatch.setattr(page_making.sys, "argv", ["page_making", str(data), "nobody"])
    assert page_making.main() == 1
    assert json.loads(capfdbinary.readouterr().err)["status"] == 404
    assert gave_way == [page_making.NICE] * 2
