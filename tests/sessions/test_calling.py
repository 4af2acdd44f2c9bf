"""Function calls: items of a response, their outputs, and the answer that follows them (BEHAVIOURS J, WIRE 7.4)."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.items import FunctionCall, FunctionOutput
from antiphon.sessions.evolve import evolve
from antiphon.sessions.fold_calls import call_named
from antiphon.sessions.phases import IllegalTransition
from antiphon.sessions.state import KEPT_CALLS
from antiphon.sessions.view import prompt

from tests.rules import rule
from tests.sessions.world import OVERLAPPING, World, error, kinds, only


def calls(world: World) -> list[FunctionCall]:
    """The calls that stand in the conversation."""
    items = (world.session.conversation.entries[key].item for key in world.session.conversation.order)
    return [item for item in items if isinstance(item, FunctionCall)]


@rule("J9")
def test_a_call_is_an_item_of_the_response_that_made_it() -> None:
    world = World()
    world.begin()
    request = world.request
    events = world.call("look", '{"at": 1}')
    assert kinds(events) == ["CallStarted", "CallDelta", "CallEnded"]
    started, ended = only(events, ev.CallStarted), only(events, ev.CallEnded)
    assert (started.output_index, started.item.status, started.item.arguments) == (0, "in_progress", "")
    assert ended.item == calls(world)[0]
    assert (ended.item.name, ended.item.arguments, ended.item.status) == ("look", '{"at": 1}', "completed")
    assert ended.item.call_id.startswith("call_")
    terminal = only(world.finish(request), ev.ResponseEnded)
    assert (terminal.status, terminal.item, terminal.calls, terminal.count) == ("completed", None, (ended.item,), 2)


@rule("J9")
def test_what_the_response_says_comes_first_and_is_closed_by_the_first_call() -> None:
    world = World()
    world.begin()
    request = world.request
    world.produce("One moment.", 400)
    events = world.call()
    assert kinds(events)[:2] == ["OutputEnded", "CallStarted"]
    closed = only(events, ev.OutputEnded)
    assert (closed.text, closed.item.status, closed.count) == ("One moment.", "completed", 5)
    assert only(events, ev.CallStarted).output_index == 1
    assert only(events, ev.CallStarted).previous_item_id == closed.item.id
    assert world.produce("too late", 100) == [], "one message, and it comes first"
    terminal = only(world.finish(request), ev.ResponseEnded)
    assert terminal.item_done
    assert terminal.item == closed.item
    assert world.session.conversation.order[-2:] == [closed.item.id, terminal.calls[0].id]


@rule("J9")
def test_arguments_come_in_pieces_and_a_new_call_closes_the_one_before() -> None:
    world = World(modalities=("text",))
    world.begin()
    world.produce("Well.")
    world.call("look", '{"at"', final=False)
    assert kinds(world.call("", ": 1}", final=False)) == ["CallDelta"]
    events = world.call("walk", "{}", index=1)
    assert kinds(events) == ["CallEnded", "CallStarted", "CallDelta", "CallEnded"]
    assert [call.arguments for call in calls(world)] == ['{"at": 1}', "{}"]
    first, second = calls(world)
    assert first.call_id != second.call_id
    assert only(events, ev.CallStarted).previous_item_id == first.id
    assert only(events, ev.CallStarted).output_index == 2
    assert world.call("", "late", index=0) == [], "that call is complete"
    assert world.call("", "{}", index=2) == [], "a call has a name"


@rule("J9")
@pytest.mark.parametrize("wanted", ["call_7", "", "c" * 33])
def test_the_models_name_for_a_call_is_kept_unless_it_was_used_before(wanted: str) -> None:
    world = World()
    world.item(FunctionCall(id="", call_id="call_7", name="look", arguments="{}"))
    world.begin()
    world.call(call_id=wanted)
    world.call(index=1, call_id="call_8")
    ids = [call.call_id for call in calls(world)]
    assert ids[0] == "call_7"
    assert ids[1] not in ("call_7", "")
    assert len(ids[1]) <= 32
    assert ids[2] == "call_8"


def test_a_call_that_is_cut_between_its_beginning_and_its_end_closes_as_incomplete() -> None:
    """Seen in the field: the client waits for ever for the end of a call that was cancelled half-way."""
    world = World()
    world.begin()
    world.call("look", '{"at"', final=False)
    events = world.cancel()
    terminal = only(events, ev.ResponseEnded)
    assert terminal.cut is not None
    assert (terminal.status, terminal.cut.status, terminal.cut.arguments) == ("cancelled", "incomplete", '{"at"')
    assert terminal.count == 5
    assert calls(world) == [terminal.cut]
    assert [item for item in prompt(world.session) if isinstance(item, FunctionCall)] == []
    assert error(world.give_output(terminal.cut.call_id)) == "invalid_function_call_output"


def test_a_cut_message_in_front_of_a_call_ends_at_what_was_heard() -> None:
    world = World()
    world.begin()
    world.produce("one two three four", 2_000)
    world.call("look", "{", final=False)
    world.wait(1_000)
    terminal = only(world.barge_in(), ev.ResponseEnded)
    assert terminal.item is not None
    assert world.shown(terminal.item.id) == "one two"
    assert world.heard() == ["one two"]


def test_a_resident_model_ends_its_answer_with_the_calls_it_consists_of() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    resident = world.resident
    events = world.call(request=resident, ends=True)
    assert kinds(events) == ["ResponseCreated", "CallStarted", "CallDelta", "CallEnded", "ResponseEnded"]
    assert world.session.response is None
    assert world.resident == resident


def test_only_a_request_that_goes_on_ends_its_answer_in_this_way() -> None:
    world = World()
    world.begin()
    assert kinds(world.call(ends=True)) == ["CallStarted", "CallDelta", "CallEnded"]


@rule("G38", "G39")
def test_a_call_of_a_dead_request_is_silent() -> None:
    world = World()
    world.begin()
    request = world.request
    world.cancel()
    assert world.call(request=request) == []


@rule("J10")
@pytest.mark.parametrize(
    ("call_id", "param"),
    [("call_none", "item.call_id"), ("given", "item.output")],
)
def test_an_output_needs_a_known_complete_call_that_has_none(call_id: str, param: str) -> None:
    world = World()
    world.item(FunctionCall(id="", call_id="given", name="look", arguments="{}"))
    world.give_output("given")
    world.detach()
    world.resume()
    (refused,) = [event for event in world.give_output(call_id) if isinstance(event, ev.ErrorReported)]
    assert (refused.code, refused.param) == ("invalid_function_call_output", param)


@rule("J10")
def test_the_output_of_a_call_that_is_still_being_written_is_refused() -> None:
    world = World()
    world.begin()
    started = only(world.call("look", "{", final=False), ev.CallStarted)
    assert error(world.give_output(started.item.call_id)) == "invalid_function_call_output"


@rule("J10")
def test_a_deleted_call_takes_no_output_and_is_not_awaited() -> None:
    world = World(auto=True)
    world.begin()
    request = world.request
    world.call()
    world.call(index=1)
    world.finish(request)
    first, second = calls(world)
    world.do(cmd.DeleteItem(attachment=world.attachment, item_id=first.id))
    assert error(world.give_output(first.call_id)) == "invalid_function_call_output"
    assert kinds(world.give_output(second.call_id)) == ["ItemCreated", "ResponseCreated", "RequestSubmitted"]


@pytest.mark.parametrize("auto", [False, True])
def test_the_items_of_a_running_response_are_not_deleted(auto: bool) -> None:
    world = World(auto=auto)
    world.begin()
    world.call()
    open_call = only(world.call(index=1, final=False), ev.CallStarted).item
    for item in (*calls(world), open_call):
        assert error(world.do(cmd.DeleteItem(attachment=world.attachment, item_id=item.id))) == "item_in_progress"


class TestTheAnswerBehindTheOutputs:
    """WIRE 7.4: with auto_response, the session goes on by itself once all calls have outputs."""

    def asked(self, count: int = 2, auto: bool = True) -> World:
        world = World(auto=auto)
        world.begin()
        request = world.request
        for index in range(count):
            world.call(index=index)
        world.finish(request)
        return world

    def test_it_waits_for_the_last_output(self) -> None:
        world = self.asked()
        first, second = calls(world)
        assert kinds(world.give_output(first.call_id)) == ["ItemCreated"]
        assert kinds(world.give_output(second.call_id)) == ["ItemCreated", "ResponseCreated", "RequestSubmitted"]

    def test_the_first_request_for_it_is_absorbed_and_the_second_is_not(self) -> None:
        world = self.asked(1)
        world.give_output(calls(world)[0].call_id)
        assert kinds(world.respond()) == ["CreationAbsorbed"]
        assert error(world.respond()) == "response_already_active"

    def test_a_request_that_comes_when_it_has_ended_is_absorbed_too(self) -> None:
        world = self.asked(1)
        world.give_output(calls(world)[0].call_id)
        world.produce("Forty-two.")
        world.finish()
        assert kinds(world.respond()) == ["CreationAbsorbed"]

    def test_a_new_turn_of_the_user_is_not_absorbed(self) -> None:
        world = self.asked(1)
        world.give_output(calls(world)[0].call_id)
        world.produce("Forty-two.")
        world.finish()
        world.say("And then?")
        assert "ResponseCreated" in kinds(world.respond())

    def test_it_waits_behind_the_sound_that_is_still_played(self) -> None:
        world = World(auto=True)
        world.begin()
        request = world.request
        world.produce("One moment.", 1_000)
        world.call()
        world.finish(request)
        assert kinds(world.give_output(calls(world)[0].call_id)) == ["ItemCreated", "AnswerDeferred"]
        assert kinds(world.respond()) == ["CreationAbsorbed"]
        assert "ResponseCreated" in kinds(world.ack(1_000))

    def test_without_auto_response_the_client_asks(self) -> None:
        world = self.asked(1, auto=False)
        assert kinds(world.give_output(calls(world)[0].call_id)) == ["ItemCreated"]
        assert "ResponseCreated" in kinds(world.respond())

    def test_calls_of_an_answer_that_was_cut_are_answered_by_nobody(self) -> None:
        world = World(auto=True)
        world.begin()
        world.call()
        world.cancel()
        assert kinds(world.give_output(calls(world)[0].call_id)) == ["ItemCreated"]


def test_a_stage_is_told_the_tools_and_sees_calls_with_their_outputs() -> None:
    world = World()
    world.say("Where is it?")
    options = cmd.ResponseOptions(tools='[{"type":"function","name":"look"}]', tool_choice='"required"')
    events = world.respond(options)
    (submitted,) = [effect for effect in world.effects(events) if isinstance(effect, fx.SubmitToStage)]
    assert submitted.payload.tools == options.tools
    assert submitted.payload.tool_choice == '"required"'
    request = world.request
    world.call()
    world.finish(request)
    world.give_output(calls(world)[0].call_id, "here")
    (again,) = [effect for effect in world.effects(world.respond()) if isinstance(effect, fx.SubmitToStage)]
    assert [type(item) for item in again.payload.items[-2:]] == [FunctionCall, FunctionOutput]


def test_a_log_in_which_a_call_is_written_that_nobody_began_is_refused() -> None:
    world = World()
    response_id = world.begin()
    piece = ev.CallDelta(
        number=99, count=1, response_id=response_id, output_index=0, item_id="i", call_id="c", arguments="{"
    )
    with pytest.raises(IllegalTransition, match="no call is open"):
        evolve(world.session, piece, world.now)


@rule("J10")
def test_fifty_rounds_of_calls_with_every_output_sent_twice() -> None:
    """Seen in the field: after many rounds the conversation is refused, or an output counts twice."""
    world = World()
    world.say("Count.")
    for number in range(50):
        world.respond()
        request = world.request
        world.call("count", str(number))
        world.finish(request)
        call_id = calls(world)[-1].call_id
        assert kinds(world.give_output(call_id, str(number))) == ["ItemCreated"]
        assert error(world.give_output(call_id, "again")) == "invalid_function_call_output"
    world.respond()
    world.produce("Fifty.")
    world.finish()
    shown = [item for item in prompt(world.session) if isinstance(item, FunctionOutput)]
    assert [item.output for item in shown] == [str(number) for number in range(50)]


def put_off() -> World:
    """Return a session whose answer to a function output waits behind sound."""
    world = World(auto=True)
    world.append(20)
    world.commit()
    request = world.request
    world.produce("Let me look.", 3_000)
    world.call("look", call_id="c1")
    world.finish(request)
    assert kinds(world.give_output("c1")) == ["ItemCreated", "AnswerDeferred"]
    assert world.session.turn.absorbs
    return world


@rule("F23", "J10")
@pytest.mark.parametrize("how", ["clear", "barge_in", "input_cancel"])
def test_when_the_answer_to_outputs_is_called_off_the_client_may_ask_for_it(how: str) -> None:
    world = put_off()
    command: cmd.AnyCommand = {
        "clear": cmd.ClearInput(attachment=1),
        "barge_in": cmd.BargeIn(attachment=1),
        "input_cancel": cmd.CancelInput(attachment=1),
    }[how]
    world.do(command)
    assert (world.session.turn.deferred, world.session.turn.absorbs) == (0, False)
    world.wait(3_000)
    assert "ResponseCreated" in kinds(world.respond())


@rule("F23", "G46")
def test_when_the_answer_before_it_fails_the_client_may_ask_for_it() -> None:
    world = World(auto=True)
    world.begin()
    request = world.request
    world.call("look", call_id="c1")
    world.finish(request)
    world.begin("And now?")
    assert kinds(world.give_output("c1")) == ["ItemCreated", "AnswerDeferred"]
    world.fail()
    assert "ResponseCreated" in kinds(world.respond())


def test_an_output_that_nobody_waits_for_is_answered_by_nobody() -> None:
    world = World(auto=True)
    world.begin()
    request = world.request
    world.call("look", call_id="c1")
    world.finish(request)
    world.item(FunctionCall(id="", call_id="told", name="look", arguments="{}"))
    assert "ResponseCreated" in kinds(world.give_output("c1"))
    assert kinds(world.give_output("told")) == ["ItemCreated"]


class TestAnOutputThatComesEarly:
    """WIRE 7.4: a client answers each call as soon as it is complete, while the response that made it goes on."""

    def begun(self, *, auto: bool = True, plugin: str = "cascade") -> tuple[World, str]:
        world = World(auto=auto, plugin=plugin)
        world.begin()
        request = world.request
        world.call("look", call_id="c1")
        assert kinds(world.give_output("c1")) == ["ItemCreated"]
        return world, request

    @rule("J10", "J11")
    def test_the_session_goes_on_when_the_response_ends(self) -> None:
        world, request = self.begun()
        events = world.finish(request)
        assert kinds(events)[-3:] == ["AnswerDeferred", "ResponseCreated", "RequestSubmitted"]
        assert (world.session.turn.awaited, world.session.turn.early) == ((), ())
        assert error(world.give_output("c1")) == "invalid_function_call_output"
        assert kinds(world.respond()) == ["CreationAbsorbed"]

    @rule("J10", "J11")
    def test_or_when_the_last_one_comes(self) -> None:
        world, request = self.begun()
        world.call("look", call_id="c2", index=1)
        assert "ResponseCreated" not in kinds(world.finish(request))
        assert world.session.turn.awaited == ("c2",)
        assert kinds(world.give_output("c2")) == ["ItemCreated", "ResponseCreated", "RequestSubmitted"]

    def test_or_when_the_last_one_without_an_output_is_deleted(self) -> None:
        world, request = self.begun()
        world.call("look", call_id="c2", index=1)
        world.finish(request)
        deleted = world.do(cmd.DeleteItem(attachment=1, item_id=calls(world)[1].id))
        assert kinds(deleted) == ["ItemDeleted", "ResponseCreated", "RequestSubmitted"]

    @rule("F21")
    def test_an_output_that_was_answered_is_no_reason_to_go_on_when_another_call_is_deleted(self) -> None:
        world, request = self.begun()
        world.call("look", call_id="c2", index=1)
        world.finish(request)
        assert "ResponseCreated" in kinds(world.respond())
        assert kinds(world.do(cmd.DeleteItem(attachment=1, item_id=calls(world)[1].id))) == ["ItemDeleted"]

    def test_without_auto_response_the_client_asks(self) -> None:
        world, request = self.begun(auto=False)
        assert "ResponseCreated" not in kinds(world.finish(request))
        assert "ResponseCreated" in kinds(world.respond())

    def test_an_output_that_is_deleted_again_is_awaited_like_any(self) -> None:
        world, request = self.begun()
        world.do(cmd.DeleteItem(attachment=1, item_id=world.session.conversation.order[-1]))
        assert "ResponseCreated" not in kinds(world.finish(request))
        assert kinds(world.give_output("c1")) == ["ItemCreated", "ResponseCreated", "RequestSubmitted"]

    def test_an_output_that_is_deleted_again_is_none_when_its_call_is_deleted_too(self) -> None:
        world, request = self.begun()
        output = world.session.conversation.order[-1]
        assert kinds(world.do(cmd.DeleteItem(attachment=1, item_id=output))) == ["ItemDeleted"]
        world.finish(request)
        call = calls(world)[0].id
        assert kinds(world.do(cmd.DeleteItem(attachment=1, item_id=call))) == ["ItemDeleted"]

    @pytest.mark.parametrize("how", ["cancel", "fail"])
    def test_of_an_answer_that_was_cut_or_failed_nobody_goes_on(self, how: str) -> None:
        world, request = self.begun()
        events = world.cancel() if how == "cancel" else world.fail(request)
        assert not {"ResponseCreated", "AnswerDeferred"} & set(kinds(events))
        assert "ResponseCreated" in kinds(world.respond())
        assert world.session.turn.early == ()

    @rule("H11")
    def test_an_answer_that_began_beside_it_has_seen_it(self) -> None:
        world = World(plugins=OVERLAPPING, auto=True)
        world.append(20)
        world.commit()
        first = world.request
        world.call("look", call_id="c1")
        world.end_inner()
        world.give_output("c1")
        world.append(20)
        world.commit()
        second = world.request
        assert "AnswerDeferred" not in kinds(world.finish(first))
        assert "ResponseCreated" not in kinds(world.finish(second))

    def test_a_model_that_listens_all_the_time_is_woken_as_ever(self) -> None:
        world = World(auto=True, plugin="echo")
        world.append(20)
        world.accept()
        world.call("look", call_id="c1", request=world.resident)
        world.give_output("c1")
        events = world.decide("end_of_turn")
        assert "ResponseEnded" in kinds(events)
        assert not {"ResponseCreated", "AnswerDeferred"} & set(kinds(events))


class TestADeletedCall:
    """WIRE 7.4, 7.3: a call that is gone is not waited for."""

    def asked(self, **session: bool) -> tuple[World, list[FunctionCall]]:
        world = World(auto=True, **session)
        world.begin()
        request = world.request
        for index in range(2):
            world.call(index=index)
        world.finish(request)
        return world, calls(world)

    def delete(self, world: World, item_id: str) -> list[str]:
        return kinds(world.do(cmd.DeleteItem(attachment=1, item_id=item_id)))

    def test_when_the_last_one_without_an_output_goes_the_session_goes_on(self) -> None:
        world, (first, second) = self.asked()
        world.give_output(first.call_id)
        assert self.delete(world, second.id) == ["ItemDeleted", "ResponseCreated", "RequestSubmitted"]
        assert kinds(world.respond()) == ["CreationAbsorbed"]

    def test_without_any_output_there_is_nothing_to_answer(self) -> None:
        world, items = self.asked()
        assert [self.delete(world, item.id) for item in items] == [["ItemDeleted"]] * 2
        assert world.session.turn.awaited == ()

    def test_one_that_has_its_output_changes_nothing(self) -> None:
        world, (first, second) = self.asked()
        world.give_output(first.call_id)
        assert self.delete(world, first.id) == ["ItemDeleted"]
        assert "ResponseCreated" in kinds(world.give_output(second.call_id))


def test_a_name_for_a_call_that_a_client_has_taken_is_not_given_again() -> None:
    world = World()
    taken = ids.call_id("duplex-1", 3)
    world.item(FunctionCall(id="mine", call_id=taken, name="look", arguments="{}"))
    world.begin()
    call = only(world.call(), ev.CallEnded).item
    assert call.call_id not in (taken, "")


class TestANameStandsForOneCall:
    """A name outlives its call: an output, or a late event, of the first could be taken for the second's (J10)."""

    def called(self, world: World, name: str) -> FunctionCall:
        """Let the model ask for a call by this name; return the call."""
        world.begin()
        request = world.request
        world.call(call_id=name)
        world.finish(request)
        return calls(world)[-1]

    def delete(self, world: World, call: FunctionCall) -> None:
        world.do(cmd.DeleteItem(attachment=1, item_id=call.id))

    @rule("J9", "J10")
    def test_a_model_that_uses_the_name_of_a_deleted_call_gets_another(self) -> None:
        world = World()
        first = self.called(world, "call_1")
        world.give_output("call_1")
        self.delete(world, first)
        second = self.called(world, "call_1")
        assert (first.call_id, second.call_id) == ("call_1", ids.call_id("duplex-1", 1))
        assert kinds(world.give_output(second.call_id)) == ["ItemCreated"], "the output of the first is not its own"
        self.delete(world, second)
        assert self.called(world, "").call_id == ids.call_id("duplex-1", 2)

    def test_one_that_a_client_took_and_deleted_is_not_given(self) -> None:
        world = World()
        for number in (1, 3, 2):
            name = ids.call_id("duplex-1", number)
            world.item(FunctionCall(id="mine", call_id=name, name="look", arguments="{}"))
            self.delete(world, calls(world)[-1])
        assert self.called(world, "").call_id == ids.call_id("duplex-1", 4)

    def test_one_of_an_answer_out_of_band_is_not_given_again(self) -> None:
        world = World()
        world.say("Hello.")
        head = only(world.respond(cmd.ResponseOptions(remember=False)), ev.ResponseCreated)
        aside = [only(world.call(index=n, request=head.request), ev.CallStarted).item.call_id for n in range(2)]
        assert [*aside, self.called(world, "").call_id] == [ids.call_id("duplex-1", n) for n in (1, 2, 3)]

    def test_a_client_may_put_back_what_it_deleted(self) -> None:
        world = World()
        call = self.called(world, "call_1")
        self.delete(world, call)
        assert kinds(world.item(call)) == ["ItemCreated"]
        assert kinds(world.give_output("call_1")) == ["ItemCreated"]

    def test_of_names_that_others_chose_the_last_are_remembered(self) -> None:
        session = World().session
        for number in range(KEPT_CALLS + 1):
            call_named(session, f"c{number}")
            call_named(session, f"c{number}")  # a call that is put back
        assert (len(session.conversation.called), session.conversation.called[0]) == (KEPT_CALLS, "c1")
        assert session.counters.calls == 0


def test_a_call_may_begin_before_its_arguments_do() -> None:
    world = World()
    world.begin()
    assert kinds(world.call(arguments="", final=False)) == ["CallStarted"]
    assert kinds(world.call(arguments="{}")) == ["CallDelta", "CallEnded"]


@rule("N13")
def test_only_sound_of_the_user_is_given_words() -> None:
    world = World()
    world.say("Hello.", item_id="written")
    world.begin()
    world.produce("Hm.", 100)
    for item_id in ("written", world.session.conversation.order[-1]):
        heard = cmd.StageTranscribed(request=world.request, item_id=item_id, text="Words.", final=True)
        assert world.do(heard) == []


@rule("K27")
@pytest.mark.parametrize("speaks_first", [True, False])
def test_the_first_call_is_the_first_text_of_an_answer_that_says_nothing(speaks_first: bool) -> None:
    world = World()
    world.begin()
    world.wait(20)
    if speaks_first:
        world.produce("Let me see.", 80)
    world.wait(30)
    world.call()
    latency = only(world.finish(), ev.ResponseEnded).latency
    assert latency.first_text_ms == (20 if speaks_first else 50)


@rule("J10", "J13")
@pytest.mark.parametrize("owned", [False, True])
def test_a_model_that_has_an_output_in_its_memory_is_given_no_second_one(owned: bool) -> None:
    """Its item may be deleted; what was numbered for the model is not taken back."""
    world = World(auto=True, plugin="nemotron-voicechat")
    for _ in range(5):
        world.append(2)
    world.accept()
    world.call("look", call_id="c1", request=world.resident)
    world.decide("end_of_turn")
    world.give_output("c1", "here")
    if owned:
        world.do(cmd.StageOwned(request=world.resident, generation=1))
    output = next(item for item in prompt(world.session) if isinstance(item, FunctionOutput))
    world.do(cmd.DeleteItem(attachment=1, item_id=output.id))
    (refused,) = world.give_output("c1", "there")
    assert isinstance(refused, ev.ErrorReported)
    assert (refused.code, refused.param) == ("invalid_function_call_output", "item.output")
    assert world.session.batches.generation == 1
