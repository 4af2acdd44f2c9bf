"""What can be wrong with a model file, as errors a person can act on."""

from __future__ import annotations


class AssetError(Exception):
    """Base of every failure to find or trust a model file."""


class AssetMissing(AssetError):
    """Something a model needs is not on this machine.

    `name` is what was asked for, `what` describes what is absent, `how_to_get` is a command or an action.
    """

    def __init__(self, name: str, what: str, how_to_get: str) -> None:
        super().__init__(f"{what} is missing (needed for '{name}'); get it with: {how_to_get}")
        self.name = name
        self.what = what
        self.how_to_get = how_to_get


class AssetCorrupt(AssetError):
    """A file is there but its bytes are not those of the manifest."""

    def __init__(self, name: str, path: str, expected: str, found: str) -> None:
        super().__init__(
            f"{path} (asset '{name}') has SHA-256 {found}, expected {expected}; reinstall its package, "
            "or delete it when it lies in the cache"
        )
        self.name = name
        self.path = path
        self.expected = expected
        self.found = found


UNLOADABLE = (AssetError, OSError, ValueError, RuntimeError, KeyError)
"""What finding and loading a model may raise: our own errors, and those of the libraries about a file's content."""
