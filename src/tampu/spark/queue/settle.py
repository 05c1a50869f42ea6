"""``tampu.spark.settle``: report, inside ``foreachBatch``, the outcome of each message of a batch.

It only records the outcomes. The messages are settled after Spark has committed the batch, so a batch that fails after
this call is delivered again with all its messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from tampu.broker import validate
from tampu.broker.settings import Settings
from tampu.model.errors import InvalidConfig, InvalidMessage
from tampu.model.times import duration
from tampu.spark.queue.delivery_log import MOST, Fenced, in_flight, of_delivery, read_head, settings_of
from tampu.spark.queue.outcomes import PLAIN, Verdict, record
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = "tampu"
"""Metadata of the column ``receipt``: the consumer, queue, tenant and url of its stream."""
_OUTCOME_COLUMNS = ("error", "reject", "result", "delay")
_WORSE = {"ack": 0, "nack": 1, "reject": 2}
_BYTES = 64 << 20


class Settled(msgspec.Struct, frozen=True):
    """Number of messages by outcome, once the batch is committed."""

    acked: int
    nacked: int
    rejected: int
    unknown: int
    """Rows that are not a delivery in flight of this consumer: settled before, or not from this stream."""


def settle(
    batch: DataFrame,
    *,
    url: str | None = None,
    queue: str | None = None,
    consumer: str | None = None,
    tenant: str | None = None,
) -> Settled:
    """Report the outcomes of the messages of ``batch``, a DataFrame with the columns ``delivery`` and ``receipt``.

    A row with an ``error`` is retried with the queue's backoff (after ``delay`` seconds, if given). A row with a
    ``reject`` is dead for that reason. Any other is done, with its ``result``. Messages that are not in ``batch`` are
    done too. The metadata of the column ``receipt`` names the stream; pass ``url`` and so on if it was lost.
    """
    names = [name for name in ("delivery", "receipt", *_OUTCOME_COLUMNS) if name in batch.columns]
    if "delivery" not in names or "receipt" not in names:
        raise InvalidMessage(
            "the columns delivery and receipt are needed", field="batch", hint="keep them when you transform the batch"
        )
    place = batch.schema["receipt"].metadata.get(PLACE, {})
    given = {"url": url, "queue": queue, "consumer": consumer, "tenant": tenant}
    place = {"tenant": "default"} | place | {name: value for name, value in given.items() if value is not None}
    for name in given:
        if not place.get(name):
            raise InvalidConfig(
                f"the column receipt does not name its {name}", field=name, hint=f"settle(batch, {name}=…)"
            )
    rows = batch.select(*names).limit(2 * MOST + 1).toArrow().to_pylist(maps_as_pydicts="lossy")
    if len(rows) > 2 * MOST:
        raise InvalidMessage(f"more than {2 * MOST} rows", field="batch", hint="one row per message of the batch")
    with open_store(place["url"]) as store:
        return write_down(store, place["tenant"], place["queue"], place["consumer"], rows)


def write_down(store: ArrowStore, tenant: str, queue: str, consumer: str, rows: Iterable[dict[str, Any]]) -> Settled:
    """`settle` for rows as dictionaries."""
    settings = settings_of(store, tenant, queue)
    outcomes: dict[tuple[int, str], Verdict] = {}
    epochs: set[int] = set()
    size = 0
    for row in rows:
        if row["receipt"] is None or row["delivery"] is None:
            raise InvalidMessage(
                "a row has no delivery or receipt",
                field="receipt",
                hint="settle only rows of the stream; an outer join adds others",
            )
        verdict = _verdict(row, settings)
        size += len(verdict.error or "") + len(verdict.result or b"")
        if size > _BYTES:
            raise InvalidMessage(
                f"errors and results of the batch are over {_BYTES >> 20} MiB together",
                field="result",
                hint="store results elsewhere, or lower maxOffsetsPerTrigger",
            )
        receipt, epoch = of_delivery(row["receipt"])
        if epoch is not None:
            epochs.add(epoch)
        key = (row["delivery"], receipt)
        if _WORSE[verdict.verb] >= _WORSE[outcomes.get(key, PLAIN).verb]:
            outcomes[key] = verdict
    counts = dict.fromkeys(_WORSE, 0)
    head, _ = read_head(store, tenant, queue, consumer)
    if head is not None and epochs - {head.epoch}:
        raise Fenced(
            f"the batch was delivered to an earlier owner of consumer {consumer}: another driver has taken it over",
            hint="stop this driver; its outcomes for the batch are ignored",
        )
    for page, found in in_flight(store, tenant, head) if head is not None else ():
        new = {}
        for key in enumerate(found.receipts, start=page.first):
            if key in outcomes:
                new[key[0]] = verdict = outcomes.pop(key)
                counts[verdict.verb] += 1
        record(store, tenant, page.name, head.epoch if head else 0, new)
    return Settled(counts["ack"], counts["nack"], counts["reject"], len(outcomes))


def _verdict(row: dict[str, Any], settings: Settings) -> Verdict:
    reason, error, delay = row.get("reject"), row.get("error"), row.get("delay")
    text = None if error is None else validate.error_text(error)[0]
    if reason is not None:
        return Verdict("reject", text, validate.text(reason, "reject", 128))
    if error is not None:
        return Verdict("nack", text, delay_us=None if delay is None else duration(delay, "delay"))
    return Verdict(result=validate.result(row.get("result"), settings.max_payload))
