"""`antiphon serve` that may be told to die at an exact moment: python -m tests.chaos.server serve …

`CHAOS` in the environment says when, as `SEED` or `SEED MOMENT`; `CHAOS_FAULT` names a fault of
tests/simulation/mutants.py that is put into the product. All words are those of `antiphon`.
"""

import os
import random

from tests.simulation.mutants import MUTANTS, put_in

SETTING, FAULT = "CHAOS", "CHAOS_FAULT"


def main() -> None:
    """Serve as the settings say."""
    seed, _, moment = os.environ[SETTING].partition(" ")
    fault = os.environ.get(FAULT)
    if fault:
        put_in(next(mutant for mutant in MUTANTS if mutant.name == fault))
    # Not before: a fault is put in as its module is imported.
    from antiphon.transport import cli

    from tests.chaos.moments import burn_at, hurry

    hurry(random.Random(seed))
    if moment:
        burn_at(moment, seed)
    cli.main()


if __name__ == "__main__":
    main()
