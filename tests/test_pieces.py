"""The command lines over many seeds: each begins, says what it takes, and refuses what is no number."""

from collections.abc import Callable

import pytest

from tests.chaos.__main__ import main as chaos
from tests.fuzz.__main__ import main as fuzz
from tests.simulation.__main__ import main as simulate

Main = Callable[[list[str]], int]


@pytest.mark.parametrize(("main", "number"), [(chaos, "--kills"), (fuzz, "--inputs"), (simulate, "--jobs")])
def test_a_command_line_over_seeds_says_what_it_takes(
    main: Main, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status in ((["--help"], 0), ([number, "0"], 2), ([number, "many"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == status
        out, err = capsys.readouterr()
        assert number in (err if status else out)
