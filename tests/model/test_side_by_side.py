"""The engine behaves as the reference model, whatever is done to it in whatever order.

TAMPU_MODEL_EXAMPLES=2000 looks longer. A failure prints the steps and a blob that `@reproduce_failure` replays.
"""

import os

from hypothesis import HealthCheck, settings

from tests.model import stores
from tests.model.machine import SideBySide
from tests.seeds import OTHER_THREADS_DRAW

pytestmark = OTHER_THREADS_DRAW
EXAMPLES = int(os.environ.get("TAMPU_MODEL_EXAMPLES", "40"))


class OnDisk(SideBySide):
    place_of = stores.OnDisk


class InMemory(SideBySide):
    place_of = stores.InMemory


class OnPostgres(SideBySide):
    place_of = stores.OnPostgres


class OnMariaDb(SideBySide):
    place_of = stores.OnMariaDb


class OnMariaDbWithRedis(SideBySide):
    place_of = stores.OnMariaDbWithRedis


class OnRedis(SideBySide):
    place_of = stores.OnRedis


class OnCluster(SideBySide):
    place_of = stores.OnCluster


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
SHORT = settings(LONG, max_examples=max(1, EXAMPLES // 4))
"""Of engines behind a socket, where a step takes longer."""
TestOnPostgres = OnPostgres.TestCase
TestOnPostgres.settings = SHORT
TestOnMariaDb = OnMariaDb.TestCase
TestOnMariaDb.settings = SHORT
TestOnMariaDbWithRedis = OnMariaDbWithRedis.TestCase
TestOnMariaDbWithRedis.settings = SHORT
TestOnRedis = OnRedis.TestCase
TestOnRedis.settings = SHORT
TestOnCluster = OnCluster.TestCase
TestOnCluster.settings = SHORT
