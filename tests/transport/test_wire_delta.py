"""Messages of sound that are made in a mould are those that the encoder makes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import AudioFormat, SampleRef, TextMark
from antiphon.transport.wire_delta import cast
from antiphon.transport.wire_out import Reader, project
from antiphon.transport.wire_project import Form, Scene, audio_delta

from .scenes import AUDIO, REF, SESSION, SOUND, TICK, entry

FORMS: tuple[Form, ...] = ("ga", "beta", "duplex", "plain")
FORMATS = [
    AudioFormat("pcm16", 24_000),
    AudioFormat("pcm16", 8_000),
    AudioFormat("g711_ulaw", 8_000),
    AudioFormat("wav", 24_000),
]

counts = st.integers(0, 2**53)
names = st.text(max_size=30)


@st.composite
def pieces(draw: st.DrawFn) -> ev.AudioDelta:
    """A piece of sound in which everything varies."""
    shown = ev.PlaybackCursor(draw(counts), draw(counts), draw(counts), draw(counts))
    return replace(
        AUDIO,
        number=draw(st.integers(0, 2**40)),
        response_id=draw(names),
        item_id=draw(names),
        format=draw(st.sampled_from(FORMATS)),
        audio_ms=draw(counts),
        text=draw(st.text(max_size=40)),
        epoch=draw(st.integers(0, 3)),
        marks=tuple(draw(st.lists(st.builds(TextMark, counts, counts), max_size=3))),
        playback=shown,
        aside=draw(st.booleans()),
    )


def encoded(event: ev.AudioDelta, form: Form, epoch: int, sound: bytes) -> list[bytes]:
    """Encode the messages one by one, as they are described."""
    scene = Scene(SESSION, form, 2, None, TICK, {event.ref: sound}, epoch)
    made: list[bytes] = []
    for part, message in enumerate(audio_delta(event, scene)):
        if message is None:
            continue
        message.event_id = ids.event_id(5, 0, part)
        if form == "duplex" and event.number:
            message.server_event_seq = event.number + part
        made.append(msgspec.json.encode(message))
    return made


@given(pieces(), st.lists(pieces(), max_size=3), st.sampled_from(FORMS), st.binary(max_size=100), st.integers(0, 3))
def test_whatever_varies_the_bytes_are_those_of_the_encoder(
    first: ev.AudioDelta, others: list[ev.AudioDelta], form: Form, sound: bytes, epoch: int
) -> None:
    """One after the other through one reader: also those for which the mould of the last one is not good."""
    reader = Reader(session=SESSION, form=form, attachment=2)
    like = [replace(other, **{name: getattr(first, name) for name in SAME}) for other in others]
    for event in (first, *like, *others):
        published = entry(event)
        published.sound[event.ref] = sound
        made = project(published, reader, epoch)
        assert [message.data for message in made] == encoded(event, form, epoch, sound)
        numbered = form == "duplex" and event.number
        assert [message.number for message in made] == [
            event.number + part if numbered else 0 for part in range(len(made))
        ]
        voiced = [b".delta" in message.data[:40] and b"audio.delta" in message.data[:40] for message in made]
        stale = event.epoch < epoch and not event.aside
        full = bool(sound) or event.format.encoding == "wav"
        assert [message.sounds for message in made] == [there and full and not stale for there in voiced]


SAME = ("response_id", "item_id", "format", "epoch")


@pytest.mark.parametrize("form", FORMS)
def test_a_response_has_one_mould(form: Form) -> None:
    reader = Reader(session=SESSION, form=form, attachment=2)
    project(entry(AUDIO), reader, 1)
    mould = reader.mould
    assert mould is not None
    assert mould.audio
    assert mould.words
    later = replace(AUDIO, number=900, ref=SampleRef("out", 3840, 3840), text="", audio_ms=160)
    published = entry(later)
    published.sound[later.ref] = SOUND
    project(published, reader, 1)
    assert reader.mould is mould
    project(entry(replace(AUDIO, response_id="resp_9")), reader, 1)
    assert reader.mould is not mould


def test_what_hides_a_stopper_is_made_in_no_mould() -> None:
    """Names are ours, and hold none; if one did, the messages would still be right."""
    scene = Scene(SESSION, "duplex", 2, None, TICK, {REF: SOUND}, 1)
    for name in ("stopper: id", "stopper: words", str(2**53 - 8)):
        event = replace(AUDIO, item_id=name)
        assert not cast(event, scene).audio
        made = project(entry(event), Reader(session=SESSION, form="duplex", attachment=2), 1)
        assert [message.data for message in made] == encoded(event, "duplex", 1, SOUND)
