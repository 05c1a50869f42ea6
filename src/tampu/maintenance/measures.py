"""The measures of alerts, from the counts of queues that engines keep anyway, and from samples of them.

A sample is taken at each evaluation. Evaluations are left out while nothing changes, so a sample holds until the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tampu.broker import journal_readers
from tampu.broker.core import Core
from tampu.broker.journal_cursor import end_of_journal
from tampu.broker.journal_readers import FOLLOWER
from tampu.broker.policies.rules.step import micros
from tampu.engines.port import QueueStats
from tampu.maintenance.history import History, Sample, Still
from tampu.model.definitions import Alert
from tampu.model.journal import Position
from tampu.model.message import State
from tampu.model.times import SECOND

_MOST_SAMPLES = 240
"""Of one queue; of more, every other one is dropped."""
LEAST_ATTEMPTS = 20
"""A share of fewer attempts says nothing."""
Counts = Mapping[tuple[str, str], tuple[int, int]]
"""Good and bad attempts by tenant and queue."""
Values = dict[str, float | None]
"""By queue or follower; None: not known yet."""


class Measures:
    """Of one tenant. What an earlier leader has stored is continued."""

    def __init__(self, core: Core, tenant: str, before: History | None, counted: Counts) -> None:
        self._core = core
        self._tenant = tenant
        self._began: int | None = None
        self._last = 0
        self._samples: dict[str, list[Sample]] = {}
        self._moved: dict[str, tuple[Mapping[str, int], int]] = {}
        """The counts of a queue with leased messages, and since when they are the same."""
        self._rows: Sequence[QueueStats] = ()
        self._now = 0
        if before is not None:
            self._continue(before, counted)

    def _continue(self, before: History, counted: Counts) -> None:
        """Each process counts attempts from 0: earlier counts are moved to where this one began to lead."""
        self._began, self._last = before.began, before.last
        for queue, samples in before.samples.items():
            good, bad = counted.get((self._tenant, queue), (0, 0))
            end = samples[-1]
            self._samples[queue] = [
                Sample(one.at, one.dead, one.good - end.good + good, one.bad - end.bad + bad) for one in samples
            ]
        self._moved = {queue: (still.counts, still.since) for queue, still in before.still.items()}

    def history(self, pending: Mapping[str, dict[str, int]]) -> History:
        """What the next leader has to know."""
        still = {queue: Still(dict(counts), since) for queue, (counts, since) in self._moved.items()}
        return History(self._began or 0, self._last, self._samples, still, dict(pending))

    def take(self, rows: Sequence[QueueStats], now: int) -> None:
        """Take a sample of all queues that have something to tell."""
        first = self._began is None
        self._began = now if self._began is None else self._began
        self._rows, self._now = rows, now
        attempts = self._core.attempts
        for row in rows:
            dead, (good, bad) = row.counts.get(State.DEAD, 0), attempts.get((self._tenant, row.queue), (0, 0))
            samples = self._samples.get(row.queue)
            if samples is None:
                if not (dead or good or bad):
                    continue
                begin = Sample(now, dead, 0, 0) if first else Sample(self._last, 0, 0, 0)
                samples = self._samples[row.queue] = [begin]
            samples.append(Sample(now, dead, good, bad))
            if len(samples) > _MOST_SAMPLES:
                del samples[1:-1:2]
        self._last = now
        self._note_moves()

    def _note_moves(self) -> None:
        found: dict[str, tuple[Mapping[str, int], int]] = {}
        for row in self._rows:
            if row.counts.get(State.LEASED, 0):
                before = self._moved.get(row.queue)
                counts = {str(state): count for state, count in row.counts.items()}
                same = before is not None and before[0] == counts
                found[row.queue] = (counts, before[1] if before is not None and same else self._now)
        self._moved = found

    def of(self, alert: Alert, lags: Mapping[str, float]) -> Values:
        """The measure of an alert, for each queue that it is about, or each follower."""
        if alert.measure == "lag":
            return dict(lags)
        return {row.queue: self._value(alert, row) for row in self._rows if alert.applies_to(row.queue)}

    def _value(self, alert: Alert, row: QueueStats) -> float | None:
        if alert.measure == "oldest":
            return 0.0 if row.oldest_ready_us is None else max(0, row.now_us - row.oldest_ready_us) / SECOND
        if alert.measure == "stuck":
            moved = self._moved.get(row.queue)
            return 0.0 if moved is None else (self._now - moved[1]) / SECOND
        samples = self._samples.get(row.queue)
        if samples is None:
            return 0.0
        start = self._now - micros(alert.within, "within")
        known = self._began is not None and self._began <= start
        before = [sample for sample in samples if sample.at <= start][-1:]
        samples = before + [sample for sample in samples if sample.at > start]
        if alert.measure == "dead":
            growth = samples[-1].dead - min(sample.dead for sample in samples)
            return growth if growth or known or not samples[-1].dead else None
        good, bad = samples[-1].good - samples[0].good, samples[-1].bad - samples[0].bad
        if good + bad < LEAST_ATTEMPTS:
            return 0.0 if known else None
        return bad / (good + bad)


class Lags:
    """For how long followers are behind without moving."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._since: dict[str, tuple[Position, int]] = {}
        """Where a follower is that is behind, and since when."""

    def take(self, now: int) -> dict[str, float]:
        """Seconds of each follower; 0 if it is at the end of the journal, or has moved."""
        engine = self._core.engine
        known = [reader for reader in journal_readers.registered(engine) if reader.name.startswith(FOLLOWER)]
        latest = end_of_journal(engine) if known else {}
        found = {}
        for reader in known:
            position, since = self._since.get(reader.name, (None, now))
            same = position == reader.position and journal_readers.behind(reader, latest) > 0
            found[reader.name] = (reader.position, since if same else now)
        self._since = found
        return {name: (now - since) / SECOND for name, (_, since) in found.items()}
