"""Outcomes that a batch reported, stored beside the delivery log until Spark has committed the batch.

One document per page of the log has every outcome that is not a simple ack. It belongs to one epoch of the consumer:
outcomes that an earlier driver reported for a batch that runs again are ignored. A driver that takes the consumer over
first writes its epoch into the documents of all deliveries in flight. From then on a driver of an earlier epoch cannot
report outcomes, wherever it was suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tampu.broker.settings import Settings
from tampu.engines.port import PutDocument, SettleItem
from tampu.model.decoders import from_msgpack
from tampu.model.errors import VersionConflict
from tampu.model.times import CHANCE
from tampu.spark.queue.delivery_log import Fenced
from tampu.stores.port import ArrowStore

OUTCOMES = "deliveries.outcome"
_TRIES = 10


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    verb: str = "ack"
    """``ack``, ``nack`` or ``reject``"""
    error: str | None = None
    reason: str | None = None
    result: bytes | None = None
    delay_us: int | None = None


PLAIN = Verdict()


class Reported(msgspec.Struct, frozen=True):
    epoch: int
    """Of the driver that reported them."""
    verdicts: dict[int, Verdict]
    fence: int = 0
    """The lowest epoch that may still report."""


_to_reported = from_msgpack(Reported).decode


def verdicts(store: ArrowStore, tenant: str, page: str) -> dict[int, Verdict]:
    """Outcomes by delivery number; deliveries without one are acked."""
    found = store.document(OUTCOMES, tenant, page)
    return {} if found is None else _to_reported(found.value).verdicts


def record(store: ArrowStore, tenant: str, page: str, epoch: int, new: Mapping[int, Verdict]) -> None:
    """Store reported outcomes. Within an epoch they are added to earlier ones; the last outcome of a row counts."""

    def change(reported: Reported | None) -> Reported | None:
        if reported is not None and reported.fence > epoch:
            raise Fenced(
                "another driver has taken the consumer over and runs this batch again",
                hint="stop this driver; its outcomes for the batch are ignored",
            )
        earlier = reported.verdicts if reported is not None and reported.epoch == epoch else {}
        kept = {number: verdict for number, verdict in {**earlier, **new}.items() if verdict != PLAIN}
        return Reported(epoch, kept, epoch) if kept or reported is not None else None

    _change(store, tenant, page, change)


def fence(store: ArrowStore, tenant: str, page: str, epoch: int) -> None:
    """From now on, only drivers of this epoch can report. Earlier outcomes stay: Spark may have committed the batch."""

    def change(reported: Reported | None) -> Reported | None:
        known = reported or Reported(0, {})
        return None if known.fence >= epoch else Reported(known.epoch, known.verdicts, epoch)

    _change(store, tenant, page, change)


def forget_earlier(store: ArrowStore, tenant: str, page: str, epoch: int) -> None:
    """The batch runs again in another epoch: drop its earlier outcomes."""
    _change(
        store, tenant, page, lambda known: None if known is None or known.epoch == epoch else Reported(epoch, {}, epoch)
    )


def _change(store: ArrowStore, tenant: str, page: str, change: Callable[[Reported | None], Reported | None]) -> None:
    """Replace the document by what ``change`` makes of it; None leaves it as it is."""
    for _ in range(_TRIES):
        found = store.document(OUTCOMES, tenant, page)
        new = change(None if found is None else _to_reported(found.value))
        if new is None:
            return
        version = 0 if found is None else found.version
        try:
            store.run([PutDocument(OUTCOMES, tenant, page, msgspec.msgpack.encode(new), version)])
        except VersionConflict:  # another process has written it meanwhile
            continue
        return
    raise VersionConflict(f"the outcomes of {page} keep changing", hint="call settle from one place only")


def ending(queue: str, receipt: str, id: str, verdict: Verdict, settings: Settings) -> SettleItem:
    """The settle item for an outcome, by the settings of the queue."""
    if verdict.verb == "ack":
        return SettleItem("ack", queue, receipt, verdict.result, settings.result_ttl_us, id=id)
    if verdict.verb == "reject":
        return SettleItem("reject", queue, receipt, reason=verdict.reason, error=verdict.error, id=id)
    if verdict.delay_us is not None:
        return SettleItem("nack", queue, receipt, error=verdict.error, delay_us=verdict.delay_us, id=id)
    spread = settings.backoff.spread(CHANCE.random())
    return SettleItem("nack", queue, receipt, error=verdict.error, delays=settings.delays, spread=spread, id=id)
