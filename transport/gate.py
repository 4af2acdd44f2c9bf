"""The gate: from a request to what its connection may do. Holds what all connections share: budgets and secrets."""

from antiphon.engine.clock import Clock

from .access import Access, Request, offered, unknown_key
from .grant import Grant, Start
from .keys import ApiKey
from .limits import Limits
from .secrets import PREFIX, Secrets


class Gate:
    """Lets requests pass, and says what they may do."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self.access = access
        self.secrets = Secrets(clock)
        self._limits = Limits(clock)

    def check(self, request: Request) -> Grant:
        """Let a request for a document pass.

        Raises:
            Denied: 401, 403.
        """
        return self._granted(self.access.check(request), Start())

    def admit(self, request: Request, *, returning: bool) -> Grant:
        """Let a websocket pass. A client secret among its keys is used up, and says how the session starts.

        One that was used up lets a connection in that may be `returning`: what it opened can be resumed.

        Raises:
            Denied: 401, also where no key is needed and a secret is none; 403.
        """
        self.access.check_origin(request)
        shown = list(offered(request, in_query=self.access.key_in_query))
        for text in shown:
            secret = self.secrets.take(text) if text.startswith(PREFIX) else None
            if secret is not None:
                return self._granted(self._owner(secret.owner), secret.start)
        for text in shown if returning else ():
            owner = self.secrets.used(text)
            if owner is not None:
                return self._granted(self._owner(owner), Start(), comes_back=True)
        if any(text.startswith(PREFIX) for text in shown):
            raise unknown_key()
        return self.check(request)

    def _owner(self, owner: str) -> ApiKey | None:
        """Return the key that a secret was asked for with: it counts for that key, and is void without it."""
        for key in self.access.keys.known():
            if key.id == owner:
                return key
        if self.access.keys.needed:
            raise unknown_key()
        return None

    def _granted(self, key: ApiKey | None, start: Start, *, comes_back: bool = False) -> Grant:
        if key is None:
            return Grant(start=start, comes_back=comes_back)
        return Grant(
            owner=key.id,
            sessions=key.sessions,
            budget=self._limits.budget(key),
            start=start,
            comes_back=comes_back,
        )
