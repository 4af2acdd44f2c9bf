"""Text to phonemes by espeak-ng, which stays outside our process because it is GPL-3.

Two ways, the first that works is taken:

1. its shared library in a warm child process (`espeak_child.py`), about 1 ms a call. The library comes from
   the `espeakng-loader` package, which needs no administrator, or from the system;
2. the `espeak-ng` program, about 20 ms a call.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib.util
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, cast

from antiphon.stages.asset_errors import HOW_TO_GET_VOICE, AssetMissing

_LIBRARY_NAMES = ("libespeak-ng.so", "libespeak-ng.so.1", "libespeak-ng.dylib", "espeak-ng.dll")


class PhonemiserFailed(RuntimeError):
    """espeak-ng refused a request or died twice over it; the message says why."""


class Phonemiser(Protocol):
    """Anything that turns texts into IPA phonemes."""

    def phonemes(self, voice: str, texts: Sequence[str]) -> list[str]:
        """The phonemes of each text, its words apart by one space; "" for a text without any.

        `voice` is espeak-ng's name ("en-us"). Raises `PhonemiserFailed`.
        """
        ...

    def close(self) -> None:
        """Give back what it holds. May be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class EspeakLibrary:
    """Where the shared library lies, and its data folder (None: the library knows)."""

    library: str
    data: str | None


def find_library() -> EspeakLibrary | None:
    """The library of the `espeakng-loader` package, else the system's, else None. Loads nothing."""
    spec = importlib.util.find_spec("espeakng_loader")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent
        data = folder / "espeak-ng-data"
        for name in _LIBRARY_NAMES:
            if (folder / name).is_file() and data.is_dir():
                return EspeakLibrary(str(folder / name), str(data))
    system = ctypes.util.find_library("espeak-ng")
    return None if system is None else EspeakLibrary(system, None)


def open_phonemiser() -> Phonemiser:
    """A phonemiser that works on this machine; raises `AssetMissing` when espeak-ng is nowhere."""
    library = find_library()
    if library is not None:
        return EspeakProcess(library)
    program = shutil.which("espeak-ng")
    if program is not None:
        return EspeakProgram(program)
    raise AssetMissing("espeak-ng", "espeak-ng, which turns text into phonemes,", HOW_TO_GET_VOICE)


class EspeakProcess:
    """The library in a child process that stays warm; a child that died is started again.

    Calls may come from any thread and are answered one by one. Use it as a context manager or `close` it.
    """

    def __init__(self, library: EspeakLibrary) -> None:
        self._command = [sys.executable, "-I", str(Path(__file__).with_name("espeak_child.py")), library.library]
        if library.data is not None:
            self._command.append(library.data)
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EspeakProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        child = self._child
        return None if child is None else child.pid

    def phonemes(self, voice: str, texts: Sequence[str]) -> list[str]:
        """As `Phonemiser.phonemes`."""
        # A zero byte would end the text inside the library.
        request = {"voice": voice, "texts": [text.replace("\0", " ") for text in texts]}
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            try:
                answer = self._ask(line)
            except (OSError, EOFError):
                self._stop()
                try:
                    answer = self._ask(line)
                except (OSError, EOFError) as error:
                    self._stop()
                    raise PhonemiserFailed("the espeak-ng process died twice over one text") from error
        if isinstance(answer, dict):
            raise PhonemiserFailed(str(answer["error"]))
        return [" ".join(clauses) for clauses in answer]

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._stop()

    def _ask(self, line: bytes) -> list[list[str]] | dict[str, str]:
        child = self._child
        if child is None:
            child = self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            _read_line(child)  # "ready"
        if child.stdin is None:
            raise EOFError
        child.stdin.write(line)
        child.stdin.flush()
        return cast("list[list[str]] | dict[str, str]", json.loads(_read_line(child)))

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # an unsent request to a dead child
                    pipe.close()


class EspeakProgram:
    """The `espeak-ng` program, started anew for every text."""

    def __init__(self, program: str) -> None:
        self._program = program

    def phonemes(self, voice: str, texts: Sequence[str]) -> list[str]:
        """As `Phonemiser.phonemes`."""
        return [self._one(voice, text) for text in texts]

    def close(self) -> None:
        """Nothing is held between calls."""

    def _one(self, voice: str, text: str) -> str:
        command = [self._program, "-q", "--ipa", "-v", voice, "--stdin"]
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        if done.returncode != 0:
            raise PhonemiserFailed(done.stderr.decode(errors="replace").strip())
        return " ".join(line.strip() for line in done.stdout.decode().splitlines() if line.strip())


def _read_line(child: subprocess.Popen[bytes]) -> bytes:
    line = b"" if child.stdout is None else child.stdout.readline()
    if not line:
        raise EOFError
    return line
