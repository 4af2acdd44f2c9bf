"""What every test shares: asyncio on uvloop for async tests, and reproducible property tests."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.rules import catalogue, marked, unknown

# Before anybody imports numpy: its threads wait by spinning, and beside other tests, on a few cores, several take
# three times as long as one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent

# `suite` gives the same examples on every run, so that a red run is red for everybody. `explore` looks for
# new ones: HYPOTHESIS_PROFILE=explore make test
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mark that names no rule would hold nothing: the run stops."""
    if faults := unknown(marked(items), catalogue()):
        raise pytest.UsageError("\n".join(faults))


def pytest_collection_finish() -> None:
    """What is imported by now lives to the end: the collector need not look at it every time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Async tests run on the loop that the server runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT
