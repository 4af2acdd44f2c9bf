"""What the tests of the page do and look at: begin to talk, listen at the speaker, read what the server said."""

from __future__ import annotations

from typing import Any

import anyio
from playwright.async_api import Page

BLOCK = 128
PATIENCE_S = 20

# Listens to what leaves the speaker, beside the page's own account of it: the last loud sample of each block.
TAP = """
class Tap extends AudioWorkletProcessor {
  constructor() { super(); this.loud = []; this.blocks = 0; }
  process([[input]]) {
    for (let i = (input ?? []).length - 1; i >= 0; i -= 1) {
      if (Math.abs(input[i]) > 1e-4) { this.loud.push(currentFrame + i); break; }
    }
    if ((this.blocks += 1) % 8 === 0) {
      this.port.postMessage({ loud: this.loud, upto: currentFrame + 128 });
      this.loud = [];
    }
    return true;
  }
}
registerProcessor("tap", Tap);
"""

LISTEN = """
async (TAP) => {
  const { sound } = antiphon.talk;
  globalThis.heard = { loud: [], upto: 0 };
  const source = URL.createObjectURL(new Blob([TAP], { type: "text/javascript" }));
  await sound.context.audioWorklet.addModule(source);
  const tap = new AudioWorkletNode(sound.context, "tap", { numberOfOutputs: 0 });
  tap.port.onmessage = ({ data }) => {
    heard.loud.push(...data.loud);
    heard.upto = data.upto;
  };
  sound.speaker.connect(tap);
}
"""

READ = """
() => {
  const { view } = antiphon.talk;
  globalThis.seen = [];
  const shown = view.event;
  view.event = (event) => { seen.push(event); shown(event); };
}
"""

ANSWERS = "[...antiphon.talk.story.answers.values()]"


async def until(page: Page, condition: str) -> None:
    """Wait until something is so."""
    with anyio.fail_after(PATIENCE_S):
        # The page's policy forbids the evaluation that would wait inside it.
        while not await page.evaluate(condition):  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def start(page: Page, profile: str = "Conversation") -> None:
    """Begin to talk, and keep what the server says."""
    await page.get_by_role("radio", name=profile).check()
    await page.get_by_role("button", name="Start talking").click()
    await until(page, "globalThis.antiphon.talk?.line.status === 'open' && antiphon.talk.sound")
    await page.evaluate(READ)


async def listen(page: Page) -> None:
    """Put an ear at the speaker. The page's policy would not let this in: it is switched off for it."""
    await page.evaluate(LISTEN, TAP)


async def answers(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await page.evaluate(ANSWERS)
    return found


async def events(page: Page, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await page.evaluate("(kind) => seen.filter((one) => one.type === kind)", kind)
    return found


async def numbers(page: Page) -> list[int]:
    found: list[int] = await page.evaluate("seen.map((one) => one.server_event_seq).filter(Boolean)")
    return found


def whole(found: list[int]) -> bool:
    """Whether every number came once, in order."""
    return found == list(range(found[0], found[0] + len(found)))


async def first_answer_fell_silent(page: Page) -> None:
    """The block that was due when the speaker was told is the last of which anything was heard."""
    told: int = await page.evaluate("antiphon.talk.interrupted.frame")
    rate = await page.evaluate("antiphon.talk.sound.context.sampleRate")
    await until(page, f"heard.upto > {told + rate // 4}")
    loud: list[int] = await page.evaluate("heard.loud")
    assert [one for one in loud if told - rate // 2 < one < told + BLOCK], (
        "nothing played that could be interrupted"
    )
    late = [one for one in loud if told + BLOCK <= one < told + rate // 4]
    assert not late, f"sound up to {late[-1] - told} frames behind the interruption"
