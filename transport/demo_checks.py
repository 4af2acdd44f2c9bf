"""What the demo promises, each claim checked against the log and against what the client heard."""

from msgspec import Struct

from antiphon.events import events as ev
from antiphon.events.log import Transaction, highest_number

from .demo_talk import Heard
from .talk_dialogue import Dialogue, Reply
from .talk_show import reaction
from .timeline import Answer, Story

STEP_MS = 300
"""How far the log's word on what was heard may lie behind the speaker: the last acknowledgement, and its way."""


class Claim(Struct, frozen=True):
    """A promise, whether it was kept, and the evidence."""

    promise: str
    kept: bool
    evidence: str


def check(transactions: list[Transaction], story: Story, heard: Heard, verdict: dict[str, object]) -> list[Claim]:
    """Return all claims; the demo has failed if one was not kept."""
    first, second, third = heard.answers
    return [
        _understood(heard.dialogue),
        _answered(story, first),
        *_interrupted(transactions, story, second, reaction(second, heard.cut_in, heard.mic)),
        *_resumed(transactions, story, heard, third),
        Claim(
            "the log decides the same events again",
            verdict.get("identical") is True,
            f"{verdict.get('commands')} commands, {verdict.get('events')} events",
        ),
    ]


def _understood(dialogue: Dialogue) -> Claim:
    texts = [ask.text for ask in dialogue.asks]
    return Claim("every question was understood as words", all(texts) and len(texts) >= 3, " | ".join(texts))


def _answered(story: Story, reply: Reply) -> Claim:
    answer = story.answer(reply.response_id)
    whole = answer is not None and answer.status in ("completed", "incomplete") and answer.heard_ms is None
    played = answer.played_ms if answer is not None else 0
    sent = answer.sent_ms if answer is not None else -1
    return Claim(
        "the first answer was heard to its end",
        whole and played == sent,
        f"{played / 1000:.1f} s of {sent / 1000:.1f} s, {len(reply.text.split())} words",
    )


# -- interruption --------------------------------------------------------------------------------------------


def _interrupted(
    transactions: list[Transaction], story: Story, reply: Reply, reaction_ms: int | None
) -> list[Claim]:
    answer = story.answer(reply.response_id)
    if answer is None or reply.heard_ms is None:
        return [Claim("speaking over an answer stops it", False, f"the answer ended as {reply.status}")]
    after = _sound_after_interruption(transactions, reply.response_id)
    return [
        Claim(
            "speaking over an answer stops it",
            reply.status == "cancelled" or answer.heard_ms is not None,
            f"{reply.status} after {reply.heard_ms / 1000:.2f} s of it, {reaction_ms} ms after you began to speak",
        ),
        Claim(
            "no sound of the dead answer left afterwards",
            after == 0 and reply.late == 0,
            f"{after} pieces in the log, {reply.late} on the socket",
        ),
        _history(answer, reply),
    ]


def _sound_after_interruption(transactions: list[Transaction], response_id: str) -> int:
    dead, late = False, 0
    for transaction in transactions:
        for event in transaction.events:
            dead = dead or (isinstance(event, ev.Interrupted) and event.response_id == response_id)
            late += dead and isinstance(event, ev.AudioDelta) and event.response_id == response_id
    return late


def _history(answer: Answer, reply: Reply) -> Claim:
    """The conversation must end where the speaker did, in milliseconds and in words."""
    heard, text = reply.heard_ms or 0, answer.heard_text or ""
    behind = heard - (answer.heard_ms if answer.heard_ms is not None else -1)
    kept = 0 <= behind <= STEP_MS and answer.text.startswith(text) and len(text) < len(answer.text)
    words = f"{len(text.split())} of {len(answer.text.split())} words: “…{text[-40:]}”" if text else "no word"
    return Claim(
        "the history ends where you stopped listening",
        kept,
        f"heard {heard} ms, history {answer.heard_ms} ms by {answer.basis}, {words}",
    )


# -- resume --------------------------------------------------------------------------------------------------


def _resumed(transactions: list[Transaction], story: Story, heard: Heard, reply: Reply) -> list[Claim]:
    numbers, lost = heard.dialogue.numbers, heard.lost
    last = max((highest_number(transaction) for transaction in transactions), default=0)
    answer = story.answer(reply.response_id)
    sent = answer.sent_ms if answer is not None else -1
    received = heard.dialogue.speaker.received_ms(reply.response_id)
    return [
        Claim(
            "after the lost connection no event is missing and none came twice",
            numbers.whole and numbers.first == 1 and numbers.last == last and len(story.connections) >= 2,
            f"numbers 1 to {numbers.last} each once; the line broke behind {lost.last_before}, "
            f"{numbers.last - lost.last_before} came after it",
        ),
        Claim(
            "the answer went on where it was cut",
            answer is not None and abs(received - sent) <= 1 and answer.heard_ms is None,
            f"{received / 1000:.2f} s received of {sent / 1000:.2f} s; {lost.silent_ms} ms without a line",
        ),
    ]
