"""A clock on a wall may have said anything."""

from antiphon.transport.moments import moment


def test_a_moment_is_told_in_utc() -> None:
    assert moment(0) == "1970-01-01 00:00:00"
    assert moment(1_796_097_391_109_424, "%Y-%m-%d") == "2026-12-01"


def test_what_no_calendar_has_is_unknown() -> None:
    assert {moment(wrong) for wrong in (10**18, -(10**18), 2**63 - 1, 1 << 200)} == {"unknown"}
