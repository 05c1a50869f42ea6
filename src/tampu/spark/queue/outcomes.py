"""Outcomes that a batch reported, stored beside the delivery log until Spark has committed the batch.

One document per page of the log has every outcome that is not a simple ack. It belongs to one epoch of the consumer:
outcomes that an earlier driver reported for a batch that runs again are ignored. A driver that takes the consumer over
first writes its epoch into the documents of all deliveries in flight. From then on a driver of an earlier epoch cannot
report outcomes, wherever it was suspended.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tampu.broker.settings import Settings
from tampu.engines.port import PutDocument, SettleItem
from tampu.model.chance import CHANCE
from tampu.model.decoders import from_msgpack
from tampu.model.errors import VersionConflict
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
    return _read(store, tenant, page)[0].verdicts


def record(store: ArrowStore, tenant: str, page: str, epoch: int, new: Mapping[int, Verdict]) -> None:
    """Store reported outcomes. Within an epoch they are added to earlier ones; the last outcome of a row counts."""
    for _ in range(_TRIES):
        reported, version = _read(store, tenant, page)
        if reported.fence > epoch:
            raise Fenced(
                "another driver has taken the consumer over and runs this batch again",
                hint="stop this driver; its outcomes for the batch are ignored",
            )
        kept = dict(reported.verdicts) if reported.epoch == epoch else {}
        kept.update(new)
        kept = {number: verdict for number, verdict in kept.items() if verdict != PLAIN}
        if not kept and not version:
            return
        if _put(store, tenant, page, Reported(epoch, kept, epoch), version):
            return
    raise _conflict(page)


def fence(store: ArrowStore, tenant: str, page: str, epoch: int) -> None:
    """From now on, only drivers of this epoch can report. Earlier outcomes stay: Spark may have committed the batch."""
    for _ in range(_TRIES):
        reported, version = _read(store, tenant, page)
        if reported.fence >= epoch or _put(
            store, tenant, page, Reported(reported.epoch, reported.verdicts, epoch), version
        ):
            return
    raise _conflict(page)


def forget_earlier(store: ArrowStore, tenant: str, page: str, epoch: int) -> None:
    """The batch runs again in another epoch: drop its earlier outcomes."""
    for _ in range(_TRIES):
        reported, version = _read(store, tenant, page)
        if not version or reported.epoch == epoch or _put(store, tenant, page, Reported(epoch, {}, epoch), version):
            return
    raise _conflict(page)


def _put(store: ArrowStore, tenant: str, page: str, reported: Reported, version: int) -> bool:
    """False if another process has written it meanwhile."""
    try:
        store.run([PutDocument(OUTCOMES, tenant, page, msgspec.msgpack.encode(reported), version)])
    except VersionConflict:
        return False
    return True


def _conflict(page: str) -> VersionConflict:
    return VersionConflict(f"the outcomes of {page} keep changing", hint="call settle from one place only")


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


def _read(store: ArrowStore, tenant: str, page: str) -> tuple[Reported, int]:
    found = store.document(OUTCOMES, tenant, page)
    if found is None:
        return Reported(0, {}), 0
    return _to_reported(found.value), found.version
