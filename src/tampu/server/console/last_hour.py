"""What the journal says of the last hour, by minute and queue: rates, depth, and how long messages wait and run.

It is read when a page asks, from where it was read before, so a console that nobody looks at costs nothing. At most a
million transitions are read back, and a page waits no longer than `_PATIENCE` for them; then it says so.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from tampu.engines.port import Engine
from tampu.model.journal import Position, Transition
from tampu.model.states import LIVE, State
from tampu.model.times import SECOND

MINUTES = 60
_MINUTE = 60 * SECOND
_PAGE = 10_000
_MOST = 1_000_000
"""Transitions that are read back."""
_FEW_PARTITIONS = 8
_PATIENCE = 0.4
_MOST_KNOWN = 50_000
"""Messages whose beginnings are remembered. With more, only a part of all messages is timed."""
_STEP = 1.1
_SHORTEST = 0.001
_FAILED = frozenset({"nack", "reject", "reap"})
_BIRTHS = frozenset({"publish", "adopt", "replay"})


class Times:
    """How often something took how long, in steps of 10 %."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        step = _step(seconds)
        self.counts[step] = self.counts.get(step, 0) + 1

    def merge(self, other: Times) -> None:
        for step, count in list(other.counts.items()):  # another thread may be adding to them
            self.counts[step] = self.counts.get(step, 0) + count

    def quantile(self, q: float) -> float | None:
        total = sum(self.counts.values())
        left = q * total
        for step in sorted(self.counts):
            left -= self.counts[step]
            if left <= 0:
                return float(_SHORTEST * _STEP**step)
        return None


def _step(seconds: float) -> int:
    return 0 if seconds <= _SHORTEST else math.ceil(math.log(seconds / _SHORTEST, _STEP))


class Minute(msgspec.Struct):
    """One minute of a queue."""

    published: int = 0
    done: int = 0
    failed: int = 0
    """Failed attempts."""
    dead: int = 0
    grown: int = 0
    """How many more messages wait or run at its end than at its beginning."""
    waits: Times = msgspec.field(default_factory=Times)
    runs: Times = msgspec.field(default_factory=Times)


class Hour(msgspec.Struct, frozen=True):
    """The last hour of some queues: each list has a value for each minute, the last is the running one."""

    at: list[int]
    """When each minute began, in seconds."""
    published: list[int]
    done: list[int]
    failed: list[int]
    dead: list[int]
    depth: list[int]
    waits: list[list[float | None]]
    """Median and 95th percentile."""
    runs: list[list[float | None]]
    reading: bool
    """True: the journal is still being read, so the numbers are too small."""
    since: int
    """The first second of what was read; later than an hour ago if there were too many transitions."""

    @property
    def quiet(self) -> bool:
        return not any((*self.published, *self.done, *self.failed, *self.depth))


class LastHour:
    """For all tenants of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._position: Position | None = None
        self._minutes: dict[tuple[str, str], dict[int, Minute]] = {}
        self._ready: dict[str, int] = {}
        self._leased: dict[str, int] = {}
        self._mask = 0
        self._since = 0
        self.caught_up = False

    def read(self) -> None:
        """Read on, for a short time."""
        if not self._lock.acquire(blocking=False):
            return  # somebody else does
        try:
            self._read_on(time.monotonic() + _PATIENCE)
        finally:
            self._lock.release()

    def _read_on(self, until: float) -> None:
        now = self._engine.now()
        latest = self._engine.journal(None, 1, None).latest
        if self._position is None or _behind(self._position, latest) > _MOST:
            self._begin(latest, now)
        assert self._position is not None
        self.caught_up = False
        while True:
            page = self._engine.journal(self._position or None, _PAGE, None)
            for transition in page.transitions:
                self._count(transition)
            moved = page.position != self._position
            self._position = page.position
            if not page.transitions or not moved:
                self.caught_up = True
                break
            if time.monotonic() >= until:
                break
        self._forget(now)

    def _begin(self, latest: Position, now: int) -> None:
        since = now - MINUTES * _MINUTE
        self._minutes.clear()
        self._ready.clear()
        self._leased.clear()
        self._mask, self._since = 0, since
        if len(latest) <= _FEW_PARTITIONS:
            self._position = {p: self._offset_at(latest, p, since) for p in latest}
        else:
            self._position = {p: max(0, offset - _MOST // len(latest)) for p, offset in latest.items()}

    def _offset_at(self, latest: Position, partition: str, since: int) -> int:
        """The last offset before this time, by binary search."""
        high = latest[partition]
        low = bound = max(0, high - _MOST)
        while low < high:
            middle = (low + high) // 2
            page = self._engine.journal({**latest, partition: middle}, 1, None)
            first = next(iter(page.transitions), None)
            if first is None or first.at_us >= since:
                high = middle
            else:
                low = first.offset
        if low == bound and low > 0:
            page = self._engine.journal({**latest, partition: low}, 1, None)
            self._since = max([self._since, *(t.at_us for t in page.transitions)])
        return low

    def _count(self, t: Transition) -> None:
        begin = t.at_us - t.at_us % _MINUTE
        queue = self._minutes.setdefault((t.tenant, t.queue), {})
        minute = queue.get(begin)
        if minute is None:
            minute = queue[begin] = Minute()
        verb = t.verb
        born, live = verb in _BIRTHS, t.state in LIVE
        minute.published += born and verb != "replay"
        minute.dead += t.state is State.DEAD
        minute.done += t.state is State.DONE and not born
        if born and live:
            minute.grown += 1
        elif not born and not live and t.state is not None:
            minute.grown -= 1
        if verb in _FAILED:
            minute.failed += 1
        if not hash(t.id) & self._mask:
            self._time(t, minute)

    def _time(self, t: Transition, minute: Minute) -> None:
        if t.verb != "extend":
            began = self._leased.pop(t.id, None)
            if began is not None and t.verb != "ask_cancel":
                minute.runs.add(max(0, t.at_us - began) / SECOND)
            elif began is not None:
                self._leased[t.id] = began
        if t.state is State.READY:
            self._ready.setdefault(t.id, t.at_us)
        elif t.verb == "claim":
            came = self._ready.pop(t.id, None)
            if came is not None:
                minute.waits.add(max(0, t.at_us - came) / SECOND)
            self._leased[t.id] = t.at_us
        else:
            self._ready.pop(t.id, None)
        if len(self._ready) + len(self._leased) > _MOST_KNOWN:
            self._mask = self._mask << 1 | 1
            for known in (self._ready, self._leased):
                for id in [id for id in known if hash(id) & self._mask]:
                    del known[id]

    def _forget(self, now: int) -> None:
        oldest = now - now % _MINUTE - MINUTES * _MINUTE
        for name in list(self._minutes):
            minutes = self._minutes[name]
            for begin in [begin for begin in minutes if begin < oldest]:
                del minutes[begin]
            if not minutes:
                del self._minutes[name]

    def queues(self, tenant: str) -> list[str]:
        return [queue for owner, queue in list(self._minutes) if owner == tenant]

    def hour(self, tenant: str, depths: dict[str, int]) -> Hour:
        """The last hour of these queues, whose depth is now as given, together."""
        now = self._engine.now()
        last = now - now % _MINUTE
        begins = [last - n * _MINUTE for n in range(MINUTES - 1, -1, -1)]
        found = [self._minutes.get((tenant, queue), {}) for queue in depths]
        grown = self._sums(found, begins, lambda minute: minute.grown)
        depth = sum(depths.values())
        back: list[int] = []
        for each in reversed(grown):
            back.append(max(0, depth))
            depth -= each
        return Hour(
            [begin // SECOND for begin in begins],
            self._sums(found, begins, lambda minute: minute.published),
            self._sums(found, begins, lambda minute: minute.done),
            self._sums(found, begins, lambda minute: minute.failed),
            self._sums(found, begins, lambda minute: minute.dead),
            back[::-1],
            _quantiles(_merged(found, begins, lambda minute: minute.waits)),
            _quantiles(_merged(found, begins, lambda minute: minute.runs)),
            not self.caught_up,
            self._since // SECOND,
        )

    @staticmethod
    def _sums(found: Iterable[dict[int, Minute]], begins: list[int], value: Callable[[Minute], int]) -> list[int]:
        return [sum(value(minutes[begin]) for minutes in found if begin in minutes) for begin in begins]


def _merged(found: list[dict[int, Minute]], begins: list[int], value: Callable[[Minute], Times]) -> Iterator[Times]:
    for begin in begins:
        times = Times()
        for minutes in found:
            if begin in minutes:
                times.merge(value(minutes[begin]))
        yield times


def _quantiles(each: Iterator[Times]) -> list[list[float | None]]:
    times = list(each)
    return [[one.quantile(q) for one in times] for q in (0.5, 0.95)]


def _behind(position: Position, latest: Position) -> int:
    return sum(max(0, offset - position.get(p, 0)) for p, offset in latest.items())
