"""The port: HTTP beside websockets, keys, origins, and where it may listen."""

import inspect
import socket as sockets
import urllib.error
import urllib.request
from contextlib import closing
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidStatus

from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.settings import HubSettings
from antiphon.stages.base import Report
from antiphon.stages.echo import EchoStage
from antiphon.transport import connection, http_protocol, server
from antiphon.transport.access import Access, Request, dialect
from antiphon.transport.administration import is_local
from antiphon.transport.keys import Keys
from antiphon.transport.server import Insecure, Listening, Server

from .serving import Wire, serving
from tests.engine.worlds import GatedLog, MoodyLog, opening

pytestmark = pytest.mark.anyio

KEYS = Access(keys=Keys.of("first-key", "second-key"))


def fetch(url: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, msgspec.json.decode(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, msgspec.json.decode(error.read())


async def got(url: str, **headers: str) -> tuple[int, Any]:
    return await anyio.to_thread.run_sync(lambda: fetch(url, **headers))


async def test_health_and_models() -> None:
    async with serving(settings=HubSettings(aliases=("other",))) as served:
        assert await got(served.http + "/health") == (200, {"status": "healthy"})
        status, models = await got(served.http + "/v1/models")
        assert status == 200
        assert [model["id"] for model in models["data"]] == ["antiphon", "other"]
        assert (await got(served.http + "/v1/models/other"))[1]["root"] == "antiphon"


async def test_health_says_how_far_the_sessions_of_the_last_process_are() -> None:
    log = GatedLog()
    async with serving(log=log) as served:
        for n in range(3):
            await served.hub.open(opening(f"open-{n}"))
    log.gated = [row.session for row in await log.sessions("open")][1:]
    async with serving(log=log) as served:
        with anyio.fail_after(20):
            while served.hub.restart.done < 1:
                await anyio.lowlevel.checkpoint()
        going = {"status": "healthy", "recovering": {"sessions": 3, "done": 1}}
        assert await got(served.http + "/health") == (200, going)
        log.gate.set()
        with anyio.fail_after(20):
            await served.hub.recovered.wait()
        assert await got(served.http + "/health") == (200, {"status": "healthy"})


async def test_health_says_why_nothing_can_be_opened_now() -> None:
    class Restarting(InlineHost):
        def lose(self) -> None:
            self._wait_for("It is being restarted.")

        def load(self) -> None:
            self._loaded()

    host = Restarting(EchoStage())
    async with serving(host=host) as served:
        host.lose()
        reason = {"status": "unhealthy", "reason": "It is being restarted."}
        assert await got(served.http + "/health") == (503, reason)
        host.load()
        assert await got(served.http + "/health") == (200, {"status": "healthy"})

    class Faulty(EchoStage):
        def start(self, report: Report) -> None:
            raise RuntimeError("a fault of the model")

    async with serving(stage=Faulty()) as served:
        reason = {"status": "unhealthy", "reason": "cannot load: RuntimeError"}
        assert await got(served.http + "/health") == (503, reason)


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/models/nobody", 404, "NotFoundError"),
        ("/nowhere", 404, "NotFoundError"),
        ("/v1/realtime", 426, "UpgradeRequired"),
        ("/v1/duplex", 426, "UpgradeRequired"),
    ],
)
async def test_errors_have_bodies(path: str, status: int, kind: str) -> None:
    async with serving() as served:
        answered, body = await got(served.http + path)
        assert answered == status
        assert body["error"]["type"] == kind
        assert body["error"]["code"] == status


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Bearer first-key"}, {"api-key": "second-key"}],
)
async def test_a_key_opens(headers: dict[str, str]) -> None:
    async with serving(access=KEYS) as served:
        async with Wire.to(served.url, additional_headers=headers) as wire:
            assert (await wire.next())["type"] == "session.created"
        assert (await got(served.http + "/v1/models", **headers))[0] == 200


async def test_a_key_among_the_subprotocols() -> None:
    offered = ["realtime", "openai-insecure-api-key.first-key"]
    async with serving(access=KEYS) as served, Wire.to(served.url, subprotocols=offered) as wire:
        assert wire.socket.subprotocol == "realtime"
        await wire.next()


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer first-ke"}, {"Authorization": "Basic x"}])
async def test_no_right_key(headers: dict[str, str]) -> None:
    async with serving(access=KEYS) as served:
        with pytest.raises(InvalidStatus) as refused:
            async with Wire.to(served.url, additional_headers=headers):
                pass
        assert refused.value.response.status_code == 401
        body = msgspec.json.decode(refused.value.response.body or b"")
        assert body["error"]["code"] == "invalid_api_key"
        assert (await got(served.http + "/v1/models", **headers))[0] == 401
        assert (await got(served.http + "/health"))[0] == 200


async def test_a_key_in_the_query_only_if_it_is_allowed() -> None:
    allowed = Access(keys=Keys.of("k"), key_in_query=True)
    async with serving(access=allowed) as served, Wire.to(served.url + "?api_key=k") as wire:
        await wire.next()
    async with serving(access=Access(keys=Keys.of("k"))) as served:
        with pytest.raises(InvalidStatus):
            async with Wire.to(served.url + "?api_key=k"):
                pass


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/nowhere", 404),
        ("/v1/realtime?intent=transcription", 400),
        ("/v1/realtime?call_id=x", 400),
        ("/v1/realtime?model=" + "x" * 300, 400),
        ("/v1/realtime?model=" + "x" * 20_000, 400),
    ],
)
async def test_refused_upgrades(path: str, status: int) -> None:
    async with serving() as served:
        with pytest.raises(InvalidStatus) as refused:
            async with Wire.to(f"ws://127.0.0.1:{served.server.port}{path}"):
                pass
        assert refused.value.response.status_code == status


async def test_origins() -> None:
    access = Access(origins=("https://mine.example",))
    async with serving(access=access) as served:
        async with Wire.to(served.url, origin="https://Mine.example") as wire:
            await wire.next()
        with pytest.raises(InvalidStatus) as refused:
            async with Wire.to(served.url, origin="https://other.example"):
                pass
        assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_what_is_local(host: str, local: bool) -> None:
    assert is_local(host) == local


async def test_no_key_no_open_address() -> None:
    async with serving() as served:
        hub: Hub = served.hub
        with pytest.raises(Insecure):
            Server(hub, Listening(host="0.0.0.0"))
        Server(hub, Listening(host="0.0.0.0", insecure=True))
        Server(hub, Listening(host="0.0.0.0", access=KEYS))


def test_the_dialect_of_a_request() -> None:
    def chosen(path: str = "/v1/realtime", **query: str) -> str:
        return dialect(Request(path=path, query=query, headers={}), "ga")

    assert chosen() == "ga"
    assert chosen(duplex="0") == "ga"
    assert chosen(duplex="On") == "duplex"
    assert chosen(resume="yes") == "duplex"
    assert chosen("/v1/duplex") == "duplex"
    beta = Request(path="/v1/realtime", query={"duplex": "1"}, headers={"openai-beta": "realtime=v1"})
    assert dialect(beta, "ga") == "duplex"
    assert dialect(Request(path="/v1/realtime", query={}, headers={}), "duplex") == "duplex"
    assert dialect(Request(path="/v1/realtime", query={"duplex": "0"}, headers={}), "duplex") == "ga"


async def test_a_store_that_stands_does_not_keep_the_server_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LEAVING_S", 0.1)
    monkeypatch.setattr(connection, "GIVING_UP_S", 0.1)
    log = MoodyLog()
    with anyio.fail_after(10):
        async with (
            serving(log=log, settings=HubSettings(shutdown_ms=100)) as served,
            Wire.to(served.url) as ga,
            Wire.to(served.url + "?duplex=1&model=m") as duplex,
        ):
            await ga.next()
            await duplex.next()
            log.holding = True
            served.server.stop()
            assert await ga.closed() == (1001, "shutdown")
            assert await duplex.closed() == (1001, "shutdown")


def test_what_is_used_of_uvicorns_inside_is_there() -> None:
    state = ServerState()
    assert state.connections == set()
    inspect.signature(H11Protocol).bind(config=uvicorn.Config("app"), server_state=state, app_state={}, _loop=None)
    assert callable(H11Protocol.shutdown)


async def test_a_key_that_is_no_text_is_a_wrong_key() -> None:
    async with serving(access=KEYS) as served:
        head = (
            b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        async with await anyio.connect_tcp("127.0.0.1", served.server.port) as stream:
            await stream.send(head + b"Authorization: Bearer \xc3\xa9\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 401")


async def test_a_connection_that_never_asks_for_anything_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_S", 0.05)
    async with serving() as served, await anyio.connect_tcp("127.0.0.1", served.server.port) as stream:
        await stream.send(b"GET /v1/realtime HTT")
        with anyio.fail_after(10), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()


async def test_each_request_of_a_connection_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins anew behind each answer: who asks now and then is not cut off, who stops within a request is."""
    monkeypatch.setattr(http_protocol, "REQUEST_S", 1.0)
    async with serving() as served, await anyio.connect_tcp("127.0.0.1", served.server.port) as stream:
        with anyio.fail_after(10):
            for _ in range(4):
                await stream.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await stream.receive()).startswith(b"HTTP/1.1 200")
                await anyio.sleep(0.3)
            await stream.send(b"GET /hea")
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()


async def test_small_messages_leave_at_once() -> None:
    """A loop that leaves Nagle's delay on keeps the second of two small messages until the first is confirmed:
    40 ms between the words and the sound of an answer."""
    with closing(server._bind("127.0.0.1", 0)) as listener:  # pyright: ignore[reportPrivateUsage]
        listener.listen()
        with closing(sockets.create_connection(listener.getsockname())), closing(listener.accept()[0]) as accepted:
            assert accepted.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY)
