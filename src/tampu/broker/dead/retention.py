"""Retention of dead letters: `dead_retention` and `max_dead`, in bounded steps, the oldest first.

What a registered reader of the journal has not seen stays: a follower reads the message of the transition that it gets.
"""

from __future__ import annotations

from collections.abc import Mapping

from tampu.broker import journal_readers
from tampu.engines.port import Engine, Purge
from tampu.model.config import QueueConfig
from tampu.model.journal import Position
from tampu.model.message import Message, State
from tampu.model.times import SECOND

ACTOR = "tampu"
"""Who removes them, says the journal."""
_LATE_US = 10 * SECOND
"""Readers of the journal have got what is older than this, if they have no older transition to read."""
_FIRST = 32
"""Messages that are read before their size is known."""
_PAGE_BYTES = 8 << 20
_QUEUES = 100
"""Queues that one step looks at."""
Limits = Mapping[tuple[str, str], QueueConfig]
"""The queues, as (tenant, name), that limit their dead letters, with the limits."""


def limited(config: QueueConfig) -> bool:
    return bool(config.dead_retention or config.max_dead)


class DeadRetention:
    """Goes through the queues in turn, some in each step."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last = ("", "")
        """The queue that was looked at last."""

    def purges(self, limits: Limits, readers: list[journal_readers.Reader], limit: int) -> list[Purge]:
        """The calls that remove what is too old or too much. Costs nothing if no queue has a limit."""
        if not limits:
            return []
        dead = self._dead(limits)
        names = sorted(name for name in limits if dead.get(name))
        later = [name for name in names if name > self._last]
        turn = (later + [name for name in names if name <= self._last])[:_QUEUES]
        if not turn:
            return []
        self._last = turn[-1]
        until = self._read_until(journal_readers.read_by_all(readers))
        calls = [call for name in turn for call in self._of_queue(name, limits[name], dead[name], until, limit)]
        return calls

    def _dead(self, limits: Limits) -> dict[tuple[str, str], int]:
        """How many dead letters each queue has: counts that each commit updates."""
        tenants = sorted({tenant for tenant, _ in limits})
        return {
            (tenant, row.queue): row.counts.get(State.DEAD, 0)
            for tenant in tenants
            for row in self._engine.stats(tenant, None)
        }

    def _read_until(self, read: Position | None) -> int:
        """Dead letters of this time and before have been seen by all readers."""
        now = self._engine.now()
        if read is None:
            return now
        unread = self._engine.journal(read, 1, None).transitions
        return min([now - _LATE_US, *(transition.at_us - 1 for transition in unread)])

    def _of_queue(self, name: tuple[str, str], config: QueueConfig, count: int, until: int, limit: int) -> list[Purge]:
        surplus = min(count - config.max_dead, limit) if config.max_dead else 0
        messages = self._oldest(name, max(surplus, 1))
        if not messages:
            return []
        calls = []
        if surplus > 0:
            # Up to the last of these: if one is replayed meanwhile, no newer one goes in its place.
            last = messages[-1].ended_us or 0
            calls.append(Purge(*name, State.DEAD, len(messages), ACTOR, until_us=min(until, last)))
        oldest = messages[0].ended_us or 0
        if config.dead_retention:
            ended_by = min(until, self._engine.now() - round(config.dead_retention * SECOND))
            if oldest <= ended_by:
                calls.append(Purge(*name, State.DEAD, limit, ACTOR, until_us=ended_by))
        return calls

    def _oldest(self, name: tuple[str, str], count: int) -> list[Message]:
        """At most ``count`` of the oldest dead letters, fewer if they are large."""
        page = self._engine.page(*name, State.DEAD, None, min(count, _FIRST))
        found = [] if page is None else page.messages
        if len(found) < _FIRST or count == _FIRST:
            return found
        average = sum(500 + len(message.body.payload) for message in found) // len(found)
        page = self._engine.page(*name, State.DEAD, None, max(_FIRST, min(count, _PAGE_BYTES // average)))
        return [] if page is None else page.messages
