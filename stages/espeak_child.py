"""A small process of its own that turns text into phonemes with the espeak-ng library.

The library is GPL-3, so it is loaded here and never in the engine's process; this file imports nothing of
ours. It runs as a script: `python -I espeak_child.py LIBRARY [DATA]`, where DATA is the folder that holds
`phontab` (left out, the library's own is used).

Each request is one line of JSON on standard input, `{"voice": "en-us", "texts": ["...", ...]}`; each answer
one line of JSON on standard output: for every text the IPA phonemes of its clauses, `[["həlˈoʊ"], ...]`, or
`{"error": "..."}`. The first line written is `"ready"`. The process ends when its input ends.
"""

from __future__ import annotations

import ctypes
import json
import sys

_AUDIO_OUTPUT_SYNCHRONOUS = 2
_DONT_EXIT = 0x8000
_CHARS_UTF8 = 1
_PHONEMES_IPA = 0x02


class Espeak:
    """The loaded library; raises `OSError` when it cannot be loaded or started."""

    def __init__(self, library: str, data: str | None) -> None:
        self._lib = ctypes.CDLL(library)
        self._lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self._lib.espeak_TextToPhonemes.argtypes = [
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_int,
            ctypes.c_int,
        ]
        path = None if data is None else data.encode()
        if self._lib.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, path, _DONT_EXIT) <= 0:
            raise OSError(f"espeak-ng could not start with the data in {data}")
        self._voice: str | None = None

    def clauses(self, voice: str, text: str) -> list[str]:
        """The phonemes of each clause that the library hears in `text`; `ValueError` for an unknown voice."""
        if voice != self._voice:
            if self._lib.espeak_SetVoiceByName(voice.encode()) != 0:
                raise ValueError(f"espeak-ng has no voice '{voice}'")
            self._voice = voice
        buffer = ctypes.create_string_buffer(text.encode(errors="replace"))
        cursor = ctypes.c_void_p(ctypes.addressof(buffer))
        clauses: list[str] = []
        # The library moves the pointer behind each clause it has read and sets it to null at the end.
        while cursor.value is not None:
            spoken = self._lib.espeak_TextToPhonemes(ctypes.byref(cursor), _CHARS_UTF8, _PHONEMES_IPA)
            clauses.append((spoken or b"").decode())
        return [clause for clause in clauses if clause]


def main(arguments: list[str]) -> None:
    """Answer requests until standard input ends."""
    espeak = Espeak(arguments[0], arguments[1] if len(arguments) > 1 else None)
    _say("ready")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            _say([espeak.clauses(request["voice"], text) for text in request["texts"]])
        except ValueError as error:
            _say({"error": str(error)})


def _say(answer: object) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
