"""The page's modules by themselves, in a browser: push-to-talk, rates, and what is kept to be sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page

from .chromium import browsing
from tests.acceptance.servers import ServerProcess

pytestmark = pytest.mark.timeout(60)

PUSH_TO_TALK = """
async () => {
  const { PushToTalk } = await import(new URL("page/ptt.js", document.baseURI));
  const told = [];
  const make = (visionFollow) => new PushToTalk({
    append: (samples, isSpeech, frames) => told.push([samples.length, isSpeech, ...frames]),
    commit: (spoken) => told.push(spoken ? "commit" : "commit pictures"),
    chunk: 3200,
    visionFollow,
  });
  const speak = (ptt) => ptt.sound(new Int16Array(1600));
  const results = {};
  const run = (name, act, visionFollow = true) => {
    told.length = 0;
    act(make(visionFollow));
    results[name] = [...told];
  };
  run("up: sound is discarded", (ptt) => speak(ptt));
  run("held: chunks carry the pending picture, then the last one", (ptt) => {
    ptt.frame("a");
    ptt.down();
    ptt.frame("b");
    for (let i = 0; i < 5; i += 1) speak(ptt);
    ptt.up();
  });
  run("nothing was said", (ptt) => { ptt.down(); ptt.up(); ptt.up(); });
  run("two pictures are a turn", (ptt) => { ptt.frame("a"); ptt.frame("b"); ptt.frame("c"); });
  run("without vision-follow they are none", (ptt) => { ptt.frame("a"); ptt.frame("b"); }, false);
  run("locked from letting go to the end of that answer", (ptt) => {
    ptt.began("old");
    ptt.down(); ptt.up();
    ptt.ended("old");
    ptt.frame("a"); ptt.frame("b"); ptt.frame("c");
    ptt.began("new");
    ptt.ended("other");
    ptt.frame("d");
    ptt.ended("new");
    ptt.frame("e");
  });
  run("silence as an answer releases", (ptt) => {
    ptt.down(); ptt.up();
    ptt.ended(undefined);
    ptt.frame("a"); ptt.frame("b");
  });
  return results;
}
"""

RATES = """
async ([from, to, hertz]) => {
  const { Resampler } = await import(new URL("page/resample.js", document.baseURI));
  const resampler = new Resampler(from, to);
  const tone = (i, rate) => Math.sin((2 * Math.PI * hertz * i) / rate);
  const out = new Float32Array(to);
  let made = 0;
  for (let at = 0; at < from; at += 128) { // pieces of the size that a worklet gives
    resampler.push(Float32Array.from({ length: 128 }, (_, i) => tone(at + i, from)));
    made += resampler.pull(out, made, to - made);
  }
  let [error, power] = [0, 0];
  for (let i = 1000; i < made - 1000; i += 1) {
    error += (out[i] - tone(i, to)) ** 2;
    power += tone(i, to) ** 2;
  }
  return { made, ratio: Math.sqrt(error / power), loud: Math.sqrt((2 * power) / (made - 2000)) };
}
"""

ALIAS = RATES.replace("error += (out[i] - tone(i, to)) ** 2", "error += out[i] ** 2")

OUTBOX = """
async () => {
  const { Outbox } = await import(new URL("page/outbox.js", document.baseURI));
  const outbox = new Outbox();
  const taken = () => [...outbox.take()].map((data) => JSON.parse(data).client_seq);
  const put = (type) => outbox.put({ type });
  put("a"); put("b");
  const first = taken();
  put("session.heartbeat"); put("c");
  const second = taken();
  outbox.answered();
  outbox.restart(3);
  const again = taken();
  put("d");
  outbox.restart(4);
  const rest = taken();
  for (let i = 0; i < 1000; i += 1) put("e");
  const window = taken().length;
  outbox.restart(outbox.last);
  const next = new Outbox();
  const types = () => [...next.take()].map((data) => Object.values(JSON.parse(data)));
  put("f"); put("input_audio_buffer.append"); put("playback.ack"); put("g");
  const seq = outbox.last;
  next.inherit(outbox.waiting());
  next.put({ type: "input_audio_buffer.append" });
  next.restart(seq - 3);
  const inherited = types().map(([type, number]) => [type, number - seq]);
  next.restart(seq - 2);
  next.put({ type: "h" });
  const onward = types().map(([type, number]) => [type, number - seq]);
  return { first, second, again, rest, window, size: outbox.size, inherited, onward };
}
"""


@pytest.fixture(scope="module")
async def page(server: ServerProcess) -> AsyncIterator[Page]:
    async with browsing(server.url, None) as (one, _):
        yield one


async def test_push_to_talk_sends_what_is_meant(page: Page) -> None:
    told = await page.evaluate(PUSH_TO_TALK)
    assert told == {
        "up: sound is discarded": [],
        "held: chunks carry the pending picture, then the last one": [
            [3200, True, "b"],
            [3200, True, "b"],
            [1600, True, "b"],
            "commit",
        ],
        "nothing was said": ["commit"],
        "two pictures are a turn": [[160, False, "a", "b"], "commit pictures"],
        "without vision-follow they are none": [],
        "locked from letting go to the end of that answer": ["commit", [160, False, "d", "e"], "commit pictures"],
        "silence as an answer releases": ["commit", [160, False, "a", "b"], "commit pictures"],
    }


async def test_rates_are_changed_cleanly(page: Page) -> None:
    for rates in ((48_000, 16_000), (44_100, 16_000), (24_000, 48_000), (22_050, 48_000), (16_000, 16_000)):
        kept = await page.evaluate(RATES, [*rates, 1_000])
        assert kept["ratio"] < 0.01, (rates, kept)
        assert rates[1] - kept["made"] < rates[1] / 500
    folded = await page.evaluate(ALIAS, [48_000, 16_000, 11_000])
    assert folded["ratio"] < 0.01, "what the lower rate cannot hold must not come back as another tone"


async def test_each_command_is_kept_until_it_is_known_to_be_applied(page: Page) -> None:
    told = await page.evaluate(OUTBOX)
    assert told["first"] == [1, 2]
    assert told["second"] == [3, 4]
    assert told["again"] == [4]
    assert told["rest"] == [5]
    assert told["window"] == 512 - 1
    assert told["inherited"] == [["g", -2], ["input_audio_buffer.append", -1]], "sound goes with its page"
    assert told["onward"] == [["input_audio_buffer.append", -1], ["h", 0]]
