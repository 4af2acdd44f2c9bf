"""`antiphon serve` that may be told to die at an exact moment: python -m tests.chaos.server serve …

`CHAOS` in the environment says when, as `SEED` or `SEED MOMENT`; all words are those of `antiphon`.
"""

import os
import random

from antiphon.transport.cli import main

from tests.chaos.moments import burn_at, hurry

SETTING = "CHAOS"


def prepare(setting: str) -> None:
    """Do as the setting says."""
    seed, _, moment = setting.partition(" ")
    hurry(random.Random(seed))
    if moment:
        burn_at(moment, seed)


if __name__ == "__main__":
    prepare(os.environ[SETTING])
    main()
