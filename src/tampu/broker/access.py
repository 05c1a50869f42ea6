"""What other packages of tampu need of an open store beyond its methods. Users have no need of it.

The attributes of a store that begin with an underscore are only read in this package; `tests/test_contracts.py` checks
it. A server's store has no engine here: ask `is_local` first.
"""

from __future__ import annotations

from typing import Any, TypeVar

from tampu.broker.async_store import AsyncStore
from tampu.broker.core import Core, Steps
from tampu.broker.store import AllVerbs, Store, Transaction
from tampu.engines.port import Call, Engine
from tampu.model.errors import TampuError

R = TypeVar("R")


def is_local(store: Store) -> bool:
    """True if this process has the store itself open, and not a connection to a server."""
    return isinstance(store._core, Core)


def core(store: Store) -> Core:
    """What all that works on the store shares: engine, settings, waiting claims. Of a server's, what sends requests."""
    return store._core


def engine(store: Store) -> Engine:
    """The engine of a local store."""
    return store._core.engine


def verbs(store: Store) -> AllVerbs:
    """Every verb as steps, also those that have no method; `run` carries them out."""
    return store._verbs


def run(store: Store, steps: Steps[R]) -> R:
    """Carry out a verb from this thread, as the methods of the store do."""
    return store._drive(steps)


def awaitable(store: Store) -> AsyncStore:
    """The same open store for event loops; needs no ``async with``."""
    made = AsyncStore(lambda: store)
    made._queue = store
    return made


def run_in(transaction: Transaction, call: Call) -> Any:
    """Carry out one call in an open transaction; its reply."""
    reply = transaction._work.run([call])[0]
    if isinstance(reply, TampuError):
        raise reply
    return reply
