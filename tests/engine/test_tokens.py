"""Resume tokens: derived, one for each attachment, known to the log only by their digest."""

import re

import pytest

from antiphon.engine.attachment import Granted
from antiphon.engine.opening import Resumption
from antiphon.engine.tokens import digest, token
from antiphon.events.log import encode

from .worlds import opening, world
from tests.rules import rule

pytestmark = pytest.mark.anyio


@rule("D21")
def test_a_token_is_43_url_safe_characters_and_can_be_made_again() -> None:
    made = token(b"k" * 32, "duplex-1", 1)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", made)
    assert made == token(b"k" * 32, "duplex-1", 1)


@rule("D21")
def test_secret_session_and_attachment_all_matter() -> None:
    made = {
        token(b"k" * 32, "duplex-1", 1),
        token(b"l" * 32, "duplex-1", 1),
        token(b"k" * 32, "duplex-2", 1),
        token(b"k" * 32, "duplex-1", 2),
        token(b"k" * 32, "duplex-", 11),
    }
    assert len(made) == 5


@rule("D21")
def test_a_digest_is_hex_and_is_not_the_token() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", digest("abc"))


@rule("D21")
async def test_a_token_is_in_no_log_and_in_no_repr() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        asked = Resumption(session=attachment.session, token=attachment.token or "", control_id="r")
        again = await here.hub.resume(asked)
        tokens = [attachment.token or "", again.token or ""]
        assert len(set(tokens)) == 2
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in tokens)
        recorded = await here.recorded(attachment.session)
        log = b"".join(encode(entry) for entry in recorded)
        granted = Granted(
            session="s", dialect="duplex", attachment=1, lease=0, token=tokens[0], entry=attachment.entry
        )
        shown = [repr(thing) for thing in (asked, granted, attachment, here.hub.session(attachment.session))]
        for token in tokens:
            assert token.encode() not in log
            assert digest(token).encode() in log
            assert not any(token in text for text in shown)
        assert "session=" in shown[0]
