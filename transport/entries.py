"""What entries of a log say: which of them are most of it and say least."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.log import Transaction


def is_quiet(transaction: Transaction) -> bool:
    """Return whether an entry is a piece of sound, an acknowledgement or a heartbeat of which nothing else came."""
    often = isinstance(transaction.command, cmd.AppendAudio | cmd.AckPlayback | cmd.Heartbeat)
    return often and all(_is_usual(event) for event in transaction.events)


def _is_usual(event: ev.AnyEvent) -> bool:
    match event:
        case ev.OverlapDecided():
            return event.reason == "silence_or_noise"
        case ev.AudioReceived() | ev.PlaybackAcknowledged() | ev.CommandSequenced() | ev.SessionTouched():
            return True
        case _:
            return False
