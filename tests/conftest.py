"""Settings that all tests share: how hard Hypothesis looks, and that it looks at the same things wherever it runs.

A run of the tests asks the same questions every time, so that a change is judged by what it changed. What nobody
has asked yet is for `make fuzz`: its seed is new each time, and what it finds is printed so that it can be replayed.
"""

import gc
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

from tests.seeds import FUZZING, seed_of
from tests.signals import let_children_be_interrupted

pytest_plugins = ["tests.crashes", "tests.memory", "tests.order"]

let_children_be_interrupted()

# Servers live on in threads while pytest puts one sys.stdout in the place of another. Who prints in that moment brings
# the process down; a logger does not.
structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
)

settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no fault of a test
)
settings.register_profile("tests", settings.get_profile("fuzz"), derandomize=True, max_examples=100)
settings.register_profile("ci", settings.get_profile("tests"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

if not FUZZING:
    # Hypothesis mixes in the constants of whatever modules are loaded by then, which depends on the tests before.
    # There is no setting for it.
    providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """For what a test draws by itself."""
    return seed_of(request.node.name)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end, so looking for garbage in it is a second for nothing, in each process."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Who looks for something new has no use for tests that draw nothing."""
    if FUZZING:
        drawing = [item for item in items if _draws(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in drawing])
        items[:] = drawing


def _draws(item: pytest.Item) -> bool:
    return "seed" in getattr(item, "fixturenames", ()) or is_hypothesis_test(getattr(item, "obj", None))
