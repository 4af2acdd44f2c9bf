"""The catalogue of rules is whole, and a mark cannot name what is not in it."""

from __future__ import annotations

import pytest

from tests.rules import WIDEST, Catalogue, Group, Marked, catalogue, holders, missing, rendered, report, unknown

KNOWN = Catalogue(
    (Group("A", "Names", {"A1": "a name is new", "A2": "a name is kept"}), Group("B", "Doors", {"B1": "it opens"})),
    {"A2": "there is one list of names"},
)
TESTS = [
    Marked("tests/test_names.py::test_new", ("A1",)),
    Marked("tests/test_names.py::test_new", ("A1",)),
    Marked("tests/test_names.py::test_all", ("A1", "A2")),
]


def numbers(group: Group) -> list[int]:
    return [int(name.removeprefix(group.name).lstrip(".")) for name in group.rules if not name.startswith("D33.")]


@pytest.mark.parametrize("group", catalogue().groups, ids=lambda group: group.name)
def test_each_group_counts_from_one_without_holes(group: Group) -> None:
    assert numbers(group) == list(range(1, len(numbers(group)) + 1))


@pytest.mark.parametrize("group", catalogue().groups, ids=lambda group: group.name)
def test_each_rule_is_said_in_one_line(group: Group) -> None:
    assert not [name for name, says in group.rules.items() if not 0 < len(says) <= WIDEST or "|" in says]


def test_what_cannot_happen_is_said_of_rules_only() -> None:
    known = catalogue()
    assert known.impossible
    assert not [name for name in known.impossible if name not in known]


def test_a_mark_that_names_no_rule_is_found() -> None:
    assert unknown(TESTS, KNOWN) == []
    (line,) = unknown([Marked("tests/test_names.py::test_old", ("A1", "A3"))], KNOWN)
    assert "test_old is marked with A3" in line


def test_variants_count_as_one_test_and_gaps_are_named() -> None:
    held = holders(TESTS)
    assert held == {
        "A1": ["tests/test_names.py::test_all", "tests/test_names.py::test_new"],
        "A2": ["tests/test_names.py::test_all"],
    }
    assert missing(KNOWN, held) == {"B": ["B1"]}
    said, status = report(KNOWN, held)
    assert status == 1
    assert "B1" in said
    assert report(KNOWN, held | {"B1": ["tests/test_doors.py::test_open"]})[1] == 0


def test_the_page_shows_each_rule_its_tests_and_what_is_missing() -> None:
    page = rendered(KNOWN, holders(TESTS))
    assert "| A1 | a name is new | `test_names.py::test_all`<br>`test_names.py::test_new` |" in page
    assert "| A2 † | a name is kept | `test_names.py::test_all` |" in page
    assert "- A2: there is one list of names" in page
    assert "| B1 | it opens | **none** |" in page
    assert "3 rules, 2 of them held by 2 tests; 1 without a test." in page
