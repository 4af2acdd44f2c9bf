"""What can be wrong with a model file, as errors a person can act on."""

from __future__ import annotations

HOW_TO_GET_VOICE = "make voice"
"""Installs what the spoken pipeline lacks, in a clone of the repository."""


class AssetError(Exception):
    """Base of every failure to find or trust a model file."""


class AssetMissing(AssetError):
    """Something a model needs is not on this machine.

    `name` is what was asked for, `what` describes what is absent, `how_to_get` is a command or an action.
    """

    def __init__(self, name: str, what: str, how_to_get: str) -> None:
        super().__init__(f"{what} is missing; get it with: {how_to_get}")
        self.name = name
        self.what = what
        self.how_to_get = how_to_get


class AssetUnknown(AssetMissing):
    """What was asked for names no model that can be had. `instead` says what to name in its place."""

    def __init__(self, name: str, what: str, instead: str) -> None:
        AssetError.__init__(self, f"{what}: {instead}")
        self.name = name
        self.what = what
        self.how_to_get = instead


class AssetCorrupt(AssetError):
    """A file is there but its bytes are not those of the manifest. `how_to_mend` is a command."""

    def __init__(self, name: str, path: str, expected: str, found: str, how_to_mend: str) -> None:
        super().__init__(f"{path} is damaged (SHA-256 {found}, expected {expected}); mend it with: {how_to_mend}")
        self.name = name
        self.path = path
        self.expected = expected
        self.found = found


UNLOADABLE = (AssetError, OSError, ValueError, RuntimeError, KeyError)
"""What finding and loading a model may raise: our own errors, and those of the libraries about a file's content."""
