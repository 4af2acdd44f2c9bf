"""The golden logs, decided again: the same commands give the same events."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from antiphon.events.log import BEHAVIOUR, Transaction, canonical, from_json, to_json
from antiphon.sessions import core

from tests.histories.record import FOLDER, SCENARIOS, Header
from tests.rules import rule

HISTORIES = sorted(FOLDER.glob("*.jsonl"))


def read(path: Path) -> tuple[Header, list[Transaction]]:
    first, *lines = path.read_bytes().splitlines()
    return msgspec.json.decode(first, type=Header), [from_json(line) for line in lines]


def test_every_scenario_is_recorded() -> None:
    assert {path.stem for path in HISTORIES} == set(SCENARIOS)


@rule("P2")
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_is_decided_as_it_was(path: Path) -> None:
    header, log = read(path)
    assert header.behaviour in (BEHAVIOUR, BEHAVIOUR - 1)
    assert core.REGISTRY[header.plugin].version == header.plugin_version
    session = core.new()
    for transaction in log:
        events = core.decide(session, transaction.command, transaction.at)
        assert canonical(events) == canonical(transaction.events), f"{path.name}: transaction {transaction.seq}"
        core.fold([transaction], session)
    assert session.phase == "closed"
    assert core.outstanding(session) == []


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_is_whole_and_its_lines_are_canonical(path: Path) -> None:
    header, log = read(path)
    assert [transaction.seq for transaction in log] == list(range(1, header.transactions + 1))
    assert [to_json(transaction) for transaction in log] == path.read_bytes().splitlines()[1:]
    assert all(before.at <= after.at for before, after in pairwise(log))
