"""What the console reads from the journal: the timeline of one message, recent failures, and the newest messages."""

from __future__ import annotations

from collections.abc import Callable

from tampu.engines.port import Engine
from tampu.model.journal import Position, Transition
from tampu.model.message import Message
from tampu.server.events import positions

_PAGE = 5_000
_MAX_PAGES = 10
_RECENT = 2_000
"""How many of the last transitions are searched for failures."""
_FAILED = frozenset({"nack", "reject", "reap"})
_STEP = 2_000
_LARGEST_STEP = 20_000
_MOST_SEARCHED = 200_000
"""Transitions that one page of messages looks at: about 0.2 s."""


def timeline(engine: Engine, message: Message) -> tuple[list[Transition], bool]:
    """(the message's transitions, whether the whole journal since its publish was searched)

    The journal is ordered by time, so the start is found by binary search. From there some pages are read.
    """
    latest = engine.journal(None, 1, message.tenant).latest
    partition = next((p for p in latest if positions.queue_of(p) == message.queue), "0")
    position = {**latest, partition: _before(engine, message, partition, latest)}
    found: list[Transition] = []
    for _ in range(_MAX_PAGES):
        page = engine.journal(position, _PAGE, message.tenant)
        found += [transition for transition in page.transitions if transition.id == message.id]
        last = page.transitions[-1].at_us if page.transitions else 0
        over = message.ended_us is not None and last > message.ended_us
        if over or page.position.get(partition, 0) >= latest.get(partition, 0):
            return found, True
        position = page.position
    return found, False


def _before(engine: Engine, message: Message, partition: str, latest: Position) -> int:
    """An offset shortly before the message's first transition."""
    low, high = 0, latest.get(partition, 0)
    while high - low > _PAGE:
        middle = (low + high) // 2
        page = engine.journal({**latest, partition: middle}, 1, message.tenant)
        first = next(iter(page.transitions), None)
        if first is None or first.at_us >= message.created_us:
            high = middle
        else:
            low = middle
    return low


def failures(engine: Engine, tenant: str, most: int) -> list[Transition]:
    """The last failed attempts, newest first."""
    latest = engine.journal(None, 1, tenant).latest
    position = {p: max(0, offset - _RECENT) for p, offset in latest.items()}
    found: list[Transition] = []
    for _ in range(_MAX_PAGES):
        page = engine.journal(position, _PAGE, tenant)
        found += [transition for transition in page.transitions if transition.verb in _FAILED]
        if not page.transitions:
            break
        position = page.position
    return found[: -most - 1 : -1]


def backwards(
    engine: Engine,
    tenant: str,
    before: Position | None,
    queue: str | None,
    wanted: Callable[[Transition], bool],
    most: int,
) -> tuple[list[Transition], Position | None]:
    """(the newest transitions before a position that are wanted, newest first; where to go on, None at the beginning)

    It looks at a bounded part of the journal, so there may be fewer than ``most``, and more further back.
    """
    latest = engine.journal(None, 1, tenant).latest
    high = {p: min(offset, latest.get(p, 0)) for p, offset in (before or latest).items()}
    high = {p: offset for p, offset in high.items() if p in latest and queue in (None, positions.queue_of(p) or queue)}
    found: list[Transition] = []
    searched, step = 0, _STEP
    while searched < _MOST_SEARCHED:
        low = {p: max(0, offset - step) for p, offset in high.items()}
        searched += step * max(1, len(high))
        step = min(2 * step, _LARGEST_STEP)
        part = _between(engine, tenant, {**latest, **low}, high)
        if not part and all(offset == 0 for offset in low.values()):
            return found, None
        for transition in reversed(part):
            if wanted(transition):
                found.append(transition)
                if len(found) == most:
                    rest = dict(low)
                    for later in part:  # go on just before what was taken
                        if (later.at_us, later.offset) < (transition.at_us, transition.offset):
                            rest[later.partition] = max(rest[later.partition], later.offset)
                    return found, rest
        high = low
        if not any(high.values()):
            return found, None
    return found, high


def _between(engine: Engine, tenant: str, low: Position, high: Position) -> list[Transition]:
    """The transitions after one position up to another, in the order of time."""
    found: list[Transition] = []
    position = low
    while True:
        page = engine.journal(position, _PAGE, tenant)
        found += [t for t in page.transitions if t.partition in high and t.offset <= high[t.partition]]
        done = all(page.position.get(p, 0) >= offset for p, offset in high.items())
        if done or page.position == position:
            return sorted(found, key=lambda t: (t.at_us, t.offset))
        position = page.position
