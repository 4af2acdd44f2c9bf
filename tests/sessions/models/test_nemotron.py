"""Nemotron VoiceChat: one mode, one frame at a time, few tools."""

import json

import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.sessions.plugins import NEMOTRON

from tests.rules import rule
from tests.sessions.models.configs import Refused, changed, config, opening, refused
from tests.sessions.world import World, error, kinds, only

MODE = "unsupported_nemotron_duplex_mode"


def tools(*names: str) -> str:
    return json.dumps([{"type": "function", "name": name} for name in names])


@rule("N45")
def test_continuous_duplex_by_either_name() -> None:
    assert opening(NEMOTRON, changed(config(), auto_response=True)).auto_response
    assert opening(NEMOTRON, config(full_duplex=True)).auto_response
    assert refused(lambda: opening(NEMOTRON, config())) == (MODE, "session.extra_body.auto_response")
    assert refused(lambda: opening(NEMOTRON, config(full_duplex=False)))[0] == MODE


@pytest.mark.parametrize("period", [40, 1000, "80"])
@rule("N45")
def test_the_period_is_80_ms(period: object) -> None:
    assert NEMOTRON.capabilities.chunk_period_ms == 80
    opening(NEMOTRON, config(full_duplex=True, chunk_period_ms=80))
    wrong = config(full_duplex=True, chunk_period_ms=period)
    assert refused(lambda: opening(NEMOTRON, wrong)) == (MODE, "session.extra_body.chunk_period_ms")


NAMED: list[tuple[str, Refused | None]] = [
    (tools("a", "b", "c", "d", "e"), None),
    (tools("a", "b", "c", "d", "e", "f"), ("invalid_duplex_runtime_config", "session.tools")),
    ('[{"type":"function"}]', ("invalid_duplex_runtime_config", "session.tools")),
]


@pytest.mark.parametrize(("given", "expected"), NAMED, ids=["five", "six", "nameless"])
@rule("N48")
def test_at_most_five_tools_each_with_a_name(given: str, expected: Refused | None) -> None:
    asked = changed(config(full_duplex=True), tools=given)
    if expected is None:
        opening(NEMOTRON, asked)
    else:
        assert refused(lambda: opening(NEMOTRON, asked)) == expected


@rule("N48", "J15", "N6", "L8")
def test_tools_and_instructions_are_fixed_once_heard() -> None:
    current = opening(NEMOTRON, changed(config(full_duplex=True), tools=tools("a")))
    same = changed(current, tools=tools("a").replace(":", " : "))
    other = changed(current, tools=tools("b"))
    NEMOTRON.check_update(current, other, locked=False, started=True)
    NEMOTRON.check_update(current, same, locked=True, started=True)
    for candidate, param in ((other, "tools"), (changed(current, instructions="x"), "instructions")):
        assert refused(
            lambda candidate=candidate: NEMOTRON.check_update(current, candidate, locked=True, started=True)
        ) == ("instructions_update_unsupported", f"session.{param}")


def nemotron() -> World:
    return World(plugin="nemotron-voicechat", auto=True)


def append(here: World, samples: int, sent: int = 0) -> list[ev.AnyEvent]:
    return here.do(cmd.AppendAudio(attachment=here.attachment, size=2 * samples, sent=sent))


@rule("N45")
def test_an_append_holds_one_frame() -> None:
    here = nemotron()
    assert "AudioReceived" in kinds(append(here, 1_280))
    assert error(append(here, 1_281)) == "bad_event"
    assert "AudioReceived" in kinds(append(here, 1_468, sent=1_280)), "what the resampler adds is not the client's"
    assert error(append(here, 979, sent=1_281)) == "bad_event"


@rule("N45")
def test_a_commit_finds_one_frame() -> None:
    NEMOTRON.check_commit(config(), samples=1_280)
    assert refused(lambda: NEMOTRON.check_commit(config(), samples=1_281)) == ("bad_event", None)


@rule("N46", "N2")
def test_one_greedy_token_a_frame_whatever_bound_the_client_sets() -> None:
    language = NEMOTRON.sampling(changed(config(), max_output_tokens=100))[0]
    assert (language.temperature, language.max_tokens) == (0.0, 1)


@rule("N51")
def test_two_units_of_warm_up() -> None:
    assert NEMOTRON.warmup_units == 2


@rule("N45", "L8")
def test_a_session_cannot_leave_its_mode() -> None:
    here = nemotron()
    patch = cmd.ConfigPatch(auto_response=False)
    assert error(here.do(cmd.UpdateSession(attachment=here.attachment, patch=patch))) == MODE
    assert here.session.config.auto_response


@rule("L8", "N46")
def test_the_lock_is_set_by_acceptance_and_survives_an_interruption() -> None:
    here = nemotron()

    def instruct(words: str) -> list[ev.AnyEvent]:
        patch = cmd.ConfigPatch(instructions=words)
        return here.do(cmd.UpdateSession(attachment=here.attachment, patch=patch))

    append(here, 1_280)
    only(instruct("before"), ev.ConfigUpdated)
    here.do(cmd.StageAccepted(request=here.resident))
    assert error(instruct("after")) == "instructions_update_unsupported"
    only(instruct("before"), ev.ConfigUpdated)
    here.produce("Hello.", 80, here.resident)
    here.cancel()
    assert here.session.epoch == 1
    assert error(instruct("after")) == "instructions_update_unsupported"
