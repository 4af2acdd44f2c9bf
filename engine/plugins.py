"""The session halves of model plugins, by name, for whoever puts a server together."""

from antiphon.sessions.plugins import REGISTRY, SessionPlugin

from .errors import UnknownPlugin


def plugin_named(name: str) -> SessionPlugin:
    """Return the plugin of this name.

    Raises:
        UnknownPlugin: there is none.
    """
    plugin = REGISTRY.get(name)
    if plugin is None:
        raise UnknownPlugin(name, "any")
    return plugin
