"""What a batch said about its messages, kept beside the delivery log until Spark has committed the batch.

A document per page of the log holds only what is not a plain ack. It belongs to one epoch of the consumer: what an
earlier driver said about a batch that is run again does not count.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from tampu.broker.settings import Settings
from tampu.engines.port import DeleteDocument, Ending, PutDocument
from tampu.model.errors import VersionConflict
from tampu.spark.stores.port import Store

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
    verdicts: dict[int, Verdict]


def verdicts(store: Store, tenant: str, page: str) -> dict[int, Verdict]:
    """By number of the delivery; those that are not here are acked."""
    return _read(store, tenant, page)[0].verdicts


def record(store: Store, tenant: str, page: str, epoch: int, new: Mapping[int, Verdict]) -> None:
    """Keep what is said now. In one epoch it is added to what was said before; the last word about a row counts."""
    for _ in range(_TRIES):
        said, version = _read(store, tenant, page)
        kept = dict(said.verdicts) if said.epoch == epoch else {}
        kept.update(new)
        kept = {number: verdict for number, verdict in kept.items() if verdict != PLAIN}
        if not kept and not version:
            return
        value = msgspec.msgpack.encode(Said(epoch, kept))
        try:
            store.run([PutDocument(OUTCOMES, tenant, page, value, version)])
        except VersionConflict:
            continue
        return
    raise VersionConflict(f"the outcomes of {page} change all the time", hint="call settle from one place")


def forget_earlier(store: Store, tenant: str, page: str, epoch: int) -> None:
    """The batch is run again in another epoch: what was said about it does not count."""
    said, version = _read(store, tenant, page)
    if version and said.epoch != epoch:
        store.run([DeleteDocument(OUTCOMES, tenant, page)])


def ending(queue: str, receipt: str, id: str, verdict: Verdict, settings: Settings) -> Ending:
    """How a verdict ends a lease, by the settings of its queue."""
    if verdict.verb == "ack":
        return Ending("ack", queue, receipt, verdict.result, settings.result_ttl_us, id=id)
    if verdict.verb == "reject":
        return Ending("reject", queue, receipt, reason=verdict.reason, error=verdict.error, id=id)
    if verdict.delay_us is not None:
        return Ending("nack", queue, receipt, error=verdict.error, delay_us=verdict.delay_us, id=id)
    spread = settings.backoff.spread(random.random())
    return Ending("nack", queue, receipt, error=verdict.error, delays=settings.delays, spread=spread, id=id)


def _read(store: Store, tenant: str, page: str) -> tuple[Said, int]:
    found = store.document(OUTCOMES, tenant, page)
    if found is None:
        return Said(0, {}), 0
    return msgspec.msgpack.decode(found.value, type=Said), found.version
