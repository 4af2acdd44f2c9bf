"""TLS: wss and https on one port, with certificates that are made here."""

import socket
import ssl
import urllib.request
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import trustme
from msgspec import Struct

from antiphon.transport import cli_talk
from antiphon.transport import wire_server as out
from antiphon.transport.cli_errors import Stop
from antiphon.transport.cli_serve import certificate
from antiphon.transport.client import RealtimeClient, Retrying, SessionLost
from antiphon.transport.serve import ServeSettings, Told, serve
from antiphon.transport.tls import TlsError, client_context, server_context

from .serving import Wire, serving
from .test_cli_serve import served as operated


class Files(Struct, frozen=True):
    """Certificates in a folder."""

    chain: Path
    key: Path
    ca: Path


def made(root: Path) -> Files:
    """Make a certificate authority, and a certificate for this machine."""
    authority = trustme.CA()
    files = Files(root / "chain.pem", root / "key.pem", root / "ca.pem")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(str(files.key))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(files.chain), append=True)
    authority.cert_pem.write_to_path(str(files.ca))
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return made(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return made(tmp_path_factory.mktemp("other"))


async def test_one_port_speaks_wss_and_https(files: Files) -> None:
    trust = client_context(files.ca)
    async with serving(tls=server_context(files.chain, files.key)) as served:

        def fetched() -> tuple[int, bytes]:
            with urllib.request.urlopen(served.http + "/health", context=trust) as answer:
                return answer.status, answer.read()

        assert await anyio.to_thread.run_sync(fetched) == (200, b'{"status":"healthy"}')
        async with Wire.to(served.url, ssl=trust) as wire:
            assert (await wire.next())["type"] == "session.created"
            await wire.send("input_audio_buffer.clear")
            await wire.until("input_audio_buffer.cleared")


async def test_the_client_trusts_an_authority_of_its_own_and_resumes_with_it(files: Files, others: Files) -> None:
    async with serving(tls=server_context(files.chain, files.key)) as served:
        address = f"https://localhost:{served.server.port}"
        async with RealtimeClient(address, tls=client_context(files.ca)) as client:
            await client.wait_for(out.SessionCreated)
            client.drop_socket()
            await client.wait_for(out.SessionResumed)
        for tls in (None, client_context(others.ca)):
            with pytest.raises(SessionLost, match="its certificate is not trusted here"):
                await RealtimeClient(address, tls=tls, retrying=Retrying(attempts=1)).__aenter__()


async def test_nothing_older_than_tls_1_2_and_no_plain_text(files: Files) -> None:
    async with serving(tls=server_context(files.chain, files.key)) as served:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1

        def dialled() -> None:
            with socket.create_connection(("127.0.0.1", served.server.port)) as line, old.wrap_socket(line):
                pass

        with pytest.raises(ssl.SSLError):
            await anyio.to_thread.run_sync(dialled)
        async with await anyio.connect_tcp("127.0.0.1", served.server.port) as line:
            await line.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await line.receive()
        async with Wire.to(served.url, ssl=client_context(files.ca)) as wire:
            await wire.next()


async def test_what_cannot_be_used_is_told(files: Files, others: Files, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("not a certificate")
    told = Told(listening=print, ready=lambda: None, unavailable=print)
    for chain, key, why in (
        (tmp_path / "missing.pem", files.key, "cannot read .*missing.pem: No such file"),
        (junk, files.key, "no certificate and its key"),
        (files.chain, junk, "no certificate and its key"),
        (files.chain, others.key, "does not belong to the certificate"),
    ):
        with pytest.raises(TlsError, match=why):
            await serve(ServeSettings(tls=(chain, key)), told)
    with pytest.raises(TlsError, match="holds no certificate"):
        client_context(junk)
    with pytest.raises(Stop, match="needs both"):
        certificate(files.chain, None)
    assert certificate(None, None) is None


def test_the_authority_of_talk_must_be_readable(tmp_path: Path) -> None:
    with pytest.raises(Stop, match="cannot read"):
        cli_talk.trusting(tmp_path / "none.pem")


async def test_the_command_line_serves_https(files: Files, tmp_path: Path) -> None:
    extra = ("--pipeline", "echo", "--tls-cert", files.chain, "--tls-key", files.key)
    async with operated(tmp_path / "data", *extra) as operator:
        await operator.listens()
        assert operator.address.startswith("https://127.0.0.1:")
        async with RealtimeClient(operator.address, tls=client_context(files.ca)) as client:
            assert client.session_id
        assert await operator.ends() == 0
    assert "Traceback" not in operator.said
