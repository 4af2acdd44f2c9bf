"""Records the golden logs: `python -m tests.histories.record [--check]`, in the root of the repository."""

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from antiphon.events import commands as cmd
from antiphon.events.audio import TextMark
from antiphon.events.config import ConfigPatch, Transcription, TurnDetection
from antiphon.events.items import Message, TextPart
from antiphon.events.log import BEHAVIOUR, to_json

from tests.sessions.world import QUICK_VAD, World

FOLDER = Path(__file__).parent


class Header(Struct, frozen=True, kw_only=True):
    """The first line of a golden log: that of an exported log, and what the session shows."""

    antiphon_log: int = 1
    behaviour: int
    scenario: str
    session: str
    plugin: str
    plugin_version: str
    transactions: int


def say_pieces(world: World, words: list[str], ms: int) -> None:
    """Let the stage speak: a word and its sound at a time, aligned."""
    chars = 0
    for n, word in enumerate(words, 1):
        chars += len(word)
        world.wait(20)
        world.produce(word, ms, marks=(TextMark(chars, n * ms),))


def spoken_turn() -> World:
    """A spoken turn in the duplex dialect: answered, interrupted by speech, and resumed on a new connection."""
    world = World(vad=QUICK_VAD)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(transcription=Transcription(language="en"))))
    world.append(10, score=20)
    world.append(8, score=930)
    world.append(12, score=20)
    request = world.request
    world.do(cmd.StageAccepted(request=request))
    heard = world.session.conversation.order[0]
    world.do(cmd.StageTranscribed(request=request, item_id=heard, text="What is the ", final=False))
    world.do(cmd.StageTranscribed(request=request, item_id=heard, text="What is the time?", seconds=0.56))
    say_pieces(world, ["It is ", "half past ", "three, ", "and so "], 400)
    world.ack(300)
    world.wait(400)
    world.append(2, score=930)
    world.do(cmd.StageProduced(request=request, text="too late", size=960))
    world.do(cmd.StageReleased(request=request))
    world.detach()
    world.wait(2_000)
    world.do(world.resumption(last_number=world.session.next_number - 4))
    world.append(6, score=930)
    world.append(12, score=20)
    say_pieces(world, ["Of ", "course."], 300)
    world.finish()
    world.release()
    world.ack(600)
    world.do(cmd.Heartbeat(attachment=2))
    world.close()
    return world


def text_turn() -> World:
    """A written turn in the GA dialect: an update, an answer that is truncated, one in writing, and the close."""
    world = World(dialect="ga")
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.", voice="alloy")))
    world.item(Message(id="rules", role="system", content=(TextPart("Speak English."),)))
    world.say("How are you?", "question")
    world.respond()
    world.respond()
    say_pieces(world, ["I am ", "very well, ", "thank you."], 500)
    world.finish()
    world.release()
    spoken = world.session.conversation.order[-1]
    world.wait(700)
    world.truncate(spoken, 700)
    world.truncate(spoken, 9_000)
    world.do(cmd.RetrieveItem(attachment=1, item_id=spoken))
    world.say("In writing, please.")
    world.respond(cmd.ResponseOptions(output_modalities=("text",), metadata={"kind": "note"}))
    world.produce("Well, ")
    world.produce("thank you.")
    world.do(cmd.StageFinished(request=world.request, usage=cmd.Usage(input_text=20, output_text=4)))
    world.do(cmd.DeleteItem(attachment=1, item_id="question"))
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(model="another", instructions="No.")))
    world.close()
    world.release()
    return world


def echo_restart() -> World:
    """A session that is echoed piece by piece, a restart of the engine in the middle, and the end of its grace."""
    world = World(plugin="echo", auto=True)
    for _ in range(3):
        world.append(2)
        world.produce("", 64, world.resident, takes=True)
    world.do(cmd.StageAccepted(request=world.resident))
    world.append(2, speech=False)
    world.commit()
    world.wait(50)
    world.restart()
    world.wait(3_000)
    world.resume()
    world.do(cmd.ConfirmAttachment(attachment=2))
    world.append(2)
    world.produce("", 64, world.resident, takes=True)
    world.barge_in()
    world.release()
    world.append(2)
    world.detach()
    world.wait(30_000)
    world.tick()
    world.release()
    return world


def unfinished_sentence() -> World:
    """A turn whose end is told from its words: it goes on behind half a sentence, and ends behind a whole one."""
    world = World(dialect="ga", vad=TurnDetection(type="semantic_vad", eagerness="medium"))
    world.append(10, score=20)
    for words, silence in (("I would like to", 60), ("I would like to know the time.", 16)):
        world.append(12, score=930)
        world.append(8, score=20)
        asked = next(name for name, known in world.session.requests.items() if known.utterance is not None)
        utterance = world.session.input.item_id or ""
        world.do(cmd.StageAccepted(request=asked))
        world.do(cmd.StageTranscribed(request=asked, item_id=utterance, text=words, seconds=0.7, final=False))
        world.do(cmd.StageFinished(request=asked))
        world.release()
        world.append(silence, score=20)
    say_pieces(world, ["It is ", "three."], 400)
    world.finish()
    world.release()
    world.close()
    return world


def false_interruption() -> World:
    """A user coughs over an answer, says "mhm", and interrupts the next sentence at last."""
    world = World(vad=msgspec.structs.replace(QUICK_VAD, false_interruption=True))
    world.begin()
    say_pieces(world, ["It is ", "half past "], 400)
    world.wait(200)
    world.append(5, score=930)
    say_pieces(world, ["three, ", "and "], 400)
    world.append(7, score=20)
    world.ack(700)
    world.append(2, score=930)
    world.produce("so ", 300)
    world.append(2, score=930, transcript="Mhm.")
    world.append(3, score=930)
    world.finish()
    world.ack(900)
    world.wait(2_000)
    world.tick()
    world.append(16, score=930)
    world.append(10, score=20)
    world.release()
    world.close()
    world.release()
    return world


SCENARIOS: dict[str, Callable[[], World]] = {
    "spoken_turn": spoken_turn,
    "text_turn": text_turn,
    "echo_restart": echo_restart,
    "unfinished_sentence": unfinished_sentence,
    "false_interruption": false_interruption,
}


def recorded(scenario: Callable[[], World]) -> str:
    """Return the lines of a golden log, as decided now."""
    world = scenario()
    header = Header(
        behaviour=BEHAVIOUR,
        scenario=scenario.__doc__ or "",
        session=world.session.id,
        plugin=world.session.plugin,
        plugin_version=world.session.plugin_version,
        transactions=len(world.log),
    )
    lines = [msgspec.json.encode(header), *(to_json(transaction) for transaction in world.log)]
    return b"".join(line + b"\n" for line in lines).decode()


def main() -> int:
    """Record all scenarios, print what changed; return 1 if `--check` found a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args().check
    changed = False
    for name, scenario in SCENARIOS.items():
        path = FOLDER / f"{name}.jsonl"
        old = path.read_text() if path.exists() else ""
        new = recorded(scenario)
        if old == new:
            continue
        changed = True
        difference = difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, n=0, lineterm="")
        sys.stdout.writelines(line + "\n" for line in difference)
        if not check:
            path.write_text(new)
    return 1 if changed and check else 0


if __name__ == "__main__":
    sys.exit(main())
