"""One subscriber of the journal: from its last position, without a gap, to the newest events.

A subscriber that is behind reads the journal on its own until it reaches the shared tail. If it then takes events more
slowly than they come, it is behind again: its memory is bounded, and it loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.broker import journal_details
from tampu.broker.core import Core
from tampu.broker.journal_details import Details
from tampu.model import patterns
from tampu.model.errors import InvalidMessage
from tampu.model.journal import Position, Transition
from tampu.model.message import State
from tampu.server.auth.grants import Caller
from tampu.server.events import positions
from tampu.server.events.tail import Tail
from tampu.server.listings import Listings

_PAGE = 1000
_MAX_WAITING = 10_000
_MOST_TYPES = 20_000


class Filter:
    """What a subscriber wants; an empty list means everything. Queues and types may contain ``*``."""

    def __init__(
        self, queues: Sequence[str], types: Sequence[str], verbs: Sequence[str], states: Sequence[State]
    ) -> None:
        self._queues = [patterns.parse(text, "queue") for text in queues]
        self._types = [patterns.parse(text, "type") for text in types]
        self._verbs = frozenset(verbs)
        self._states = frozenset(states)
        self._known: dict[str, bool] = {}

    def queue(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = not self._queues or any(p.matches(name) for p in self._queues)
        return known

    def __call__(self, transition: Transition) -> bool:
        """True if the transition matches; the type is checked by `type`."""
        return (
            self.queue(transition.queue)
            and (not self._verbs or transition.verb in self._verbs)
            and (not self._states or transition.state in self._states)
        )

    @property
    def has_types(self) -> bool:
        return bool(self._types)

    def type(self, name: str | None) -> bool:
        return any(pattern.matches(name or "") for pattern in self._types)


class Types:
    """Types and correlation ids of messages, for feeds that ask for them: the journal has the type only at publish.

    A cache shared by the feeds of a node, so that each message is looked up once.
    """

    def __init__(self, core: Core, listings: Listings) -> None:
        self._core = core
        self._listings = listings
        self._known: dict[journal_details.Names, str] = {}
        self._details: dict[journal_details.Names, Details] = {}

    async def with_details(self, caller: Caller, transitions: Sequence[Transition]) -> list[Transition]:
        """The transitions with the types and correlation ids of their messages, unless these are gone."""
        known = self._details
        missing = [name for name in journal_details.names(transitions) if name not in known]
        known.update(await self._look_up(caller, missing))
        made = journal_details.added(transitions, known)
        while len(known) > _MOST_TYPES:
            del known[next(iter(known))]
        return made

    async def _look_up(self, caller: Caller, missing: Sequence[journal_details.Names]) -> dict[Any, Details]:
        if not missing:
            return {}
        look_up, engine = journal_details.look_up, self._core.engine
        return await self._listings.call(caller, look_up, engine, missing, refuse=False)

    async def of(self, caller: Caller, transitions: Sequence[Transition]) -> list[str | None]:
        """The type for each transition; None if the message is gone and its publish was not seen here."""
        known = self._known
        for transition in transitions:
            if transition.type is not None:
                known[transition.tenant, transition.id] = transition.type
        missing = list({(transition.tenant, transition.id) for transition in transitions} - known.keys())
        found = await self._look_up(caller, missing)
        known.update((name, details.type) for name, details in found.items())
        types = [known.get((transition.tenant, transition.id)) for transition in transitions]
        while len(known) > _MOST_TYPES:
            del known[next(iter(known))]
        return types


class Gap(msgspec.Struct):
    """Transitions between these positions are no longer in the journal."""

    asked: Position
    found: Position


class Feed:
    """Call `open`, then `next` repeatedly, and `close` at the end."""

    def __init__(self, tail: Tail, caller: Caller, filter: Filter, types: Types, *, details: bool = False) -> None:
        self.caller = caller
        self.gap: Gap | None = None
        self._tail = tail
        self._filter = filter
        self._types = types
        self._has_details = details
        self._position: Position = {}
        self._goal: Position | None = None
        """While behind: the tail's position when this subscriber joined it."""
        self._waiting: deque[Transition] = deque()
        self._overflown = False
        self._arrived = asyncio.Event()

    async def open(self, after: Position | None) -> None:
        if after is None:
            self._position = self._ours(await self._tail.join(self._receive))
            return
        latest = (await self._tail.read(self.caller, {}, 1, self.caller.tenant)).latest
        self._position = {p: offset if self._skips(p) else after.get(p, 0) for p, offset in latest.items()}
        await self._check(after, latest)
        await self._fall_behind()

    async def _check(self, after: Position, latest: Position) -> None:
        if any(not positions.is_of(p, self.caller.tenant) for p in after):
            raise InvalidMessage("this event id belongs to another tenant", field="last-event-id")
        ahead = {p: offset for p, offset in after.items() if offset > latest.get(p, 0)}
        if ahead:  # the store was restored from a backup, or lost its last commits
            self._position |= {p: latest[p] for p in ahead if p in latest}
            self.gap = Gap(ahead, {p: latest.get(p, 0) for p in ahead})
            return
        shared = all(positions.queue_of(p) is None for p in latest)
        first = (
            await self._tail.read(self.caller, self._position, 1, None if shared else self.caller.tenant)
        ).transitions
        for transition in first:
            known = self._position.get(transition.partition, 0)
            if known and transition.offset > known + 1:
                self.gap = Gap({transition.partition: known}, {transition.partition: transition.offset - 1})

    def close(self) -> None:
        self._tail.leave(self._receive)

    @property
    def id(self) -> str:
        """The position of this feed, as an event id."""
        return positions.write({p: o for p, o in self._position.items() if not self._skips(p)})

    @property
    def many(self) -> bool:
        """True if ids are so long that only the last event of a batch gets one."""
        return len(self._position) > 8

    @property
    def idle(self) -> bool:
        return self._goal is None and not self._waiting and not self._overflown

    async def wait(self) -> None:
        """Wait until there may be more events."""
        await self._arrived.wait()

    async def next(self) -> list[tuple[Transition, str | None]]:
        """The next events with their ids; can be empty."""
        if self._overflown:
            await self._fall_behind()
        reached: Position = {}
        if self._goal is not None:
            transitions, reached = await self._read_on(self._goal)
        else:
            self._arrived.clear()
            transitions = [self._waiting.popleft() for _ in range(min(_PAGE, len(self._waiting)))]
            if self._waiting:
                self._arrived.set()
        events: list[tuple[Transition, str | None]] = []
        for transition, matches in zip(transitions, await self._match(transitions), strict=True):
            self._position[transition.partition] = transition.offset
            if matches:
                events.append((transition, None if self.many else self.id))
        if events and self.many:
            events[-1] = (events[-1][0], self.id)
        if events and self._has_details:
            detailed = await self._types.with_details(self.caller, [transition for transition, _ in events])
            events = [(transition, id) for transition, (_, id) in zip(detailed, events, strict=True)]
        self._advance(reached)
        return events

    async def _match(self, transitions: list[Transition]) -> list[bool]:
        """For each transition, whether the subscriber wants it and may see it."""
        matches = [self._filter(each) and self.caller.may("view", each.queue) for each in transitions]
        if self._filter.has_types and any(matches):
            candidates = [each for each, matched in zip(transitions, matches, strict=True) if matched]
            types = iter(await self._types.of(self.caller, candidates))
            matches = [matched and self._filter.type(next(types)) for matched in matches]
        return matches

    def catch_up(self) -> None:
        """Move past events that did not match, so that the id does not become outdated. Only when idle."""
        self._advance(self._ours(self._tail.position))

    def _receive(self, transitions: list[Transition]) -> None:
        if self._overflown:
            return
        tenant = self.caller.tenant
        self._waiting.extend(transition for transition in transitions if transition.tenant == tenant)
        if len(self._waiting) > _MAX_WAITING:
            self._overflown = True
            self._waiting.clear()
        if self._waiting or self._overflown:
            self._arrived.set()

    async def _fall_behind(self) -> None:
        self._waiting.clear()
        self._overflown = False
        self._tail.leave(self._receive)
        self._goal = await self._tail.join(self._receive)
        self._arrived.set()

    async def _read_on(self, goal: Position) -> tuple[list[Transition], Position]:
        """(the next transitions up to the goal, the position reached); the tail delivers those after the goal."""
        page = await self._tail.read(self.caller, self._position, _PAGE, self.caller.tenant)
        transitions = [m for m in page.transitions if m.offset <= goal.get(m.partition, 0)]
        reached = {p: min(offset, goal.get(p, 0)) for p, offset in page.position.items()}
        if all(reached.get(p, 0) >= goal.get(p, 0) for p in page.latest):
            self._goal = None
            if not self._waiting:
                self._arrived.clear()
        return transitions, reached

    def _advance(self, reached: Position) -> None:
        for partition, offset in reached.items():
            self._position[partition] = max(self._position.get(partition, 0), offset)

    def _skips(self, partition: str) -> bool:
        """True if the subscriber gets nothing from this partition. Then it must not see its name either."""
        queue = positions.queue_of(partition)
        return queue is not None and not (self._filter.queue(queue) and self.caller.may("view", queue))

    def _ours(self, position: Position) -> Position:
        return {p: o for p, o in position.items() if positions.is_of(p, self.caller.tenant)}
