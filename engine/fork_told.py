"""How a command of the origin is told to a fork: its numbers follow the fork's own, its secrets open nothing."""

import hashlib

from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events.ids import EventPosition
from antiphon.sessions import core

from .fork_origin import Met


def sealed(session: str, digest: str) -> str:
    """Return the digest of a token of a fork: nobody has a token that it is the digest of."""
    return hashlib.sha256(f"{session}\0{digest}".encode()).hexdigest()


def told(command: cmd.AnyCommand, met: Met, session: core.Session, fork: str, head: int) -> cmd.AnyCommand:
    """Return a command for the fork `fork`, whose state is `session` behind transaction `head`.

    Connections, generations and counters are as far from the fork's as they were from those that the command met.
    """
    lease = session.lease
    moved = lease.attachment - met.attachment
    match command:
        case cmd.OpenSession():
            digest = command.token_digest
            return replace(command, session=fork, token_digest=None if digest is None else sealed(fork, digest))
        case cmd.ResumeSession():
            return _resumption(command, met, session, fork, head)
        case cmd.ConfirmAttachment():
            return replace(command, attachment=command.attachment + moved)
        case cmd.ReportRefusal():
            return replace(
                command, attachment=command.attachment + moved, client_seq=_seq(command.client_seq, met, session)
            )
        case cmd.ReportFault():
            attachment = None if command.attachment is None else command.attachment + moved
            return replace(command, attachment=attachment, client_seq=_seq(command.client_seq, met, session))
        case cmd.Detach(generation=int(generation)):
            return replace(command, generation=generation + lease.generation - met.generation)
        case cmd.CloseSession(attachment=int(attachment)):
            return replace(command, attachment=attachment + moved)
        case cmd.ClientCommand() if moved or command.client_seq is not None:
            return replace(
                command, attachment=command.attachment + moved, client_seq=_seq(command.client_seq, met, session)
            )
        case _:
            return command


def _seq(client_seq: int | None, met: Met, session: core.Session) -> int | None:
    return None if client_seq is None else client_seq + session.lease.client_seq - met.client_seq


def _resumption(
    command: cmd.ResumeSession, met: Met, session: core.Session, fork: str, head: int
) -> cmd.ResumeSession:
    lease = session.lease
    current = command.presented == met.token and lease.token is not None
    unseen = met.next_number - command.last_number
    expected = command.expected_generation
    position = command.position
    if position is not None:
        seq = min(max(position.seq + head - met.seq, 1), max(head, 1))
        position = EventPosition(seq, position.index, position.part)
    return replace(
        command,
        presented=lease.token or "" if current else sealed(fork, command.presented),
        next_digest=sealed(fork, command.next_digest),
        last_number=min(max(session.next_number - unseen, 0), session.next_number - 1)
        if command.last_number
        else 0,
        expected_generation=None if expected is None else expected + lease.generation - met.generation,
        position=position,
    )
