"""What a scene is: how it is played, and what must be in its log."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from antiphon.engine.scoring import ScoringService
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import AnyCommand
from antiphon.events.events import Event
from antiphon.sessions.models.base import TurnModel
from antiphon.sessions.models.simple import CASCADE
from antiphon.stages.base import Stage
from antiphon.stages.scripted import Script

from .place import Place
from .puppet import Puppet

Play = Callable[[Place], Awaitable[None]]

SETTINGS = HubSettings(shutdown_ms=200)


class Scene(Struct, frozen=True):
    """One golden log. `shows` are the commands and events it is named for: each of them is in it."""

    name: str
    says: str
    play: Play
    shows: tuple[type[Event | AnyCommand], ...]
    plugin: TurnModel
    settings: HubSettings
    stage: Callable[[Place], Stage]
    session: int
    scorer: Callable[[], ScoringService] | None
    models: Callable[[], str | None] | None
    """Says why the models that it needs cannot be used here."""

    @property
    def missing(self) -> str | None:
        """Why it cannot be played here; None if it can."""
        return None if self.models is None else self.models()

    def place(self) -> Place:
        """Return where it is played."""
        return Place(self.plugin, self.settings, self.stage, self.scorer)


def puppet(here: Place) -> Stage:
    """Return the stage that a scene moves."""
    return Puppet(here.clock)


def playing(*scripts: Script) -> Callable[[Place], Stage]:
    """Return a stage that plays these scripts, and then what the scene says."""

    def make(here: Place) -> Stage:
        return Puppet(here.clock, dict(enumerate(scripts)))

    return make


SCENES: dict[str, Scene] = {}


def scene(
    *shows: type[Event | AnyCommand],
    plugin: TurnModel = CASCADE,
    settings: HubSettings = SETTINGS,
    stage: Callable[[Place], Stage] = puppet,
    session: int = 0,
    scorer: Callable[[], ScoringService] | None = None,
    models: Callable[[], str | None] | None = None,
) -> Callable[[Play], Play]:
    """Let a function be a scene; its docstring says what happens. `session`: which of those it opens is kept."""

    def enter(play: Play) -> Play:
        name: str = play.__name__
        says = " ".join((play.__doc__ or "").split())
        SCENES[name] = Scene(name, says, play, shows, plugin, settings, stage, session, scorer, models)
        return play

    return enter


def scenes() -> Mapping[str, Scene]:
    """Return all scenes by name."""
    from . import scenes_faults, scenes_life, scenes_models, scenes_talk, scenes_voice, scenes_words  # noqa: F401 - they enter themselves

    return dict(sorted(SCENES.items()))
