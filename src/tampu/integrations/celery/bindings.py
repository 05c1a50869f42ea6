"""Which queues are bound to which exchange, for all processes: a document of the store for each exchange.

Direct routing of tasks, broadcasts to workers (``celery inspect``, ``revoke``) and events all look here.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from datetime import timedelta

import tampu
from tampu.integrations.celery.names import queue_name

Binding = tuple[str, str, str]
"""(routing key, pattern, queue), as kombu has it."""
_KIND = "celery-exchange"
_CACHE_SECONDS = 1.0
_ABANDONED = timedelta(minutes=4)
"""A queue of broadcasts in which a message has waited for this long has no worker any more, or a very busy one, which
binds it again. Less than the five minutes that Celery keeps broadcasts."""
_TRIES = 100


class Bindings:
    def __init__(self, store: tampu.Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, list[Binding]]] = {}

    def table(self, exchange: str) -> list[Binding]:
        """The bindings of an exchange, at most a second old."""
        read_at, found = self._known.get(exchange, (-_CACHE_SECONDS, []))
        if time.monotonic() - read_at >= _CACHE_SECONDS:
            found = self._read(exchange)[0]
            self._known[exchange] = time.monotonic(), found
        return found

    def forget(self, exchange: str) -> None:
        """Read the bindings of an exchange again when they are needed."""
        self._known.pop(exchange, None)

    def add(self, exchange: str, binding: Binding) -> None:
        self._change(exchange, lambda known: known if binding in known else [*known, binding])

    def remove(self, exchange: str, queue: str) -> None:
        self._change(exchange, lambda known: [binding for binding in known if binding[2] != queue])

    def drop_abandoned(self, exchange: str, queue: str) -> bool:
        """Forget a queue of broadcasts that nobody has read for long; its worker was killed. True if it was."""
        try:
            age = self._store.stats(queue_name(queue)).oldest_ready_age
        except tampu.NotFound:
            return False
        if age is None or age < _ABANDONED:
            return False
        self.remove(exchange, queue)
        return True

    def _read(self, exchange: str) -> tuple[list[Binding], int]:
        found = self._store.get_document(_KIND, _name(exchange))
        return ([], 0) if found is None else ([(b[0], b[1], b[2]) for b in found.value], found.version)

    def _change(self, exchange: str, change: Callable[[list[Binding]], list[Binding]]) -> None:
        for _ in range(_TRIES):
            known, version = self._read(exchange)
            new = change(known)
            if new != known:
                try:
                    with self._store.atomic() as unit:
                        unit.put_document(_KIND, _name(exchange), new, version=version)
                except tampu.VersionConflict:
                    continue
            self._known[exchange] = time.monotonic(), new
            return
        raise tampu.Unavailable(f"the bindings of exchange {exchange} change all the time", hint="try again")


def _name(exchange: str) -> str:
    """Exchanges may have any name."""
    return hashlib.sha256(exchange.encode()).hexdigest()[:40]
