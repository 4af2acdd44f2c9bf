"""The session halves of the models, by name. Pure."""

from collections.abc import Mapping

from .models.aura import AURA as AURA
from .models.base import OPENAI_VOICES as OPENAI_VOICES
from .models.base import SessionPlugin as SessionPlugin
from .models.base import TurnModel as TurnModel
from .models.base import check_recording as check_recording
from .models.minicpm import MINICPM as MINICPM
from .models.nemotron import NEMOTRON as NEMOTRON
from .models.personaplex import PERSONAPLEX as PERSONAPLEX
from .models.qwen3_omni import QWEN3_OMNI as QWEN3_OMNI
from .models.simple import CASCADE as CASCADE
from .models.simple import ECHO as ECHO

Registry = Mapping[str, SessionPlugin]

REGISTRY: Registry = {
    plugin.name: plugin for plugin in (ECHO, CASCADE, MINICPM, QWEN3_OMNI, NEMOTRON, AURA, PERSONAPLEX)
}
