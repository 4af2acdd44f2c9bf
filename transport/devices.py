"""Loudspeaker and microphone of this machine: by the library `sounddevice`, or else by programs of the system."""

import asyncio
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import IO, Protocol, cast

import anyio

Device = int | str | None
"""A device by its number or name in `sounddevice`, or by its name for the program; None: the usual one."""

BEHIND_US = 100_000
"""How long a program keeps sound before it is heard, as far as it does what it is asked to."""

KEPT_S = 5
"""What a microphone heard and nobody took is kept so long."""

PIECE_MS = 20

INSTALL = (
    "install the Python package `sounddevice` (pip install 'antiphon[sound]', and PortAudio: apt-get install "
    "libportaudio2), or a program: apt-get install pulseaudio-utils (paplay, parec) or alsa-utils (aplay, arecord)"
)


class NoDevice(Exception):
    """Nothing can be played or recorded here. The message says what is wrong or what to install."""


class Stream(Protocol):
    """As much of a stream of `sounddevice` as is used here."""

    latency: float

    def start(self) -> None: ...

    def close(self) -> None: ...


Fill = Callable[[memoryview, int, object, object], None]


class Library(Protocol):
    """As much of `sounddevice` as is used here."""

    PortAudioError: type[Exception]

    def RawOutputStream(  # noqa: N802  # the library's name
        self, *, samplerate: int, channels: int, dtype: str, device: Device, callback: Fill
    ) -> Stream: ...

    def RawInputStream(  # noqa: N802  # the library's name
        self, *, samplerate: int, channels: int, dtype: str, device: Device, blocksize: int, callback: Fill
    ) -> Stream: ...


def library() -> Library | None:
    """Return `sounddevice` if it is here and works."""
    try:
        # It ships no types, and is optional.
        return cast("Library", import_module("sounddevice"))
    except (ImportError, OSError):  # OSError: it does not find PortAudio
        return None


# -- loudspeakers --------------------------------------------------------------------------------------------


class LibraryLoudspeaker:
    """A sink of a `Player`, played by `sounddevice`: the device takes what waits; an empty queue is silence."""

    def __init__(self, sounddevice: Library, device: Device = None) -> None:
        self._library = sounddevice
        self._device = device
        self._stream: Stream | None = None
        self._rate = 0
        self._waiting = bytearray()
        self._lock = threading.Lock()

    @property
    def latency_us(self) -> int:
        """What the device says of itself."""
        return 0 if self._stream is None else int(self._stream.latency * 1e6)

    def write(self, sound: bytes, rate: int) -> None:
        """Play this behind what waits.

        Raises:
            NoDevice: the device cannot be opened.
        """
        if rate != self._rate:
            self._open(rate)
        with self._lock:
            self._waiting += sound

    def flush(self) -> None:
        """Forget what waits."""
        with self._lock:
            self._waiting.clear()

    def close(self) -> None:
        """Give the device back."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self, rate: int) -> None:
        self.close()
        try:
            self._stream = self._library.RawOutputStream(
                samplerate=rate, channels=1, dtype="int16", device=self._device, callback=self._fill
            )
            self._stream.start()
        except (self._library.PortAudioError, ValueError) as error:
            raise NoDevice(f"the loudspeaker cannot be opened: {error}") from error
        self._rate = rate

    def _fill(self, out: memoryview, _frames: int, _time: object, _status: object) -> None:
        """Called in a thread of the device's."""
        with self._lock:
            size = min(len(out), len(self._waiting))
            out[:size] = bytes(self._waiting[:size])
            del self._waiting[:size]
        out[size:] = bytes(len(out) - size)


class ProgramLoudspeaker:
    """A sink of a `Player`, played by a program; an interruption ends it, and with it what it still had."""

    latency_us = BEHIND_US

    def __init__(self, command: Callable[[int], Sequence[str]]) -> None:
        self._command = command
        self._program: subprocess.Popen[bytes] | None = None
        self._rate = 0

    def write(self, sound: bytes, rate: int) -> None:
        """Play this behind what came before.

        Raises:
            NoDevice: the program has ended, or stands.
        """
        if self._program is None or rate != self._rate:
            self.flush()
            # In a session of its own: Ctrl-C is for whoever converses, not for what makes it audible.
            self._program = subprocess.Popen(
                self._command(rate), stdin=subprocess.PIPE, bufsize=0, start_new_session=True
            )
            self._rate = rate
        try:
            _pipe(self._program.stdin).write(sound)
        except OSError as error:
            raise NoDevice(f"{self._command(rate)[0]} does not play: {error}") from error

    def flush(self) -> None:
        """End the program."""
        program, self._program = self._program, None
        if program is not None:
            program.kill()
            program.wait()
            _pipe(program.stdin).close()

    def close(self) -> None:
        """End the program."""
        self.flush()


def loudspeaker(device: Device = None) -> LibraryLoudspeaker | ProgramLoudspeaker:
    """Return a sink that is heard.

    Raises:
        NoDevice: there is nothing to play with.
    """
    sounddevice = library()
    if sounddevice is not None:
        return LibraryLoudspeaker(sounddevice, device)
    name = "" if device is None else str(device)
    if shutil.which("paplay"):
        chosen = [f"--device={name}"] if name else []
        return ProgramLoudspeaker(
            lambda rate: ["paplay", "--raw", *_pulse(rate), "--latency-msec=60", *chosen],
        )
    if shutil.which("aplay"):
        chosen = ["-D", name] if name else []
        return ProgramLoudspeaker(lambda rate: ["aplay", "-q", *_alsa(rate), "-B", "100000", *chosen])
    raise NoDevice(f"there is nothing to play with: {INSTALL}")


# -- microphones ---------------------------------------------------------------------------------------------


async def microphone(rate: int, device: Device = None) -> AsyncGenerator[bytes]:
    """Give what is heard, in pieces of about 20 ms: pcm16, one channel, `rate` samples a second.

    What nobody takes within 5 s is forgotten.

    Raises:
        NoDevice: there is nothing to record with, or it has ended.
    """
    sounddevice = library()
    heard = _recorded(rate, device) if sounddevice is None else _captured(sounddevice, rate, device)
    async with aclosing(heard) as pieces:
        async for piece in pieces:
            yield piece


async def _captured(sounddevice: Library, rate: int, device: Device) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    waiting: deque[bytes] = deque(maxlen=KEPT_S * 1000 // PIECE_MS)
    came = asyncio.Event()

    def take(piece: bytes) -> None:
        waiting.append(piece)
        came.set()

    def heard(data: memoryview, _frames: int, _time: object, _status: object) -> None:
        loop.call_soon_threadsafe(take, bytes(data))

    try:
        stream = sounddevice.RawInputStream(
            samplerate=rate,
            channels=1,
            dtype="int16",
            device=device,
            blocksize=rate * PIECE_MS // 1000,
            callback=heard,
        )
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        raise NoDevice(f"the microphone cannot be opened: {error}") from error
    try:
        while True:
            await came.wait()
            came.clear()
            while waiting:
                yield waiting.popleft()
    finally:
        stream.close()


async def _recorded(rate: int, device: Device) -> AsyncGenerator[bytes]:
    command = _recorder(rate, "" if device is None else str(device))
    size, rest = rate * PIECE_MS // 1000 * 2, b""
    async with await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stderr=None, start_new_session=True
    ) as program:
        try:
            assert program.stdout is not None
            async for data in program.stdout:
                rest += data
                while len(rest) >= size:
                    yield rest[:size]
                    rest = rest[size:]
        finally:
            if program.returncode is None:
                program.kill()
    raise NoDevice(f"{command[0]} has stopped recording (exit code {program.returncode})")


def _recorder(rate: int, device: str) -> list[str]:
    if shutil.which("parec"):
        return ["parec", "--raw", *_pulse(rate), "--latency-msec=20", *([f"--device={device}"] if device else [])]
    if shutil.which("arecord"):
        return ["arecord", "-q", *_alsa(rate), *(["-D", device] if device else [])]
    raise NoDevice(f"there is nothing to record with: {INSTALL}")


def _pulse(rate: int) -> list[str]:
    return [f"--rate={rate}", "--format=s16le", "--channels=1"]


def _alsa(rate: int) -> list[str]:
    return ["-t", "raw", "-f", "S16_LE", "-r", str(rate), "-c", "1"]


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
