"""Phonemes from outside the process: the warm child, its death, and the program as the second way."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from antiphon.stages import espeak
from antiphon.stages.asset_errors import AssetMissing
from antiphon.stages.espeak import EspeakLibrary, EspeakProcess, EspeakProgram, PhonemiserFailed, find_library


@pytest.fixture
def child() -> Iterator[EspeakProcess]:
    library = find_library()
    if library is None:
        pytest.skip("no espeak-ng library: neither the espeakng-loader package nor the system has one")
    with EspeakProcess(library) as process:
        yield process


def test_each_text_has_its_phonemes(child: EspeakProcess) -> None:
    assert child.phonemes("en-us", ["hello", "", "Dr. Smith"]) == ["həlˈoʊ", "", "dˈɑːktɚ smˈɪθ"]
    assert child.phonemes("en-us", ["4th of May"]) == ["fˈɔːɹθ ʌv mˈeɪ"]
    assert child.phonemes("de", ["ich"]) != child.phonemes("en-us", ["ich"])
    assert child.phonemes("en-us", []) == []


def test_the_library_is_not_in_our_process(child: EspeakProcess) -> None:
    child.phonemes("en-us", ["hello"])
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not list what a process has loaded")
    assert "espeak" not in maps.read_text()


def test_a_killed_child_is_started_again(child: EspeakProcess) -> None:
    before = child.phonemes("en-us", ["hello"])
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert child.phonemes("en-us", ["hello"]) == before
    assert child.pid != first


def test_an_unknown_voice_is_refused_and_the_child_lives(child: EspeakProcess) -> None:
    child.phonemes("en-us", ["hello"])
    first = child.pid
    with pytest.raises(PhonemiserFailed, match="xx-yy"):
        child.phonemes("xx-yy", ["hello"])
    assert child.phonemes("en-us", ["hello"]) == ["həlˈoʊ"]
    assert child.pid == first


def test_strange_text_comes_through(child: EspeakProcess) -> None:
    plain = child.phonemes("en-us", ["one two"])
    assert child.phonemes("en-us", ["one\0two"]) == plain
    assert child.phonemes("en-us", ["one\ntwo"]) == plain
    assert child.phonemes("en-us", ["\ud800"]) != ["one"]  # half a character must not kill anything
    assert child.phonemes("en-us", ["one two"]) == plain


def test_threads_get_their_own_answers(child: EspeakProcess) -> None:
    texts = ["one", "two", "three", "four"] * 10
    expected = {text: child.phonemes("en-us", [text]) for text in set(texts)}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda text: child.phonemes("en-us", [text]), texts))
    assert answers == [expected[text] for text in texts]


def test_a_library_that_cannot_be_loaded_fails_by_name(tmp_path: Path) -> None:
    with (
        EspeakProcess(EspeakLibrary(str(tmp_path / "absent.so"), None)) as process,
        pytest.raises(PhonemiserFailed, match="died twice"),
    ):
        process.phonemes("en-us", ["hello"])


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in program is a shell script")
def test_the_program_is_asked_text_by_text(tmp_path: Path) -> None:
    program = tmp_path / "espeak-ng"
    program.write_text(
        '#!/bin/sh\n[ "$4" = bad ] && { echo no voice >&2; exit 1; }\nprintf " %s:" "$4"; cat; echo; echo " b"\n'
    )
    program.chmod(0o755)
    phonemiser = EspeakProgram(str(program))
    assert phonemiser.phonemes("en-us", ["x", "y"]) == ["en-us:x b", "en-us:y b"]
    with pytest.raises(PhonemiserFailed, match="no voice"):
        phonemiser.phonemes("bad", ["x"])
    phonemiser.close()


def test_without_espeak_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak, "find_library", lambda: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssetMissing, match="make voice"):
        espeak.open_phonemiser()
