"""What the tests of the delivery log stand on: a clock, a store that can fail, and drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import tampu
from tampu.broker import access
from tampu.engines.port import Call, Document, Extend, Settle
from tampu.model.errors import Unavailable
from tampu.model.outcome import Outcome
from tampu.model.times import SECOND
from tampu.spark.queue.deliveries import Deliveries
from tampu.spark.queue.delivery_log import HEADS, PAGES, delivered, entries
from tampu.spark.queue.outcomes import OUTCOMES
from tests.spark.engines import store_for

LEASE = 60


class FakeClock:
    def __init__(self) -> None:
        self.micros = 1_800_000_000 * SECOND

    def now(self) -> int:
        return self.micros

    def pass_(self, seconds: float) -> None:
        self.micros += round(seconds * SECOND)


class Shaky:
    """A store with the clock of the test that can fail, once, when it is given a call of some kind."""

    def __init__(self, queue: tampu.Store) -> None:
        self._store = store_for(queue)
        self.fail: type[Any] | None = None
        self.away: type[Any] | None = None
        """As `fail`, but reported item by item, as Redis does."""
        self.before: dict[str, Callable[[], object]] = {}
        """What happens before a document of some kind is read for the first time."""

    def run(self, calls: Sequence[Call]) -> list[Any]:
        if self.fail is not None and any(isinstance(call, self.fail) for call in calls):
            self.fail = None
            raise Unavailable("the store is away")
        if self.away is not None and isinstance(calls[0], self.away):
            self.away = None
            (call,) = calls
            assert isinstance(call, Extend | Settle)
            error: Any = Unavailable("the store is away")
            return [[Outcome(None, None, error) if isinstance(call, Settle) else error for _ in call.items]]
        return self._store.run(calls)

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        found = self._store.document(kind, tenant, name)
        self.before.pop(kind, lambda: None)()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def driver(store: Any, clock: FakeClock, takeover: float = 0, process: str | None = None) -> Deliveries:
    return Deliveries(
        store,
        "default",
        "emails",
        "billing",
        lease_us=LEASE * SECOND,
        takeover_us=round(takeover * SECOND),
        pause=clock.pass_,
        process=process,
    )


def payloads(store: tampu.Store, log: Deliveries, start: int, end: int) -> list[Any]:
    found = [entries(log.store, "default", piece) for piece in log.pieces(start, end)]
    return [store.get(id).payload for part in found for id in part.ids]


def rows(log: Deliveries, start: int, end: int, **said: Any) -> list[dict[str, Any]]:
    return [
        {"delivery": piece.low + place, "receipt": delivered(receipt, piece.epoch), **said}
        for piece in log.pieces(start, end)
        for place, receipt in enumerate(entries(log.store, "default", piece).receipts)
    ]


def documents(store: tampu.Store) -> dict[str, int]:
    kinds = (HEADS, PAGES, OUTCOMES)
    return dict(Counter(kind for kind in kinds for _ in access.engine(store).documents(kind, "default")))
