"""What a batch said about its messages, kept beside the delivery log until Spark has committed the batch.

A document per page of the log holds only what is not a plain ack. It belongs to one epoch of the consumer: what an
earlier driver said about a batch that is run again does not count. Who takes the consumer over writes its epoch into
the documents of what is in flight, before it does anything else: a driver of an earlier one can say nothing from then
on, wherever it was stopped.
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


class Said(msgspec.Struct, frozen=True):
    epoch: int
    """Of the driver that said it."""
    verdicts: dict[int, Verdict]
    fence: int = 0
    """The least epoch that may still say something."""


_to_said = from_msgpack(Said).decode


def verdicts(store: ArrowStore, tenant: str, page: str) -> dict[int, Verdict]:
    """By number of the delivery; those that are not here are acked."""
    return _read(store, tenant, page)[0].verdicts


def record(store: ArrowStore, tenant: str, page: str, epoch: int, new: Mapping[int, Verdict]) -> None:
    """Keep what is said now. In one epoch it is added to what was said before; the last word about a row counts."""
    for _ in range(_TRIES):
        said, version = _read(store, tenant, page)
        if said.fence > epoch:
            raise Fenced(
                "another driver has taken the consumer over and runs this batch again",
                hint="this driver must end; what it says about the batch does not count",
            )
        kept = dict(said.verdicts) if said.epoch == epoch else {}
        kept.update(new)
        kept = {number: verdict for number, verdict in kept.items() if verdict != PLAIN}
        if not kept and not version:
            return
        if _put(store, tenant, page, Said(epoch, kept, epoch), version):
            return
    raise _restless(page)


def fence(store: ArrowStore, tenant: str, page: str, epoch: int) -> None:
    """From now on, only drivers of this epoch can say something. What was said before stays, for Spark may have
    committed the batch."""
    for _ in range(_TRIES):
        said, version = _read(store, tenant, page)
        if said.fence >= epoch or _put(store, tenant, page, Said(said.epoch, said.verdicts, epoch), version):
            return
    raise _restless(page)


def forget_earlier(store: ArrowStore, tenant: str, page: str, epoch: int) -> None:
    """The batch is run again in another epoch: what was said about it does not count."""
    for _ in range(_TRIES):
        said, version = _read(store, tenant, page)
        if not version or said.epoch == epoch or _put(store, tenant, page, Said(epoch, {}, epoch), version):
            return
    raise _restless(page)


def _put(store: ArrowStore, tenant: str, page: str, said: Said, version: int) -> bool:
    """False: somebody else has written meanwhile."""
    try:
        store.run([PutDocument(OUTCOMES, tenant, page, msgspec.msgpack.encode(said), version)])
    except VersionConflict:
        return False
    return True


def _restless(page: str) -> VersionConflict:
    return VersionConflict(f"the outcomes of {page} change all the time", hint="call settle from one place")


def ending(queue: str, receipt: str, id: str, verdict: Verdict, settings: Settings) -> SettleItem:
    """How a verdict ends a lease, by the settings of its queue."""
    if verdict.verb == "ack":
        return SettleItem("ack", queue, receipt, verdict.result, settings.result_ttl_us, id=id)
    if verdict.verb == "reject":
        return SettleItem("reject", queue, receipt, reason=verdict.reason, error=verdict.error, id=id)
    if verdict.delay_us is not None:
        return SettleItem("nack", queue, receipt, error=verdict.error, delay_us=verdict.delay_us, id=id)
    spread = settings.backoff.spread(CHANCE.random())
    return SettleItem("nack", queue, receipt, error=verdict.error, delays=settings.delays, spread=spread, id=id)


def _read(store: ArrowStore, tenant: str, page: str) -> tuple[Said, int]:
    found = store.document(OUTCOMES, tenant, page)
    if found is None:
        return Said(0, {}), 0
    return _to_said(found.value), found.version
