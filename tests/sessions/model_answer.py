"""What is heard of an answer, as the contract has it: for `model`, in the same words and units."""

from dataclasses import dataclass

MS, CORRECTION_US = 1_000, 5_000_000


@dataclass
class Answer:
    """A response, and how much of it was heard."""

    name: str
    text: str = ""
    sent: int = 0
    spoken: bool = False
    started: int | None = None  # when its sound began to play, if anybody listens
    there: int | None = None  # how much of it had come when nobody was connected any more
    acked_at: int | None = None
    committed: int = 0
    cap: int | None = None  # its sound ends here
    guessed: int | None = None  # when that was estimated from the time that had passed

    def heard(self, now: int) -> int:
        """First a cut, then an acknowledgement, then the time since it began to play (5.10)."""
        if self.cap is not None or self.acked_at is not None or self.started is None:
            return self.committed if self.cap is None else self.cap
        return max(0, min((now - self.started) // MS, self.sent if self.there is None else self.there))

    def plays(self, now: int) -> bool:
        """Whoever stops to acknowledge is believed to have played the rest after twice its length (5.3)."""
        rest = self.sent - self.heard(now) if self.cap is None else 0
        return rest > 0 and (self.acked_at is None or now < self.acked_at + 2 * rest * MS)

    def limit(self, now: int) -> int:
        """A cut is for good, but for an estimate, which may be corrected for a while (I16, 5.10)."""
        recent = self.guessed is not None and now - self.guessed <= CORRECTION_US
        return self.sent if self.cap is None or recent else self.cap

    def history(self, policy: str) -> str:
        """Its words in later prompts (I1, I2, I8, I16, I17; WIRE 6.7)."""
        if not self.sent:
            return self.text if self.cap is None else ""
        every = policy != "ack_only" and not 0 < self.committed < self.sent
        return cut(
            self.text, self.cap if self.cap is not None else self.sent if every else self.committed, self.sent
        )


def cut(text: str, ms: int, total: int) -> str:
    """Words that belong to so much of the sound: in proportion, and no half of a word (I3)."""
    chars = ms * len(text) // total
    if ms >= total or text[chars] == " ":
        return text if ms >= total else text[:chars].rstrip()
    return text[: text.rfind(" ", 0, chars) + 1].rstrip()
