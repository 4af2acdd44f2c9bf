"""API keys: who may come, and how much. A key is known by its SHA-256 alone, in memory and in the file of keys.

A fast hash is right here: a key is 256 random bits, so there is nothing to guess, and no list of likely keys to
try. A slow, salted hash protects what people think up; for keys it would only make every connection cost as much.
"""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import structlog
from msgspec import Meta, Struct

from antiphon.engine.datadir import put_private

_log = structlog.get_logger()

PREFIX = "ak_"
FILE_NAME = "keys.json"
"""The file of keys in a data directory."""

OFFERS = 4
"""Keys of one request that are looked at: it has four places for them."""

LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]*")

Most = Annotated[int, Meta(ge=1)]


class KeyFileError(Exception):
    """The file of keys cannot be used as it is asked for. The message says why, and what to do about it."""


class ApiKey(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A key, by its digest. `id` is public: it stands in lists and logs. None: no bound of its own.

    `sessions` bounds those that are open at one time, `bytes_per_s` and `events_per_s` what clients may send.
    """

    id: str
    name: str
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    created: int = 0
    """Seconds since 1970; 0: not known."""
    sessions: Most | None = None
    bytes_per_s: Most | None = None
    events_per_s: Most | None = None
    admin: bool = False
    """Whether it may look at every session."""


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The layout of a file of keys."""

    antiphon_keys: Literal[1] = 1
    keys: tuple[ApiKey, ...] = ()


def digest(key: str) -> str:
    """Return the hex SHA-256 of a key; a header may hold some that are no text."""
    return hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()


def given(number: int, text: str) -> ApiKey:
    """Return a key that an operator gives at the start of the server, the `number`th.

    Raises:
        ValueError: it is empty, so that anybody has it.
    """
    if not text.strip():
        raise ValueError("an API key must not be empty")
    return ApiKey(id=f"given-{number}", name=f"--api-key {number}", sha256=digest(text))


class Keys:
    """The keys that open now: those given at the start, and those of a file, which may change meanwhile.

    No keys and no file: everybody may come. A file without a key in it lets nobody in.
    """

    def __init__(self, given: Iterable[ApiKey] = (), file: Path | None = None) -> None:
        """Read the file, if it is there.

        Raises:
            KeyFileError: it cannot be used.
        """
        self._given = tuple(given)
        self._file = file
        self._stamp = _stamp(file)
        self._filed: tuple[ApiKey, ...] | None = None
        if file is not None and self._stamp is not None:
            self._filed = load(file)

    @classmethod
    def of(cls, *texts: str) -> "Keys":
        """Return the keys with these texts.

        Raises:
            ValueError: one is empty.
        """
        return cls([given(number, text) for number, text in enumerate(texts, 1)])

    @property
    def needed(self) -> bool:
        """Whether nobody may come without a key."""
        return bool(self._given) or self._filed is not None

    @property
    def watched(self) -> bool:
        """Whether there is a file that may change."""
        return self._file is not None

    def known(self) -> tuple[ApiKey, ...]:
        """Return every key that opens now."""
        return (*self._given, *(self._filed or ()))

    def find(self, offered: Iterable[str]) -> ApiKey | None:
        """Return the key that one of these texts is, None if none is.

        Each is compared with every key, in constant time: how long it takes tells nothing.
        """
        found: ApiKey | None = None
        digests = [digest(one) for _, one in zip(range(OFFERS), offered, strict=False)]
        for key in self.known():
            for one in digests:
                if hmac.compare_digest(one, key.sha256):
                    found = key
        return found

    def refresh(self) -> None:
        """Read the file again if it has changed. One that is gone or damaged leaves the keys as they were."""
        stamp = _stamp(self._file)
        if stamp == self._stamp or self._file is None:
            return
        self._stamp = stamp
        try:
            self._filed = load(self._file)
        except KeyFileError as error:
            _log.error("the file of keys cannot be used; the keys stay as they were", why=str(error))
        else:
            _log.info("the file of keys was read again", keys=len(self._filed))


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """Return what tells whether a file has changed, None if it is not there."""
    if file is None:
        return None
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# -- the file ------------------------------------------------------------------------------------------------


def load(file: Path) -> tuple[ApiKey, ...]:
    """Return the keys in a file.

    Raises:
        KeyFileError: it is missing, damaged, or others than its owner may write it.
    """
    try:
        with open(file, "rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode & 0o777
            text = opened.read()
    except FileNotFoundError:
        raise KeyFileError(f"there is no file of keys {file}: make one with `antiphon keys add`") from None
    except OSError as error:
        raise KeyFileError(f"cannot read the file of keys {file}: {error.strerror}") from error
    if mode & 0o022:
        raise KeyFileError(f"{file} can be written by others (mode {mode:03o}): run `chmod 600 {file}`")
    try:
        keys = msgspec.json.decode(text, type=_File).keys
    except msgspec.DecodeError as error:
        raise KeyFileError(f"{file} is no file of keys, or is damaged: {error}") from None
    for known in ("id", "name", "sha256"):
        values = [str(msgspec.structs.asdict(key)[known]) for key in keys]
        if len(set(values)) < len(values):
            raise KeyFileError(f"{file} is damaged: two keys have one {known}")
    return keys


def add(
    file: Path,
    name: str,
    *,
    sessions: int | None = None,
    bytes_per_s: int | None = None,
    events_per_s: int | None = None,
    admin: bool = False,
) -> tuple[ApiKey, str]:
    """Draw a key and write its digest into the file, which is made if it is missing; return it and its text.

    The text is nowhere else.

    Raises:
        KeyFileError: the name is taken or unusable, or the file is.
    """
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise KeyFileError(
            f"a key's name is 1 to {LONGEST_NAME} letters, digits, spaces and . _ @ -, and begins with one of the "
            "first two"
        )
    text = PREFIX + secrets.token_urlsafe(32)
    key = ApiKey(
        id=f"key_{secrets.token_hex(4)}",
        name=name,
        sha256=digest(text),
        created=int(time.time()),
        sessions=sessions,
        bytes_per_s=bytes_per_s,
        events_per_s=events_per_s,
        admin=admin,
    )
    with _alone(file):
        keys = load(file) if file.exists() else ()
        if any(name in (known.name, known.id) for known in keys):
            raise KeyFileError(
                f"there is a key {name!r} in {file} already: choose another name, or remove it first"
            )
        _write(file, (*keys, key))
    return key, text


def remove(file: Path, wanted: str) -> ApiKey:
    """Take a key out of the file, by its name or its public id; return it.

    Raises:
        KeyFileError: there is none, or the file cannot be used.
    """
    with _alone(file):
        keys = load(file)
        for key in keys:
            if wanted in (key.id, key.name):
                _write(file, tuple(other for other in keys if other is not key))
                return key
    raise KeyFileError(f"there is no key {wanted!r} in {file}: `antiphon keys list` shows those there are")


@contextmanager
def _alone(file: Path) -> Generator[None]:
    """Keep other commands from changing the file meanwhile: its folder is locked, which leaves nothing behind."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise KeyFileError(f"cannot use the folder {file.parent}: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(file: Path, keys: tuple[ApiKey, ...]) -> None:
    text = msgspec.json.format(msgspec.json.encode(_File(keys=keys)), indent=2) + b"\n"
    try:
        put_private(file, text)
    except OSError as error:
        raise KeyFileError(f"cannot write the file of keys {file}: {error.strerror}") from error
