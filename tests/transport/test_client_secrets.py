"""`POST /v1/realtime/client_secrets`: keys for one opening each."""

import urllib.error
import urllib.request
from typing import Any

import anyio.to_thread
import msgspec
import pytest
from openai import AsyncOpenAI
from websockets.exceptions import InvalidStatus

from antiphon.engine.clock import VirtualClock
from antiphon.transport import secrets
from antiphon.transport.access import Access
from antiphon.transport.grant import Start
from antiphon.transport.keys import ApiKey, Keys, add, digest, remove
from antiphon.transport.secrets import Crowded, Secrets

from .serving import Serving, Wire, serving

KEYS = Access(keys=Keys.of("master"))


async def ask(served: Serving, body: object = None, key: str = "master") -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body or {})

    def post() -> tuple[int, Any]:
        request = urllib.request.Request(
            served.http + "/v1/realtime/client_secrets", data, {"Authorization": f"Bearer {key}"}
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, msgspec.json.decode(error.read())

    return await anyio.to_thread.run_sync(post)


def browser(served: Serving, secret: str, query: str = "") -> Any:
    return Wire.to(served.url + query, subprotocols=["realtime", f"openai-insecure-api-key.{secret}"])


async def refused(served: Serving, secret: str) -> int:
    with pytest.raises(InvalidStatus) as error:
        async with browser(served, secret):
            pass
    return error.value.response.status_code


SESSION = {"type": "realtime", "instructions": "Be brief.", "model": "mine", "output_modalities": ["text"]}


async def test_a_secret_opens_the_session_that_was_shown_once() -> None:
    async with serving(access=KEYS) as served:
        status, answer = await ask(served, {"session": SESSION})
        assert status == 200
        assert answer["value"].startswith("ek_")
        assert answer["session"]["instructions"] == "Be brief."
        assert served.hub.statistics().live == 0
        async with browser(served, answer["value"]) as wire:
            session = (await wire.next())["session"]
            assert {**session, "expires_at": None} == {**answer["session"], "expires_at": None}
            assert (session["model"], session["output_modalities"]) == ("mine", ["text"])
            assert served.hub.session(session["id"]).owner == "given-1"  # type: ignore[union-attr]
        assert await refused(served, answer["value"]) == 401


async def test_a_secret_that_was_used_resumes_what_it_opened_and_opens_nothing() -> None:
    async with serving(access=KEYS) as served:
        _, answer = await ask(served, {"session": SESSION})
        secret = answer["value"]
        async with browser(served, secret, "?duplex=1&model=m") as wire:
            created = await wire.next()
        assert await refused(served, secret) == 401
        async with browser(served, secret, "?resume=1") as wire:
            await wire.send("session.update", session={})
            error = await wire.error()
            assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")
            assert (await wire.closed())[0] == 1008
        async with browser(served, secret, "?resume=1") as wire:
            await wire.send(
                "session.resume",
                session_id=created["session"]["id"],
                resume_token=created["resume_token"],
                last_received_server_event_seq=0,
            )
            assert (await wire.next())["type"] == "session.resumed"


async def test_a_ga_client_comes_back_with_its_secret() -> None:
    async with serving(access=KEYS) as served:
        _, answer = await ask(served, {"session": SESSION})
        async with browser(served, answer["value"], "?resumable=1") as wire:
            created = await wire.next()
        back = f"?session_id={created['session']['id']}&resume_token={created['resume_token']}"
        async with browser(served, answer["value"], back) as wire:
            assert (await wire.next())["resumed"] is True


async def test_only_the_last_used_secrets_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MOST", 3)
    table = Secrets(VirtualClock())

    def use(owner: str) -> str:
        text = table.draw(owner, Start(), 10, 0)[0]
        assert table.take(text) is not None
        return text

    assert [table.used(text) for text in [use("a"), *(use("b") for _ in range(3))]] == ["a", None, "b", "b"], (
        "the key with the most of them forgets its oldest"
    )


async def test_it_opens_by_header_too_and_no_document() -> None:
    async with serving(access=KEYS) as served:
        _, answer = await ask(served)
        assert (await ask(served, key=answer["value"]))[0] == 401
        async with Wire.to(served.url, additional_headers={"Authorization": f"Bearer {answer['value']}"}) as wire:
            assert (await wire.next())["type"] == "session.created"


async def test_what_a_duplex_client_says_first_goes_on_top() -> None:
    async with serving(access=KEYS) as served:
        _, answer = await ask(served, {"session": {**SESSION, "metadata": {"a": "b"}, "truncation": "disabled"}})
        async with browser(served, answer["value"], "?duplex=1&autostart=0") as wire:
            await wire.send("session.update", session={"instructions": "Be long.", "tracing": "auto"})
            session = (await wire.next())["session"]
            assert (session["instructions"], session["metadata"]) == ("Be long.", {"a": "b"})
            assert (session["truncation"], session["tracing"]) == ("disabled", "auto")


async def test_it_ends_with_its_time_or_its_key(tmp_path: Any) -> None:
    clock = VirtualClock()
    _, text = add(tmp_path / "keys.json", "one")
    keys = Keys(file=tmp_path / "keys.json")
    async with serving(access=Access(keys=keys), clock=clock) as served:
        _, first = await ask(served, {"expires_after": {"anchor": "created_at", "seconds": 10}}, text)
        assert first["expires_at"] == clock.wall_us() // 1_000_000 + 10
        _, second = await ask(served, {"expires_after": {"seconds": 7200}}, text)
        clock.advance(10_000_000)
        assert await refused(served, first["value"]) == 401
        remove(tmp_path / "keys.json", "one")
        keys.refresh()
        assert await refused(served, second["value"]) == 401


async def test_without_keys_it_prepares_a_session_and_still_opens_once() -> None:
    async with serving() as served:
        _, answer = await ask(served, {"session": SESSION})
        async with browser(served, answer["value"]) as wire:
            assert (await wire.next())["session"]["instructions"] == "Be brief."
        assert await refused(served, answer["value"]) == 401
        async with Wire.to(served.url) as wire:
            await wire.next()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "The body must be a JSON object."),
        (b"null", "The body must be a JSON object."),
        (b'{"expires_after": {"seconds": 9}}', "'expires_after.seconds': expected an integer from 10 to 7200."),
        (b'{"expires_after": {"seconds": 7201}}', "'expires_after.seconds': expected an integer from 10 to 7200."),
        (b'{"expires_after": {"anchor": "now"}}', "'expires_after.anchor': expected 'created_at'."),
        (
            b'{"session": {"audio": {"output": {"speed": 9}}}}',
            "'session.audio.output.speed': expected a number from",
        ),
        (b'{"session": 5}', "session is an object"),
        (b'{"session": {"turn_detection": {"type": "magic"}}}', "Turn detection is"),
        (b'{"session": {"type": "transcription"}}', ""),
        (b'{"session": {"ref_audio": "file:///etc/passwd"}}', ""),
    ],
)
async def test_what_no_session_can_have_is_refused(body: bytes, words: str) -> None:
    async with serving(access=KEYS) as served:
        status, answer = await ask(served, body)
        assert status == 400
        assert words in answer["error"]["message"]
        assert "frame" not in answer["error"]["message"]


async def test_what_is_wrong_is_named() -> None:
    async with serving(access=KEYS) as served:
        _, answer = await ask(served, {"session": {"temperature": 3}})
        assert answer["error"]["param"] == "session.temperature"


async def test_too_much_is_refused() -> None:
    async with serving(access=KEYS) as served:
        assert (await ask(served, b" " * (15 * 1024 * 1024 + 1)))[0] == 413


def test_secrets_are_bounded_in_number_and_in_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MOST", 2)
    monkeypatch.setattr(secrets, "MOST_BYTES", 100)
    clock = VirtualClock()
    table = Secrets(clock)
    first, _ = table.draw("", Start(), 10, 60)
    with pytest.raises(Crowded):
        table.draw("", Start(), 10, 60)
    table.draw("", Start(), 20, 40)
    with pytest.raises(Crowded):
        table.draw("", Start(), 10, 0)
    clock.advance(10_000_000)
    table.draw("", Start(), 10, 60)
    assert table.take(first) is None
    assert len(table) == 2


def test_no_key_holds_more_than_it_leaves_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MOST", 12)
    monkeypatch.setattr(secrets, "MOST_BYTES", 120)
    clock = VirtualClock()
    table = Secrets(clock)

    def drawn(owner: str, size: int) -> int:
        for count in range(100):
            try:
                table.draw(owner, Start(), 10, size)
            except Crowded:
                return count
        return 100

    assert [drawn(owner, 0) for owner in ("a", "b", "c", "a")] == [6, 3, 1, 0]
    clock.advance(10_000_000)
    assert [drawn(owner, 30) for owner in ("a", "b", "c")] == [2, 1, 0]
    clock.advance(10_000_000)
    assert drawn("a", 0) == 6


async def test_drawing_is_charged_to_the_key() -> None:
    one = ApiKey(id="key_1", name="one", sha256=digest("master"), events_per_s=1, bytes_per_s=1_000)
    clock = VirtualClock()
    async with serving(access=Access(keys=Keys([one])), clock=clock) as served:
        assert [(await ask(served))[0] for _ in range(3)] == [200, 200, 429]
        clock.advance(1_000_000)
        assert (await ask(served, b" " * 1_900))[0] == 200
        status, answer = await ask(served)
        assert status == 429
        assert "of this key is used up" in answer["error"]["message"]


async def test_too_many_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MOST", 0)
    async with serving(access=KEYS) as served:
        assert (await ask(served))[0] == 429


async def test_what_a_secret_opens_counts_for_its_key() -> None:
    one = ApiKey(id="key_1", name="one", sha256=digest("master"), sessions=1)
    async with serving(access=Access(keys=Keys([one]))) as served:
        _, first = await ask(served)
        _, second = await ask(served)
        async with browser(served, first["value"]) as wire:
            await wire.next()
            async with browser(served, second["value"]) as other:
                assert (await other.error())["code"] == "rate_limit_exceeded"


async def test_openai_python_makes_one() -> None:
    async with (
        serving(access=KEYS) as served,
        AsyncOpenAI(api_key="master", base_url=served.http + "/v1") as client,
    ):
        made = await client.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 60},
            session={"type": "realtime", "instructions": "Be brief."},
        )
        assert made.session.type == "realtime"
        async with browser(served, made.value) as wire:
            assert (await wire.next())["session"]["instructions"] == "Be brief."
