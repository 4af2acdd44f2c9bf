"""One event of every public kind, with the count that the core gives it."""

from antiphon.engine.published import Published, published
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, SampleRef, TextMark
from antiphon.events.config import Capabilities, Limits
from antiphon.events.items import AudioPart, FunctionCall, Message, TextPart
from antiphon.events.log import Transaction

from .configs import initial

SESSION = "duplex-0f"
PCM = AudioFormat("pcm16", 24_000)
REF = SampleRef("out", 0, 3840)
SOUND = bytes(range(256)) * 15
TICK = cmd.Tick()

VIEW = ev.SessionView(
    id=SESSION,
    dialect="duplex",
    config=initial("duplex"),
    capabilities=Capabilities(),
    resumable=True,
    expires_at=0,
    state="open",
    turn_state="idle",
    epoch=0,
    turn=0,
)
HEAD = ev.ResponseHead(
    id="resp_1",
    item_id="item_resp_1",
    conversation_id="conv_1",
    turn=1,
    epoch=1,
    output_modalities=("audio",),
    output_format=PCM,
    voice="default",
    metadata={"mine": "1"},
)
WRITTEN = ev.ResponseHead(
    id="resp_2",
    item_id="item_resp_2",
    conversation_id="conv_1",
    turn=1,
    epoch=1,
    output_modalities=("text",),
    output_format=PCM,
    voice="default",
)
SPOKEN_ITEM = Message(
    id="item_resp_1", role="assistant", status="completed", content=(AudioPart("Hello.", REF, 24_000, 80),)
)
WRITTEN_ITEM = Message(id="item_resp_2", role="assistant", content=(TextPart("Hello."),))
USER_ITEM = Message(id="item_u", role="user", content=(AudioPart(None),))

AUDIO = ev.AudioDelta(
    number=6,
    count=2,
    session=SESSION,
    response_id="resp_1",
    item_id="item_resp_1",
    ref=REF,
    format=PCM,
    audio_ms=80,
    text="Hel",
    epoch=1,
    marks=(TextMark(3, 80),),
    playback=ev.PlaybackCursor(80, 80, 0, 0),
)

OPEN_CALL = FunctionCall(id="item_c", call_id="call_1", name="look", arguments="", status="in_progress")
CALL = FunctionCall(id="item_c", call_id="call_1", name="look", arguments='{"a": 1}')
CUT_CALL = FunctionCall(id="item_d", call_id="call_2", name="look", arguments='{"a"', status="incomplete")

OPENED = ev.SessionOpened(
    number=0,
    count=1,
    session=SESSION,
    control_id="c",
    plugin="echo",
    plugin_version="1",
    limits=Limits(),
    wall_us=1,
    token_digest="d",
    view=VIEW,
)
RESUMED = ev.SessionResumed(
    number=0,
    count=1,
    control_id="r",
    presented="p",
    attachment=2,
    generation=1,
    token_digest="d",
    last_number=4,
    head=9,
    last_client_seq=3,
    view=VIEW,
)


def ended(head: ev.ResponseHead, item: Message | None, count: int, **fields: object) -> ev.ResponseEnded:
    values: dict[str, object] = {"status": "completed", "text": "Hello." if item else "", **fields}
    return ev.ResponseEnded(number=10, count=count, session=SESSION, head=head, item=item, **values)  # type: ignore[arg-type]


EVENTS: list[ev.PublicEvent] = [
    OPENED,
    RESUMED,
    ev.SessionTouched(number=1, count=1, session=SESSION),
    ev.ConfigUpdated(number=1, count=1, generation=1, config=VIEW.config, view=VIEW),
    ev.TurnSignalled(
        number=1, count=1, session=SESSION, epoch=0, signal="user_started", turn_state="user_speaking"
    ),
    ev.SessionClosed(number=1, count=1, session=SESSION, reason="client_close", expired=False),
    ev.SessionClosed(number=1, count=1, session=SESSION, reason="idle_ttl_expired", expired=True),
    ev.ErrorReported(number=1, count=1, code="bad_event", message="m", param="p", detail="missing"),
    ev.ErrorReported(number=0, count=1, code="invalid_json", message="m"),
    ev.SpeechStarted(number=1, count=1, item_id="item_u", audio_start_ms=5, start=80),
    ev.SpeechStopped(number=1, count=1, item_id="item_u", audio_end_ms=50),
    ev.InputTimedOut(number=1, count=1, item_id="item_u", audio_start_ms=5, audio_end_ms=50),
    ev.InputCommitted(
        number=1,
        count=1,
        session=SESSION,
        item_id="item_u",
        previous_item_id=None,
        ref=SampleRef("in", 0, 320),
        epoch=0,
        turn=1,
    ),
    ev.InputCleared(number=1, count=1),
    ev.UserTranscribed(number=1, count=1, item_id="item_u", text="hi", seconds=1.5),
    ev.UserTranscribed(number=1, count=1, item_id="item_u", text="h", seconds=1.5, final=False),
    ev.UserTranscribed(number=1, count=1, item_id="item_u", text="", seconds=0.0, error="deaf"),
    ev.UserTranscribed(number=1, count=0, item_id="item_u", text="hi", seconds=1.5),
    ev.OverlapDecided(
        number=1, count=1, session=SESSION, epoch=0, policy="listen_only", action="listen", reason="r"
    ),
    ev.ListenDecided(number=1, count=1, session=SESSION, epoch=0, reason="model_listen"),
    ev.ListenDecided(number=1, count=1, session=SESSION, epoch=0, reason="model_listen", response_id="resp_1"),
    ev.ItemCreated(number=1, count=3, item=USER_ITEM, previous_item_id=None),
    ev.ItemDeleted(number=1, count=1, item_id="item_u"),
    ev.ItemRetrieved(number=1, count=1, item=USER_ITEM),
    ev.ItemTruncated(
        number=1,
        count=1,
        item_id="item_resp_1",
        response_id="resp_1",
        content_index=0,
        audio_end_ms=40,
        text="He",
        epoch=1,
    ),
    ev.ResponseCreated(number=1, count=1, head=HEAD, request="q", options=cmd.ResponseOptions()),
    ev.OutputStarted(
        number=1,
        count=5,
        session=SESSION,
        response_id="resp_1",
        item=Message(id="item_resp_1", role="assistant", status="in_progress"),
        previous_item_id="item_u",
        part="audio",
        epoch=1,
    ),
    ev.OutputStarted(
        number=1,
        count=4,
        session=SESSION,
        response_id="resp_2",
        item=Message(id="item_resp_2", role="assistant", status="in_progress"),
        previous_item_id="item_u",
        part="text",
        epoch=1,
    ),
    AUDIO,
    ev.TextDelta(number=1, count=1, response_id="resp_1", item_id="item_resp_1", part="audio", text="H", epoch=1),
    ev.TextDelta(number=1, count=1, response_id="resp_2", item_id="item_resp_2", part="text", text="H", epoch=1),
    ev.OutputEnded(
        number=1,
        count=5,
        response_id="resp_1",
        item=SPOKEN_ITEM,
        previous_item_id="item_u",
        part="audio",
        text="Hello.",
    ),
    ev.OutputEnded(
        number=1,
        count=4,
        response_id="resp_2",
        item=WRITTEN_ITEM,
        previous_item_id="item_u",
        part="text",
        text="Hello.",
    ),
    ev.CallStarted(number=1, count=3, response_id="resp_1", output_index=1, item=OPEN_CALL, previous_item_id=None),
    ev.CallDelta(
        number=1,
        count=1,
        response_id="resp_1",
        output_index=1,
        item_id="item_c",
        call_id="call_1",
        arguments='{"a":',
    ),
    ev.CallEnded(number=1, count=3, response_id="resp_1", output_index=1, item=CALL, previous_item_id=None),
    ended(HEAD, SPOKEN_ITEM, 2, item_done=True, calls=(CALL,)),
    ended(HEAD, SPOKEN_ITEM, 5, item_done=True, calls=(CALL,), cut=CUT_CALL, status="cancelled"),
    ended(HEAD, None, 5, cut=CUT_CALL, status="cancelled"),
    ended(HEAD, SPOKEN_ITEM, 7),
    ended(WRITTEN, WRITTEN_ITEM, 6),
    ended(HEAD, None, 2),
    ev.OutputCleared(number=1, count=1, response_id="resp_1", asked=False),
    ev.InterruptionSuspected(number=1, count=1, response_id="resp_1", at_ms=40, start=512),
    ev.InterruptionDismissed(number=1, count=1, response_id="resp_1", at_ms=40, reason="too_short"),
    ev.InterruptionDismissed(number=1, count=0, response_id="resp_1", at_ms=40, reason="answer_over"),
    ev.InterruptionDoubted(number=1, count=1, response_id="resp_1", at_ms=40, reason="no_words"),
    ev.PlaybackAcknowledged(
        number=1,
        count=1,
        session=SESSION,
        epoch=1,
        response_id="resp_1",
        item_id="item_resp_1",
        played_ms=80,
        committed_ms=80,
        truncate=False,
        playback=ev.PlaybackCursor(80, 80, 80, 80),
        history="Hel",
        history_committed=True,
    ),
]


def entry(*events: ev.AnyEvent, seq: int = 5, command: cmd.AnyCommand = TICK, epoch: int = 1) -> Published:
    """Return a durable transaction with these events, and the sound of its deltas."""
    transaction = Transaction(seq=seq, term=1, at=0, command=command, events=events)
    sound = {event.ref: SOUND[: event.ref.size] for event in events if isinstance(event, ev.AudioDelta)}
    return published(transaction, sound, epoch)
