"""What other packages of tampu need of an open store beyond its public methods.

Only this package reads attributes of a store that begin with an underscore; `tests/test_contracts.py` checks that. The
store of a server has no engine in this process: check `is_local` first.
"""

from __future__ import annotations

from typing import Any, TypeVar

from tampu.broker.async_store import AsyncStore
from tampu.broker.core import Core, Steps, without_errors
from tampu.broker.store import AllVerbs, Store, Transaction
from tampu.engines.port import Call, Engine

R = TypeVar("R")


def is_local(store: Store) -> bool:
    """True if this process has opened the store itself; false if it talks to a server."""
    return isinstance(store._core, Core)


def core(store: Store) -> Core:
    """The core of the store: engine, settings, waiters. For the store of a server, what sends the requests."""
    return store._core


def engine(store: Store) -> Engine:
    """The engine of a local store."""
    return store._core.engine


def verbs(store: Store) -> AllVerbs:
    """All verbs as steps, also those without a public method; `run` carries them out."""
    return store._verbs


def run(store: Store, steps: Steps[R]) -> R:
    """Carry out a verb from this thread, as methods of the store do."""
    return store._drive(steps)


async def run_async(store: AsyncStore, steps: Steps[R]) -> R:
    """Carry out a verb from an event loop."""
    return await store._drive(steps)


def awaitable(store: Store) -> AsyncStore:
    """The same open store for event loops. It needs no ``async with``."""
    async_store = AsyncStore(lambda: store)
    async_store._store = store
    return async_store


def run_in(transaction: Transaction, call: Call) -> Any:
    """Carry out one call in an open transaction. Returns its reply or raises its error."""
    return without_errors(transaction._work.run([call]))[0]
