"""What gold keeps of bronze and silver while it reads them: counts of events, numbers of deliveries and of ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake.grouping import MINUTE, Codes, Flags, Floats, Names, Tally, floats, numbers
from tampu.lake.tables import BY_NAME
from tampu.lake.verbs import FAILS, MOVES, STANDS

DAY_MINUTES = 1440
COUNTS = ("published", "claimed", "done", "failed", "dead", "cancelled", "expired", "released", "replayed")
_VERBS = {"published": ("publish",), "claimed": ("claim",), "failed": tuple(sorted(FAILS)), "released": ("release",),
          "replayed": ("replay",)}  # fmt: skip
_FAILURE = ("queue", "id", "verb", "state", "at", "partition", "offset", "detail", "fingerprint")


def first_minute(day: date) -> int:
    """The number of the minute since 1970."""
    return (day - date(1970, 1, 1)).days * DAY_MINUTES


def minute_of(micros: Codes, day: date) -> Codes:
    """Minutes since the day began."""
    return micros // MINUTE - first_minute(day)


class Events:
    """Counts by queue and minute, and the events that were failures."""

    def __init__(self, day: date, batches: Iterable[pa.RecordBatch]) -> None:
        self.queues = Names()
        self._counts = Tally(COUNTS)
        failures = []
        known = pa.array(sorted(MOVES | STANDS))
        for batch in batches:
            some = batch.filter(pc.is_in(batch.column("verb"), known))
            if some.num_rows:
                self._count(day, some)
                failures.append(some.filter(pc.is_in(some.column("verb"), pa.array(sorted(FAILS)))).select(_FAILURE))
        schema = BY_NAME["bronze.events"].schema
        self.failures = pa.Table.from_batches(failures, pa.schema([schema.field(name) for name in _FAILURE]))

    def _count(self, day: date, batch: pa.RecordBatch) -> None:
        queue = self.queues.codes(batch.column("queue"))
        place = queue * DAY_MINUTES + minute_of(numbers(batch.column("at")), day)
        verbs, states = Names(), Names()
        verb, state = verbs.codes(batch.column("verb")), states.codes(batch.column("state"))
        here = ~verbs.among(verb, ("adopt",))  # what ended, ended elsewhere
        self._counts.add(
            place,
            {
                name: verbs.among(verb, _VERBS[name]) if name in _VERBS else here & states.among(state, (name,))
                for name in COUNTS
            },
        )

    @property
    def place(self) -> Codes:
        """The minutes of queues in which something happened: the queue's number times the minutes of a day, and the
        minute."""
        return self._counts.place

    def of(self, name: str) -> Codes:
        """A count, for each of those."""
        return self._counts.of(name)


class Attempts:
    """Deliveries, as numbers."""

    def __init__(self, day: date, batches: Iterable[pa.RecordBatch]) -> None:
        self.queues, self.types, self.workers = Names(), Names(), Names()
        self._outcomes, self._looks = Names(), Names()
        codes = {"queue": self.queues, "type": self.types, "worker": self.workers, "outcome": self._outcomes,
                 "fingerprint": self._looks}  # fmt: skip
        kept: dict[str, list[np.ndarray]] = {name: [] for name in (*codes, "wait", "run", "claimed_at", "ended_at")}
        for batch in batches:
            for name, known in codes.items():
                kept[name].append(known.codes(batch.column(name)).astype(np.int32))
            for name in ("wait", "run"):
                kept[name].append(floats(batch.column(name)))
            for name in ("claimed_at", "ended_at"):
                kept[name].append(numbers(batch.column(name)))

        def joined(name: str, kind: type) -> np.ndarray:
            found = np.concatenate(kept.pop(name)) if kept[name] else np.zeros(0)
            return found.astype(kind, copy=False)

        self.queue: Codes = joined("queue", np.int64)
        self.type: Codes = joined("type", np.int64)
        self.worker: Codes = joined("worker", np.int64)
        self.look: Codes = joined("fingerprint", np.int64)
        self._outcome: Codes = joined("outcome", np.int64)
        self.wait: Floats = joined("wait", np.float64)
        self.run: Floats = joined("run", np.float64)
        self.run_micros: Codes = np.rint(self.run * 1e6).astype(np.int64)
        """As whole numbers, whose sum is the same in any order."""
        self.claimed: Codes = joined("claimed_at", np.int64)
        self.ended: Codes = joined("ended_at", np.int64)
        self.minute: Codes = minute_of(self.ended, day)

    def __len__(self) -> int:
        return len(self.queue)

    def outcome(self, *wanted: str) -> Flags:
        return self._outcomes.among(self._outcome, wanted)

    def failed_types(self) -> dict[tuple[str | None, str | None], set[str]]:
        """By queue and look (or how it ended): the types of messages that failed so."""
        failed = self.outcome(*FAILS)
        found: dict[tuple[str | None, str | None], set[str]] = {}
        keys = np.unique(
            np.stack([self.queue[failed], self.look[failed], self._outcome[failed], self.type[failed]]), axis=1
        )
        for queue, look, outcome, kind in keys.T.tolist():
            alike = self._looks.all[look] if self._looks.all[look] is not None else self._outcomes.all[outcome]
            named = self.types.all[kind]
            if named is not None:
                found.setdefault((self.queues.all[queue], alike), set()).add(named)
        return found


class Ended:
    """Messages that ended, by queue, type and state, and how soon; not those that had ended before they came."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.payload_bytes = self.result_bytes = 0
        self._queues, self._types, self._states = Names(), Names(), Names()
        empty = np.zeros(0, np.int64)
        queues, types, states, totals = [empty], [empty], [empty], [np.zeros(0)]
        for given in batches:
            batch = given.filter(pc.is_valid(given.column("deliveries")))
            self.payload_bytes += pc.sum(batch.column("payload_bytes")).as_py() or 0
            self.result_bytes += pc.sum(batch.column("result_bytes")).as_py() or 0
            queues.append(self._queues.codes(batch.column("queue")))
            types.append(self._types.codes(batch.column("type")))
            states.append(self._states.codes(batch.column("state")))
            totals.append(floats(batch.column("total")))
        self._queue, self._type, self._state = (np.concatenate(one) for one in (queues, types, states))
        self._total: Floats = np.concatenate(totals)
        place = self._queue * max(len(self._states), 1) + self._state
        self._order = np.argsort(place, kind="stable")
        self._place = place[self._order]

    @property
    def queues(self) -> list[str]:
        return sorted(name for name in self._queues.all if name is not None)

    def dead(self) -> dict[tuple[str | None, str | None], int]:
        """By queue and type."""
        died = self._states.among(self._state, ("dead",))
        keys, counts = np.unique(np.stack([self._queue[died], self._type[died]]), axis=1, return_counts=True)
        return {
            (self._queues.all[queue], self._types.all[kind]): count
            for (queue, kind), count in zip(keys.T.tolist(), counts.tolist(), strict=True)
        }

    def totals(self, queue: str, state: str) -> Floats:
        """Seconds from publish to end."""
        own, its = self._queues.number(queue), self._states.number(state)
        if own is None or its is None:
            return np.zeros(0)
        place = own * len(self._states) + its
        start, end = np.searchsorted(self._place, [place, place + 1])
        return self._total[self._order[start:end]]
