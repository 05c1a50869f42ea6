"""gold.queue_minutes: what a queue did in a minute, and how much was ready at its end, since when.

Depth and age come from stays in ready. Spelling out every minute that every message waited would multiply a backlog by
the hours it stood; instead depth is a running sum of what came and left, and of all stays only those are spelt out that
were the oldest at some minute: at most one per minute and queue, whatever the backlog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake.gold_read import COUNTS, DAY_MINUTES, Attempts, Events, first_minute, minute_of
from tampu.lake.grouping import MINUTE, Codes, Names, named_percentiles, nullable, numbers, rows
from tampu.lake.tables import BY_NAME

_LATE = 1 << 40
"""More minutes than there are."""


class Ready:
    """How many were ready at the end of each minute of the day, and since when the oldest of them, by queue."""

    def __init__(
        self, day: date, stays: Iterable[pa.RecordBatch], waiting: Iterable[pa.RecordBatch], until: datetime
    ) -> None:
        self.queues = Names()
        parts: list[tuple[Codes, Codes, Codes]] = []
        end = int(until.timestamp() // 60) + 1 - first_minute(day)
        midnight = pa.scalar((first_minute(day) + DAY_MINUTES) * MINUTE, pa.int64())
        for closed, batches in ((True, stays), (False, waiting)):
            for batch in batches:
                some = batch.filter(pc.less(batch.column("ready_at").cast(pa.int64()), midnight))
                since = numbers(some.column("ready_at"))
                out = minute_of(numbers(some.column("left_at")), day) if closed else np.full(len(since), end)
                # Ready at the ends of the minutes `first` to `out` - 1 of this day.
                lasted = (minute_of(since, day) < out) & (out > 0)
                queue = self.queues.codes(some.column("queue"))
                parts.append((queue[lasted], since[lasted], np.minimum(out[lasted], DAY_MINUTES)))
        empty = np.zeros(0, np.int64)
        queue, since, out = (np.concatenate([part[n] for part in parts] or [empty]) for n in range(3))
        first = np.maximum(minute_of(since, day), 0)
        self.depth = np.zeros((len(self.queues), DAY_MINUTES + 1), np.int64)
        np.add.at(self.depth, (queue, first), 1)
        np.add.at(self.depth, (queue, out), -1)
        self.depth = np.cumsum(self.depth, axis=1)[:, :DAY_MINUTES]
        self.since = _oldest(len(self.queues), queue, since, first, out)


def _oldest(queues: int, queue: Codes, since: Codes, first: Codes, out: Codes) -> Codes:
    """By queue and minute: since when the oldest was ready, or -1.

    A stay is never the oldest while an older one lasts at least as long. The others follow one another: each is the
    oldest from when the one before it left (or it came itself) until it leaves.
    """
    found = np.full((queues, DAY_MINUTES), -1, np.int64)
    if not len(queue):
        return found
    order = np.lexsort((-out, since, queue))
    queue, since, first, out = queue[order], since[order], first[order], out[order]
    # The queues lie far apart on one line, so that what lasted in one is over before the next begins.
    lasting = np.concatenate(([0], np.maximum.accumulate(queue * _LATE + out)[:-1]))
    begin = np.maximum(first, lasting - queue * _LATE)
    oldest = np.flatnonzero(begin < out)
    length = (out - begin)[oldest]
    minutes = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length) + np.repeat(begin[oldest], length)
    found[np.repeat(queue[oldest], length), minutes] = np.repeat(since[oldest], length)
    return found


def queue_minutes(own: Mapping[str, object], events: Events, attempts: Attempts, ready: Ready) -> pa.Table:
    day = own["day"]
    assert isinstance(day, date)
    names = sorted({*events.queues.all, *ready.queues.all} - {None}, key=str)
    happened = _placed(names, events.queues, events.of("happened"), 0)
    since = _placed(names, ready.queues, ready.since, -1)
    queue, minute = np.nonzero((happened > 0) | (since >= 0))

    def of(known: Names, numbers: Codes, missing: int = 0) -> Codes:
        return _placed(names, known, numbers, missing)[queue, minute]

    counts = {name: of(events.queues, events.of(name)) for name in COUNTS}
    ended = counts["done"] + counts["dead"] + counts["cancelled"] + counts["expired"]
    oldest = since[queue, minute]
    at = (first_minute(day) + minute) * MINUTE
    # Deliveries end with an event, so each falls on one of the rows.
    row_of = np.zeros((len(names), DAY_MINUTES), np.int64)
    row_of[queue, minute] = np.arange(len(queue))
    place = _ranks(names, attempts.queues)[attempts.queue] if len(attempts) else attempts.queue
    row = row_of[place, attempts.minute] if len(attempts) else place
    return rows(
        BY_NAME["gold.queue_minutes"].schema,
        len(queue),
        {
            **own,
            **counts,
            "queue": pa.array(names, pa.string()).take(pa.array(queue)),
            "minute": at,
            "in_rate": counts["published"] / 60.0,
            "out_rate": ended / 60.0,
            **named_percentiles("wait", row, len(queue), attempts.wait),
            **named_percentiles("run", row, len(queue), attempts.run),
            "depth": np.where(oldest >= 0, of(ready.queues, ready.depth), 0),
            "oldest": nullable(np.where(oldest >= 0, (at + MINUTE - oldest) / 1e6, np.nan)),
        },
    )


def _ranks(names: list[str | None], known: Names) -> Codes:
    """Where each known name is in the list."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places.get(name, 0) for name in known.all], np.int64)


def _placed(names: list[str | None], known: Names, numbers: Codes, missing: int) -> Codes:
    """The same numbers, with a row for every name of the list."""
    found = np.full((len(names), DAY_MINUTES), missing, np.int64)
    if len(known):
        found[_ranks(names, known)] = numbers
    return found
