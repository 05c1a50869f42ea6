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
_WIDTH = DAY_MINUTES + 1
"""Minutes of a day, and the one after it, in which everything has left."""


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
        self.place, self.since = _oldest(queue, since, first, out)
        self.depth = _depth(self.place, queue, first, out)


def _depth(place: Codes, queue: Codes, first: Codes, out: Codes) -> Codes:
    """How many lasted over the end of each of these minutes: who came by then, without who had left by then. The
    queues before add as many of both."""
    came, left = (np.sort(queue * _WIDTH + minute) for minute in (first, out))
    until = place // DAY_MINUTES * _WIDTH + place % DAY_MINUTES
    return np.searchsorted(came, until, "right") - np.searchsorted(left, until, "right")


def _oldest(queue: Codes, since: Codes, first: Codes, out: Codes) -> tuple[Codes, Codes]:
    """The minutes of queues at whose end something was ready, and since when the oldest of it was.

    A stay is never the oldest while an older one lasts at least as long. The others follow one another: each is the
    oldest from when the one before it left (or it came itself) until it leaves.
    """
    if not len(queue):
        return queue, since
    order = np.lexsort((-out, since, queue))
    queue, since, first, out = queue[order], since[order], first[order], out[order]
    # The queues lie far apart on one line, so that what lasted in one is over before the next begins.
    lasting = np.concatenate(([0], np.maximum.accumulate(queue * _LATE + out)[:-1]))
    begin = np.maximum(first, lasting - queue * _LATE)
    oldest = np.flatnonzero(begin < out)
    length = (out - begin)[oldest]
    minutes = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length) + np.repeat(begin[oldest], length)
    return np.repeat(queue[oldest], length) * DAY_MINUTES + minutes, np.repeat(since[oldest], length)


def queue_minutes(own: Mapping[str, object], events: Events, attempts: Attempts, ready: Ready) -> pa.Table:
    day = own["day"]
    assert isinstance(day, date)
    names = sorted({*events.queues.all, *ready.queues.all} - {None}, key=str)
    worked, stood = _renamed(names, events.queues, events.place), _renamed(names, ready.queues, ready.place)
    place = np.union1d(worked, stood)
    queue, minute = place // DAY_MINUTES, place % DAY_MINUTES

    def spread(own: Codes, values: Codes, missing: int = 0) -> Codes:
        found = np.full(len(place), missing, np.int64)
        found[np.searchsorted(place, own)] = values
        return found

    counts = {name: spread(worked, events.of(name)) for name in COUNTS}
    ended = counts["done"] + counts["dead"] + counts["cancelled"] + counts["expired"]
    oldest = spread(stood, ready.since, -1)
    at = (first_minute(day) + minute) * MINUTE
    # Deliveries end with an event, so each falls on one of the rows.
    row = np.searchsorted(place, _renamed(names, attempts.queues, attempts.queue * DAY_MINUTES + attempts.minute))
    return rows(
        BY_NAME["gold.queue_minutes"].schema,
        len(place),
        {
            **own,
            **counts,
            "queue": pa.array(names, pa.string()).take(pa.array(queue)),
            "minute": at,
            "in_rate": counts["published"] / 60.0,
            "out_rate": ended / 60.0,
            **named_percentiles("wait", row, len(place), attempts.wait),
            **named_percentiles("run", row, len(place), attempts.run),
            "depth": spread(stood, ready.depth),
            "oldest": nullable(np.where(oldest >= 0, (at + MINUTE - oldest) / 1e6, np.nan)),
        },
    )


def _ranks(names: list[str | None], known: Names) -> Codes:
    """Where each known name is in the list."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places.get(name, 0) for name in known.all], np.int64)


def _renamed(names: list[str | None], known: Names, place: Codes) -> Codes:
    """The same minutes, with the queues' numbers in the list."""
    if not len(known):
        return place
    return _ranks(names, known)[place // DAY_MINUTES] * DAY_MINUTES + place % DAY_MINUTES
