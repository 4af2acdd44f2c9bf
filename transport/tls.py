"""TLS: the server's certificate, and whom a client trusts."""

import ssl
from pathlib import Path


class TlsError(Exception):
    """The files cannot be used. The message says which and why."""


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return what a server needs to speak TLS 1.2 and later; `certificate` is the whole chain, in PEM.

    Raises:
        TlsError: a file is missing or no PEM, the key is locked by a password, or belongs to another certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for file in (certificate, key):
        _readable(file)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(f"the key {key} does not belong to the certificate {certificate}") from None
        raise TlsError(
            f"{certificate} and {key} are no certificate and its key, in PEM, without password"
        ) from None
    return context


def client_context(authority: Path) -> ssl.SSLContext:
    """Return what a client needs to trust this certificate authority, and no other.

    Raises:
        TlsError: the file is missing, or holds no certificate in PEM.
    """
    _readable(authority)
    try:
        context = ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        raise TlsError(f"{authority} holds no certificate in PEM") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _readable(file: Path) -> None:
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise TlsError(f"cannot read {file}: {error.strerror}") from error


def _no_password() -> str:
    """Return none: whoever starts a server is not asked for one at the terminal."""
    return ""
