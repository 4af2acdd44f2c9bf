"""Records of earlier layouts stay readable; those of a later one are refused by name."""

from pathlib import Path
from typing import cast, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import log
from antiphon.events.upcast import LAYOUT, UPCASTERS, LaterLayout, Record, upcast

from tests.events.examples import structs

OLD = Path(__file__).parent.parent / "histories" / "old"
NOW = log.Transaction(seq=1, term=1, at=0, command=cmd.Tick(), events=(ev.AnswerDeferred(),))


def plain(transaction: log.Transaction) -> Record:
    return cast("Record", msgspec.to_builtins(transaction))


def test_what_is_written_says_its_layout_at_its_end() -> None:
    assert log.to_json(NOW).endswith(b'"v":%d}' % LAYOUT)
    assert log.encode(NOW).endswith(b"\xa1v" + msgspec.msgpack.encode(LAYOUT))
    assert 1 + max(UPCASTERS) == LAYOUT
    assert set(UPCASTERS) == set(range(1, LAYOUT))


def test_a_present_record_that_is_written_another_way_is_read_too() -> None:
    fields = plain(NOW)
    turned = {name: fields[name] for name in reversed(fields)}
    assert log.decode(msgspec.msgpack.encode(turned)) == NOW
    assert log.from_json(msgspec.json.encode(turned)) == NOW
    assert log.from_json(msgspec.json.format(log.to_json(NOW)).decode()) == NOW


@pytest.mark.parametrize("path", sorted(OLD.glob("layout_1_*.jsonl")), ids=lambda path: path.stem)
def test_a_log_of_layout_1_is_read_which_the_decoder_refuses(path: Path) -> None:
    lines = path.read_bytes().splitlines()[1:]
    with pytest.raises(msgspec.ValidationError, match="generation"):
        msgspec.json.decode(b"[%s]" % b",".join(lines), type=list[log.Transaction])
    read = [log.from_json(line) for line in lines]
    stored = [log.decode(msgspec.msgpack.encode(msgspec.json.decode(line))) for line in lines]
    assert read == stored
    assert {transaction.v for transaction in read} == {LAYOUT}
    assert [transaction.seq for transaction in read] == list(range(1, len(lines) + 1))
    events = [event for transaction in read for event in transaction.events]
    assert {event.generation for event in events if isinstance(event, ev.ConfigUpdated)} == {0}
    first = {event.latency.first_text_ms for event in events if isinstance(event, ev.ResponseEnded)}
    assert 20.0 in first, "the time that an answer told is kept"


@settings(max_examples=100)
@given(data=st.data())
def test_what_was_written_before_layouts_were_told_is_read_as_it_was_meant(data: st.DataObject) -> None:
    kinds = st.sampled_from(get_args(ev.AnyEvent))
    made = msgspec.structs.replace(NOW, events=(data.draw(structs(data.draw(kinds))),))
    former = {name: value for name, value in plain(made).items() if name != "v"}
    assert log.decode(msgspec.msgpack.encode(former)) == made
    assert log.from_json(msgspec.json.encode(former)) == made


def test_an_upcaster_leaves_what_it_is_given_and_what_it_does_not_know() -> None:
    line = next(OLD.glob("layout_1_spoken*.jsonl")).read_bytes().splitlines()[2]
    before: Record = msgspec.json.decode(line)
    upcast(before)
    assert before == msgspec.json.decode(line)
    counted: Record = {"events": [{"type": "ConfigUpdated", "generation": 7}, {"type": "Other", "x": 1}]}
    assert upcast(counted) == {**counted, "v": LAYOUT}


def test_upcasters_follow_each_other() -> None:
    steps = {
        1: lambda record: {**record, "said": "one"},
        2: lambda record: {**record, "said": f"{record['said']}, two"},
    }
    assert upcast({"seq": 1}, steps) == {"seq": 1, "said": "one, two", "v": 3}
    assert upcast({"seq": 1, "said": "1", "v": 2}, steps) == {"seq": 1, "said": "1, two", "v": 3}
    assert upcast({"seq": 1, "v": 3}, steps) == {"seq": 1, "v": 3}


def test_a_later_layout_is_refused_by_name_also_where_it_could_be_decoded() -> None:
    for later in ({**plain(NOW), "v": LAYOUT + 1}, {"seq": 1, "spoken": [], "v": LAYOUT + 1}):
        for read in (
            lambda record: log.decode(msgspec.msgpack.encode(record)),
            lambda record: log.from_json(msgspec.json.encode(record)),
        ):
            with pytest.raises(LaterLayout, match=f"layout {LAYOUT + 1}, which a later version") as refused:
                read(later)
            assert refused.value.layout == LAYOUT + 1


@pytest.mark.parametrize("record", [[], {"v": "two"}, {"v": 0, "events": []}, {"v": 1, "events": [7]}, {"v": 1}])
def test_what_is_no_record_is_refused(record: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        upcast(record)
    assert not issubclass(msgspec.ValidationError, LaterLayout)


def test_a_later_record_is_told_apart_from_a_damaged_one() -> None:
    later = log.LaterRecord(3, str(LaterLayout(9, 2)))
    assert str(later).startswith(
        "record 3 cannot be read: it has layout 9, which a later version of antiphon wrote"
    )
    assert later.seq == 3
    assert "damaged" in str(log.Corrupt(3, "it is missing"))
