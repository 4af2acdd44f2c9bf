"""What a client may raise."""


class SessionLost(Exception):
    """The session cannot be reached any more.

    `code` says why: the server's word, `disconnected`, or `invalid_url`; `why` says it in words.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.why = message


class SoundDropped(Exception):
    """The sound of a response was not read while it came, and there was too much of it to be kept."""
