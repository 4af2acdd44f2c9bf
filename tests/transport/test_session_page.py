"""The page of a session: what it is told, that it is whole, and that nothing in a log gets out of its place."""

import base64
import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import StageCost
from antiphon.events.log import Transaction, Unavailable
from antiphon.transport import cli_logs, cli_timeline, levels, session_page
from antiphon.transport.cli_errors import Stop
from antiphon.transport.placing import Placed, of_unheard
from antiphon.transport.tableau import tableau
from antiphon.transport.timeline import tell

from tests.sessions.test_suspecting import answering, cough
from tests.sessions.world import QUICK_VAD, World
from tests.talks import Run, keep
from tests.transport.test_cli import run

__all__ = ["run"]

COSTS = (
    StageCost(stage="asr", first_output_ms=40.0, total_ms=40.0, outputs=1),
    StageCost(stage="llm", queue_ms=45.0, first_output_ms=30.0, total_ms=300.0, outputs=9),
    StageCost(stage="tts", queue_ms=80.0, first_output_ms=100.0, total_ms=350.0, outputs=3),
)


class Loud:
    """Samples at half of full scale; those of one stream may be gone."""

    def __init__(self, gone: str = "") -> None:
        self.gone = gone

    async def __call__(self, ref: SampleRef) -> bytes:
        if ref.stream == self.gone:
            raise Unavailable("gone")
        return np.full(ref.size // 2, 8_192, "<i2").tobytes()


def spoken(text: str = "All is well.") -> World:
    """A turn, its answer, which is interrupted, a lost line, and the end."""
    world = World(vad=QUICK_VAD)
    for score in [20] * 3 + [900] * 10 + [20] * 12:
        world.append(1, score=score)
    world.do(cmd.StageAccepted(request=world.request))
    world.wait(200)
    for _ in range(3):
        world.produce(text, 300)
    world.wait(400)
    world.do(cmd.StageMeasured(request=world.request, costs=COSTS))
    world.barge_in()
    world.detach()
    world.wait(700)
    world.resume()
    world.close()
    world.release()
    return world


async def page_of(log: list[Transaction], gone: str = "") -> str:
    return (await session_page.session_page(log, Loud(gone))).decode()


def part(page: str, name: str) -> bytes:
    found = re.search(rf'<script type="text/plain" id="{name}">([A-Za-z0-9+/=]*)</script>', page)
    assert found is not None, name
    body = base64.b64decode(found[1], validate=True)
    return body if name == "blocks" else zlib.decompress(body)


def index(page: str) -> Any:
    return json.loads(part(page, "index"))


def lines(page: str) -> list[bytes]:
    data, at, found = part(page, "blocks"), 0, list[bytes]()
    for size in index(page)["blocks"]:
        found += zlib.decompress(data[at : at + size]).split(b"\n")
        at += size
    return found


# -- what is shown -------------------------------------------------------------------------------------------


def test_everything_that_is_shown_leads_to_the_entry_that_tells_of_it() -> None:
    world = spoken()
    shown = tableau(tell(world.log), world.log)
    of = {entry.seq: {type(event) for event in entry.events} for entry in world.log}
    (turn,), (answer,), (request,) = shown.turns, shown.answers, shown.requests
    assert ev.SpeechStarted in of[turn.seq]
    assert ev.ResponseCreated in of[answer.seq]
    assert ev.RequestSubmitted in of[request.seq]
    assert [ev.Interrupted in of[mark.seq] for mark in shown.interruptions] == [True]
    assert (answer.sent_ms, answer.heard_ms, answer.basis, answer.status) == (900, 400, "playout", "cancelled")
    assert answer.spans == [(answer.first, pytest.approx((answer.first or 0) + 0.4))]
    assert answer.sent == [(pytest.approx(answer.first, abs=0.006), 900)], "sent in one moment is one"
    assert request.accepted == pytest.approx(request.start + 0.064)
    assert request.first == answer.first
    assert request.how == "aborted"
    assert [(one.attachment, one.reason) for one in shown.connections] == [(1, "disconnect"), (2, "client_close")]
    assert (shown.opened_us, shown.closed) == (world.opening.wall_us, "client_close")


def test_a_wait_is_the_sum_of_its_parts() -> None:
    world = spoken()
    shown = tableau(tell(world.log), world.log)
    (wait,) = shown.waits
    assert ev.AudioDelta in {type(event) for event in world.log[wait.seq - 1].events}
    assert [part.name for part in wait.parts] == ["silence", "asr", "llm", "tts", "sending"]
    lengths = [round((part.end - part.start) * 1000) for part in wait.parts]
    assert lengths[1:] == [40, 35, 105, 84], "each from the first output of the one before to its own"
    assert sum(lengths) == round((wait.end - wait.start) * 1000)
    assert [(stage.stage, round((stage.start - stage.queued) * 1000)) for stage in shown.stages] == [
        ("asr", 0),
        ("llm", 45),
        ("tts", 80),
    ]


def test_without_costs_the_model_took_it() -> None:
    world = World(vad=QUICK_VAD)
    for score in [20] * 3 + [900] * 10 + [20] * 12:
        world.append(1, score=score)
    world.wait(300)
    world.produce("yes", 300)
    (wait,) = tableau(tell(world.log), world.log).waits
    assert [part.name for part in wait.parts] == ["silence", "model"]


def test_5_13_delivery_that_stood_still_is_shown_until_it_went_on() -> None:
    world = answering()
    world.append(2, score=950)
    began = (world.now - world.log[0].at) / 1e6
    cough(world)
    (hold,) = tableau(tell(world.log), world.log).holds
    assert hold.start == pytest.approx(began)
    assert hold.end is not None
    assert hold.how


# -- how loud it was -----------------------------------------------------------------------------------------


def test_loudness_stands_where_it_was_heard() -> None:
    placed = Placed(160, (SampleRef("in", 0, 640),), AudioFormat("pcm16", 16_000))
    found = levels.levels_of([placed], 4, 20, lambda ref: np.full(ref.size // 2, 8_192, "<i2").tobytes())
    assert list(found) == [128, 128, 0, 0]
    assert list(levels.levels_of([placed], 1, 20, lambda ref: bytes(ref.size))) == [1], "silence is something"
    assert list(levels.levels_of([placed], 4, 20, lambda _: None)) == [1, 1, 0, 0], "and so is what is gone"
    law = Placed(0, (SampleRef("out", 0, 160),), AudioFormat("g711_ulaw", 8_000))
    assert list(levels.levels_of([law], 2, 20, lambda ref: bytes(ref.size))) == [252, 0]


def test_scores_last_as_long_as_their_frames_and_long_sessions_have_longer_steps() -> None:
    found = levels.scores_of([(0.032, 0.0), (0.096, 1.0)], 6, 20)
    assert (found[0], found[1], found[4], found[5]) == (1, 1, 255, 0)
    assert levels.step_ms(10) == levels.step_ms(4_000) == 20
    assert levels.step_ms(4_001) == 40
    assert levels.step_ms(86_400) * levels.MOST >= 86_400_000


def test_what_nobody_heard_is_shown_behind_the_cut() -> None:
    story = tell(spoken().log)
    (ghost,) = of_unheard(story)
    assert ghost.start == round(((story.answers[0].first_s or 0) + 0.4) * 24_000)
    assert ghost.samples == 500 * 24


# -- the file ------------------------------------------------------------------------------------------------


async def test_every_entry_stands_in_the_page_word_for_word() -> None:
    world = spoken()
    page = await page_of(world.log)
    told = index(page)
    assert [json.loads(line)["seq"] for line in lines(page)] == [entry.seq for entry in world.log]
    assert msgspec.json.decode(lines(page)[0], type=Transaction) == world.log[0]
    columns = part(page, "entries")
    count = len(world.log)
    times = np.frombuffer(columns[: 4 * count], "<u4")
    assert list(times) == [entry.at // 100 for entry in world.log]
    names = [told["commands"][kind] for kind in columns[6 * count : 7 * count]]
    assert names == [type(entry.command).__name__ for entry in world.log]
    events = [told["events"][kind] for kind in columns[8 * count :]]
    assert events == [type(event).__name__ for entry in world.log for event in entry.events]
    assert len(part(page, "levels")) == 4 * told["steps"]


async def test_of_a_very_long_log_the_pieces_of_sound_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_page, "EVERY", 10)
    world = spoken()
    page = await page_of(world.log)
    left = [not line for line in lines(page)]
    assert left == [session_page.is_quiet(entry) for entry in world.log]
    assert 0 < sum(left) < len(left)
    assert index(page)["left_out"]


async def test_a_session_of_weeks_and_a_clock_that_no_calendar_has_are_shown_all_the_same() -> None:
    log = spoken().log
    late = [replace(entry, at=entry.at + (0 if entry.seq < len(log) else 60 * 86_400_000_000)) for entry in log]
    opened = replace(late[0], events=tuple(clock(event) for event in late[0].events))
    page = await page_of([opened, *late[1:]])
    assert "· unknown</title>" in page
    times = part(page, "entries")[: 4 * len(log)]
    assert times[-4:] == b"\xff" * 4


def clock(event: ev.AnyEvent) -> ev.AnyEvent:
    """Let the clock have said something else when the session was opened."""
    return replace(event, wall_us=10**18) if isinstance(event, ev.SessionOpened) else event


async def test_without_its_sound_a_session_is_shown_all_the_same() -> None:
    page = await page_of(spoken().log, gone="in")
    told = index(page)
    user = part(page, "levels")[: told["steps"]]
    assert set(user) == {0, 1}


async def test_nothing_in_a_log_gets_out_of_its_place() -> None:
    evil = "</script><script>alert(1)</script><!--data--><img src=x onerror=alert(1)>"
    world = spoken(evil)
    opening = world.log[0]
    (opened,) = opening.events
    world.log[0] = msgspec.structs.replace(
        opening, events=(msgspec.structs.replace(opened, session=f"duplex-1{evil}"),)
    )
    page = await page_of(world.log)
    assert "alert(1)<" not in page.replace(session_page.parts().script, "")
    assert page.count("<script") == page.count("</script>") == 5
    assert "<title>duplex-1&lt;/script&gt;" in page
    assert not re.findall(r"<!--(data|script|style|policy|title)-->", page)


async def test_the_policy_lets_nothing_run_but_the_page_and_fetch_nothing() -> None:
    page = await page_of(spoken().log)
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        bodies = re.findall(rf"<{tag}(?: type=\"module\")?>(.*?)</{tag}>", page, re.S)
        assert len(bodies) == 1
        digest = base64.b64encode(hashlib.sha256(bodies[0].encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}';" in page
    assert "default-src 'none'" in page
    assert not re.findall(r"https?://|\ssrc=|\son\w+=|\sstyle=", page.replace("http://www.w3.org/2000/svg", ""))
    assert "innerHTML" not in page


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    anyio.run(keep, tmp_path / "data", spoken().log)
    log = cli_logs.load("latest", tmp_path / "data")
    size = cli_timeline.write_page(log, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size == size < 200_000
    with pytest.raises(Stop, match="there is no folder"):
        cli_timeline.write_page(log, tmp_path / "none" / "page.html")


def test_of_a_damaged_log_what_stands_before_is_shown_and_heard(run: Run, tmp_path: Path) -> None:
    damaged = Path(__file__).resolve().parents[1] / "histories" / "refused" / "damaged.jsonl"
    page, wav = tmp_path / "page.html", tmp_path / "talk.wav"
    for arguments in (("timeline", damaged, "-o", page), ("export", damaged, "--wav", wav)):
        code, _, told = run("log", *arguments, "--data", tmp_path)
        assert (code, "is damaged in line 25" in told) == (1, True)
    assert len(lines(page.read_text())) == 23
    assert wav.stat().st_size > 44
