"""What the dashboard reads from the journal: the timeline of one message, and recent failures."""

from __future__ import annotations

from tampu.engines.port import Engine
from tampu.model.journal import Position, Transition
from tampu.model.message import Message
from tampu.server.events import positions

_PAGE = 5_000
_MAX_PAGES = 10
_RECENT = 2_000
"""How many of the last transitions are searched for failures."""
_FAILED = frozenset({"nack", "reject", "reap"})


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
