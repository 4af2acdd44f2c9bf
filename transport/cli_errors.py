"""How a command of the command line ends when it cannot do what was asked: one sentence and an exit code."""

FAILED = 1
UNUSABLE = 2


class Stop(Exception):
    """End the command. `message` is one sentence that says what is wrong and what to do about it."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        """Take the sentence, and the exit code: 1 it failed or differs, 2 what was given cannot be used."""
        super().__init__(message)
        self.message = message
        self.code = code
