"""One subscriber's way through the journal: from where it was, without a gap, to what happens now.

Who is behind reads the journal by itself until it has come to where the shared tail is. Who then can not take events as
fast as they come is behind again: its share of memory is bounded, and it loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from tampu.model.errors import InvalidMessage
from tampu.model.journal import Position, Transition
from tampu.model.message import State
from tampu.server.auth import patterns
from tampu.server.auth.grants import Caller
from tampu.server.events import positions
from tampu.server.events.tail import Tail
from tampu.server.events.types import Types

_STEP = 1000
_MOST_WAITING = 10_000


class Filter:
    """What a subscriber wants to hear; nothing said is everything. Queues and types may hold ``*``."""

    def __init__(
        self, queues: Sequence[str], types: Sequence[str], verbs: Sequence[str], states: Sequence[State]
    ) -> None:
        self._queues = [patterns.asked(text, "queue") for text in queues]
        self._types = [patterns.asked(text, "type") for text in types]
        self._verbs = frozenset(verbs)
        self._states = frozenset(states)
        self._known: dict[str, bool] = {}

    def queue(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = not self._queues or any(p.matches(name) for p in self._queues)
        return known

    def __call__(self, transition: Transition) -> bool:
        """All but the type."""
        return (
            self.queue(transition.queue)
            and (not self._verbs or transition.verb in self._verbs)
            and (not self._states or transition.state in self._states)
        )

    @property
    def asks_type(self) -> bool:
        return bool(self._types)

    def type(self, name: str | None) -> bool:
        return any(pattern.matches(name or "") for pattern in self._types)


class Gap(msgspec.Struct):
    """What lay between is not in the journal any more."""

    asked: Position
    found: Position


class Feed:
    """Use `open`, then `next` again and again; `close` at the end."""

    def __init__(self, tail: Tail, caller: Caller, wanted: Filter, types: Types) -> None:
        self.caller = caller
        self.gap: Gap | None = None
        self._tail = tail
        self._wanted = wanted
        self._types = types
        self._position: Position = {}
        self._goal: Position | None = None
        """While behind: where the tail was when this began to listen to it."""
        self._waiting: deque[Transition] = deque()
        self._overflown = False
        self._came = asyncio.Event()

    async def open(self, after: Position | None) -> None:
        if after is None:
            self._position = self._ours(await self._tail.join(self._hear))
            return
        latest = (await self._tail.read({}, 1, self.caller.tenant)).latest
        self._position = {p: offset if self._skips(p) else after.get(p, 0) for p, offset in latest.items()}
        await self._check(after, latest)
        await self._fall_behind()

    async def _check(self, after: Position, latest: Position) -> None:
        if any(not positions.is_of(p, self.caller.tenant) for p in after):
            raise InvalidMessage("this is not the id of an event of this tenant", field="last-event-id")
        ahead = {p: offset for p, offset in after.items() if offset > latest.get(p, 0)}
        if ahead:  # the store has forgotten what it told: it was put back, or lost its last moments
            self._position |= {p: latest[p] for p in ahead if p in latest}
            self.gap = Gap(ahead, {p: latest.get(p, 0) for p in ahead})
            return
        shared = all(positions.queue_of(p) is None for p in latest)
        first = (await self._tail.read(self._position, 1, None if shared else self.caller.tenant)).transitions
        for transition in first:
            known = self._position.get(transition.partition, 0)
            if known and transition.offset > known + 1:
                self.gap = Gap({transition.partition: known}, {transition.partition: transition.offset - 1})

    def close(self) -> None:
        self._tail.leave(self._hear)

    @property
    def id(self) -> str:
        """Where this feed is."""
        return positions.write({p: o for p, o in self._position.items() if not self._skips(p)})

    @property
    def many(self) -> bool:
        """Are ids so long that not every event should have one?"""
        return len(self._position) > 8

    @property
    def idle(self) -> bool:
        return self._goal is None and not self._waiting and not self._overflown

    async def wait(self) -> None:
        """Until there may be more."""
        await self._came.wait()

    async def next(self) -> list[tuple[Transition, str | None]]:
        """Some events, each with its id; empty when nothing that is wanted came."""
        if self._overflown:
            await self._fall_behind()
        reached: Position = {}
        if self._goal is not None:
            transitions, reached = await self._read_on(self._goal)
        else:
            self._came.clear()
            transitions = [self._waiting.popleft() for _ in range(min(_STEP, len(self._waiting)))]
            if self._waiting:
                self._came.set()
        told: list[tuple[Transition, str | None]] = []
        ours = await self._ours_of(transitions)
        for transition, wanted in zip(transitions, ours, strict=True):
            self._position[transition.partition] = transition.offset
            if wanted:
                told.append((transition, None if self.many else self.id))
        if told and self.many:
            told[-1] = (told[-1][0], self.id)
        self._pass(reached)
        return told

    async def _ours_of(self, transitions: list[Transition]) -> list[bool]:
        """Which of them this subscriber wants, and may hear of."""
        ours = [self._wanted(transition) and self.caller.may("view", transition.queue) for transition in transitions]
        if self._wanted.asks_type and any(ours):
            kept = [transition for transition, wanted in zip(transitions, ours, strict=True) if wanted]
            types = iter(await self._types.of(kept))
            ours = [wanted and self._wanted.type(next(types)) for wanted in ours]
        return ours

    def catch_up(self) -> None:
        """Pass over what was of no interest, so that the id does not get old; only when idle."""
        self._pass(self._ours(self._tail.position))

    def _hear(self, transitions: list[Transition]) -> None:
        if self._overflown:
            return
        tenant = self.caller.tenant
        self._waiting.extend(transition for transition in transitions if transition.tenant == tenant)
        if len(self._waiting) > _MOST_WAITING:
            self._overflown = True
            self._waiting.clear()
        if self._waiting or self._overflown:
            self._came.set()

    async def _fall_behind(self) -> None:
        self._waiting.clear()
        self._overflown = False
        self._tail.leave(self._hear)
        self._goal = await self._tail.join(self._hear)
        self._came.set()

    async def _read_on(self, goal: Position) -> tuple[list[Transition], Position]:
        """The next that lies before the goal, and where that ends; what lies after it is heard from the tail."""
        page = await self._tail.read(self._position, _STEP, self.caller.tenant)
        transitions = [m for m in page.transitions if m.offset <= goal.get(m.partition, 0)]
        reached = {p: min(offset, goal.get(p, 0)) for p, offset in page.position.items()}
        if all(reached.get(p, 0) >= goal.get(p, 0) for p in page.latest):
            self._goal = None
            if not self._waiting:
                self._came.clear()
        return transitions, reached

    def _pass(self, reached: Position) -> None:
        for partition, offset in reached.items():
            self._position[partition] = max(self._position.get(partition, 0), offset)

    def _skips(self, partition: str) -> bool:
        """Is nothing in this partition for us? Then its name is not told either."""
        queue = positions.queue_of(partition)
        return queue is not None and not (self._wanted.queue(queue) and self.caller.may("view", queue))

    def _ours(self, position: Position) -> Position:
        return {p: o for p, o in position.items() if positions.is_of(p, self.caller.tenant)}
