"""Answers that drain behind a newer one: where their messages stand, and what is heard of them (BEHAVIOURS H)."""

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import AudioPart, Message, text_of
from antiphon.sessions import core, phases
from antiphon.sessions.folding import opened
from antiphon.sessions.view import prompt

from tests.rules import rule
from tests.sessions.world import OUT, World, only


class Lanes:
    """A session that is told what happened, with a response that drains behind a newer one."""

    def __init__(self) -> None:
        world = World()
        world.say("First.", "first")
        created = only(world.respond(), ev.ResponseCreated)
        self.session = core.load(core.dump(world.session))
        self.first = created.head
        self.second = msgspec.structs.replace(
            self.first,
            id="resp_second",
            item_id="item_resp_second",
            turn=1,
        )
        self.tell(ev.ResponseDrains(response_id=self.first.id))
        options = cmd.ResponseOptions()
        self.tell(ev.ResponseCreated(number=50, count=1, head=self.second, request="second", options=options))
        self.tell(ev.RequestSubmitted(request="second", response_id="resp_second", epoch=0, turn=1))

    def tell(self, event: ev.AnyEvent) -> None:
        core.evolve(self.session, event, self.session.now + 1000)

    def speaks(self, head: ev.ResponseHead) -> None:
        """Let a response say a second of sound behind the item that it stands behind."""
        response = self.session.open_response(head.id)
        assert response is not None
        self.tell(
            ev.OutputStarted(
                number=60,
                count=5,
                session=self.session.id,
                response_id=head.id,
                item=Message(id=head.item_id, role="assistant", status="in_progress"),
                previous_item_id=response.previous_item_id,
                part="audio",
                epoch=0,
            )
        )
        self.tell(
            ev.AudioDelta(
                number=70,
                count=2,
                session=self.session.id,
                response_id=head.id,
                item_id=head.item_id,
                ref=SampleRef("out", self.session.output.position, OUT.bytes_for(1_000)),
                format=OUT,
                audio_ms=1_000,
                text="one two three four",
                epoch=0,
            )
        )

    def ends(self, head: ev.ResponseHead) -> None:
        part = AudioPart("one two three four", None, 24_000, 1_000)
        item = Message(id=head.item_id, role="assistant", content=(part,))
        ended = ev.ResponseEnded(
            number=80, count=7, session=self.session.id, head=head, status="completed", item=item, text=""
        )
        self.tell(ended)


@rule("P41", "H7")
@pytest.mark.parametrize("older_first", [True, False])
def test_answers_stand_in_the_order_in_which_they_were_opened(older_first: bool) -> None:
    lanes = Lanes()
    heads = [lanes.first, lanes.second]
    for head in heads if older_first else heads[::-1]:
        lanes.speaks(head)
    assert lanes.session.conversation.order == ["first", lanes.first.item_id, "item_resp_second"]


@rule("I11", "H10")
def test_a_draining_answer_may_be_acknowledged_and_also_behind_its_end() -> None:
    lanes = Lanes()
    lanes.speaks(lanes.first)
    lanes.speaks(lanes.second)
    for played_ms, words in ((500, "one two"), (1_000, "one two three four")):
        ack = cmd.AckPlayback(attachment=1, played_ms=played_ms, response_id=lanes.first.id)
        told = only(core.decide(lanes.session, ack, lanes.session.now), ev.PlaybackAcknowledged)
        assert (told.response_id, told.history) == (lanes.first.id, words)
        lanes.tell(told)
        if played_ms == 500:
            lanes.ends(lanes.first)
    assert text_of(prompt(lanes.session)[1]) == "one two three four"


def test_a_response_that_is_not_open_cannot_speak() -> None:
    with pytest.raises(phases.IllegalTransition):
        opened(World().session, "resp_none")
