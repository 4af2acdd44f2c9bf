"""Which resume tokens are good, whatever happens: a rotated one is final only when its client was heard (P51)."""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    run_state_machine_as_test,
)
from hypothesis.stateful import rule as step

from antiphon.events import commands as cmd
from antiphon.events.config import Limits
from antiphon.sessions import core
from antiphon.sessions.state import KEPT_TOKENS
from antiphon.sessions.view import next_deadline

from tests.rules import rule
from tests.sessions.world import World, token

LIMITS = Limits(grace_ms=3_600_000, activation_ms=1_000, idle_ttl_ms=0)


class TokenMachine(RuleBasedStateMachine):
    """A model that is told what a client may rely on, beside the state: the tokens that it may present now."""

    @initialize()
    def begin(self) -> None:
        self.world = World(limits=LIMITS)
        self.current = token(1)
        self.kept: list[str] = []
        """The tokens that there were since somebody was heard."""
        self.attached = True
        self.granted = 1

    @property
    def unheard(self) -> bool:
        return self.attached and bool(self.kept)

    # -- what happens ----------------------------------------------------------------------------------------

    @step(old=st.integers(0, 10))
    def resume(self, old: int) -> None:
        known = [self.current, *reversed(self.kept)]
        self.world.do(self.world.resumption(known[old] if old < len(known) else self.current))
        self.granted += 1
        first, *later = *self.kept, self.current
        self.kept = [first, *later[1 - KEPT_TOKENS :]]
        self.current, self.attached = token(self.granted), True

    @step(how=st.sampled_from(["confirm", "frame"]))
    @precondition(lambda self: self.attached)
    def hear(self, how: str) -> None:
        heard = cmd.ConfirmAttachment if how == "confirm" else cmd.Heartbeat
        self.world.do(heard(attachment=self.granted))
        self.kept = []

    @step()
    def hear_a_former_connection(self) -> None:
        assert self.world.do(cmd.ConfirmAttachment(attachment=self.granted - 1)) == []

    @step()
    @precondition(lambda self: self.unheard)
    def hear_nothing_in_time(self) -> None:
        self.world.wait(1_000)
        self.world.tick()
        self.attached = False

    @step()
    @precondition(lambda self: self.attached)
    def lose_the_connection(self) -> None:
        self.world.detach()
        self.attached = False

    @step()
    def restart(self) -> None:
        self.world.restart()
        self.attached = False

    @step(ms=st.sampled_from([0, 1, 999]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)
        due = next_deadline(self.world.session)
        if due is not None and due <= self.world.now and self.unheard:
            self.hear_nothing_in_time()

    # -- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def the_good_tokens_are_good_and_no_others(self) -> None:
        good = {self.current, *self.kept}
        for number in range(self.granted + 2):
            assert self._accepted(token(number)) == (token(number) in good)

    @invariant()
    def generations_count_resumes(self) -> None:
        lease = self.world.session.lease
        assert (lease.attachment, lease.generation) == (self.granted, self.granted - 1)
        assert lease.attached == self.attached

    def _accepted(self, presented: str) -> bool:
        asked = msgspec.structs.replace(self.world.resumption(), control_id="probe", presented=presented)
        try:
            return bool(core.decide(self.world.session, asked, self.world.now))
        except core.Refusal as refusal:
            return refusal.code != "invalid_resume_token"


@rule("P51", "D21", "D25", "D26", "P45")
def test_a_presented_token_is_good_again_unless_somebody_else_was_heard() -> None:

    run_state_machine_as_test(TokenMachine, settings=settings(max_examples=150, stateful_step_count=25))


def test_a_client_that_hears_no_answer_may_present_its_token_as_often_as_it_must() -> None:
    world = World(limits=LIMITS)
    for _ in range(3 * KEPT_TOKENS):
        world.do(world.resumption(token(1)))
        world.detach()
    assert len(world.session.lease.earlier_tokens) == KEPT_TOKENS
