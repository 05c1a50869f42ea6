"""The engine behaves as the reference model, whatever is done to it in whatever order.

TAMPU_MODEL_EXAMPLES=2000 looks longer. A failure prints the steps and a blob that `@reproduce_failure` replays.
"""

import os

from hypothesis import HealthCheck, settings

from tests.model.machine import SideBySide

EXAMPLES = int(os.environ.get("TAMPU_MODEL_EXAMPLES", "40"))


class OnDisk(SideBySide):
    on_disk = True


class InMemory(SideBySide):
    on_disk = False


LONG = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestOnDisk = OnDisk.TestCase
TestOnDisk.settings = LONG
TestInMemory = InMemory.TestCase
TestInMemory.settings = LONG
