"""The configuration that a session of a dialect begins with, as the server has it."""

from antiphon.engine.defaults import default_config
from antiphon.engine.settings import HubSettings
from antiphon.events.config import Capabilities, Dialect, SessionConfig


def initial(dialect: Dialect) -> SessionConfig:
    """Return it for a model `m` of default capabilities."""
    return default_config(dialect, HubSettings(), Capabilities(), model="m", voice="default")
