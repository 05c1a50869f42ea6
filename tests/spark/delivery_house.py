"""What the tests of the delivery log stand on: a clock, a store in memory that can fail, and drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import tampu
from tampu.engines.port import Call, Document
from tampu.model.errors import TampuError, Unavailable
from tampu.model.times import SECOND
from tampu.spark.deliveries import Deliveries
from tampu.spark.delivery_log import HEADS, PAGES, entries
from tampu.spark.outcomes import OUTCOMES

LEASE = 60


class FakeClock:
    def __init__(self) -> None:
        self.micros = 1_800_000_000 * SECOND

    def now(self) -> int:
        return self.micros

    def pass_(self, seconds: float) -> None:
        self.micros += round(seconds * SECOND)


class OneFile:
    """The part of a store that the log uses, in memory, able to fail."""

    def __init__(self, queue: tampu.Queue) -> None:
        self.engine = queue._core.engine
        self.fail: type[Any] | None = None

    def run(self, calls: Sequence[Call]) -> list[Any]:
        if self.fail is not None and any(isinstance(call, self.fail) for call in calls):
            self.fail = None
            raise Unavailable("the store is away")
        replies = self.engine.run(calls)
        for reply in replies:
            if isinstance(reply, TampuError):
                raise reply
        return replies

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        return self.engine.document(kind, tenant, name)

    def now(self) -> int:
        return self.engine.now()


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


def payloads(q: tampu.Queue, log: Deliveries, start: int, end: int) -> list[Any]:
    found = [entries(log.store, "default", piece) for piece in log.pieces(start, end)]
    return [q.get(id).payload for part in found for id in part.ids]


def rows(log: Deliveries, start: int, end: int, **said: Any) -> list[dict[str, Any]]:
    return [
        {"delivery": piece.low + place, "receipt": receipt, **said}
        for piece in log.pieces(start, end)
        for place, receipt in enumerate(entries(log.store, "default", piece).receipts)
    ]


def documents(q: tampu.Queue) -> dict[str, int]:
    kinds = (HEADS, PAGES, OUTCOMES)
    return dict(Counter(kind for kind in kinds for _ in q._core.engine.documents(kind, "default")))
