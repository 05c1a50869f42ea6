"""Verbs on whole queues: list messages, stats, replay, purge, settings, pause and resume, remove."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.admin import removal, reorder
from tampu.broker.admin.filters import Where
from tampu.broker.audit import Recording
from tampu.broker.core import Core, Read, Steps
from tampu.broker.policies import uses
from tampu.broker.policies.holds.verbs import check_removal, holds_of, purge_others
from tampu.broker.settings import KIND
from tampu.engines import port
from tampu.model.config import (
    BUILT_IN,
    FIELDS,
    SYSTEM,
    QueueConfig,
    change,
    covers,
    inherit,
    is_pattern,
    parents,
    read_config,
)
from tampu.model.decoders import from_msgpack
from tampu.model.definitions import Hold
from tampu.model.errors import InvalidConfig, InvalidMessage, InvalidState, NotFound, VersionConflict
from tampu.model.message import Message, State
from tampu.model.outcome import Outcome
from tampu.model.states import TERMINAL

DEAD_LETTERS = "dead_letters"
"""The follower that carries out `dead_letter_to` (`tampu.broker.dead.follower`)."""
_STEP = 500
_PAGE_BYTES = 8 << 20
_FIRST = 32
"""Messages that are read before their size is known."""
_MOST_READ = 1000
"""Messages that are read at once, however small those before them were."""
_TRIES = 20
_to_cursor = from_msgpack(tuple[str, tuple[int | str, ...]]).decode
_BUILT_IN = "built in"
_OF_GROUPS = frozenset({"group_order", "group_concurrency", "group_rate", "group_burst"})


class MessagePage(msgspec.Struct, frozen=True):
    """A page of messages. Pass ``cursor`` as ``after`` to get the next page; None: this is the last one."""

    messages: list[Message]
    cursor: str | None

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Replayed(msgspec.Struct, frozen=True):
    """What a replay did, or with ``dry_run`` would do."""

    messages: list[Message]
    outcomes: list[Outcome]
    dry_run: bool

    def __len__(self) -> int:
        return len(self.messages) if self.dry_run else sum(1 for outcome in self.outcomes if outcome.ok)


class Stats(msgspec.Struct, frozen=True):
    """Counts of a queue. The engine updates them in each commit, so reading them counts nothing."""

    queue: str
    counts: dict[State, int]
    oldest_ready_age: timedelta | None
    status: str

    @property
    def depth(self) -> int:
        """Messages that have not ended."""
        return sum(self.counts.get(s, 0) for s in (State.READY, State.DELAYED, State.LEASED, State.HELD))

    def __getattr__(self, name: str) -> int:
        """``stats.ready``, ``stats.dead`` …"""
        if name.upper() in State.__members__:
            return self.counts.get(State(name), 0)
        raise AttributeError(name)


def state(value: Any) -> State:
    try:
        return State(value)
    except ValueError:
        raise InvalidMessage(
            f"{value!r:.50} is not a state", field="state", hint=f"states are {', '.join(State)}"
        ) from None


def check_replay(queue: Any, ids: Any, where: Any, limit: Any) -> None:
    validate.any_queue(queue)
    if (ids is None) == (where is None) or isinstance(ids, str) or not isinstance(ids or [], Iterable):
        raise InvalidMessage("give a list of ids, or where", field="ids", hint="where={} replays all dead letters")
    if limit is not None:
        validate.whole(limit, "limit", 1, 10**9)


def purged_states(queue: Any, given: Any) -> list[State]:
    validate.any_queue(queue)
    several = isinstance(given, Iterable) and not isinstance(given, str)
    states = [state(s) for s in (given if several else [given])]
    if State.LEASED in states:
        raise InvalidState("leased messages cannot be purged", hint="cancel them, or wait until they are settled")
    return states


def needed_follower(config: QueueConfig | None) -> str | None:
    """The follower that settings need."""
    return DEAD_LETTERS if config is not None and config.dead_letter_to else None


def check_dead_letter_to(queue: str, target: Any) -> None:
    if validate.name(target, "dead_letter_to") == queue:
        raise InvalidConfig(
            "dead letters of a queue cannot be copied to itself", field="dead_letter_to", hint="name another queue"
        )


class Admin(Recording):
    """Administrate the queues of one tenant."""

    def __init__(self, core: Core, tenant: str) -> None:
        self.core = core
        self.tenant = tenant

    # -- reading

    def messages(
        self,
        queue: str,
        *,
        state: State | str | None = None,
        limit: int = 100,
        after: str | None = None,
        where: Where | dict[str, Any] | None = None,
    ) -> Steps[MessagePage]:
        """A page of messages of one state, or of all states in turn, in the order of their index.

        It has at most ``limit`` messages, and ends sooner when it has 8 MB; then its cursor goes on.
        """
        validate.any_queue(queue)
        states = list(State) if state is None else [_state(state)]
        return (yield from self.page_of(queue, states, limit, after, Where.of(where)))

    def page_of(
        self, queue: str, states: Sequence[State], limit: int, after: str | None, wanted: Where
    ) -> Steps[MessagePage]:
        """`messages`, also for tampu's own queues."""
        validate.whole(limit, "limit", 1, 10_000)
        at, inner = _read_cursor(after, states)
        found: list[Message] = []
        least = 1 if wanted == Where() else _STEP
        room, most = _PAGE_BYTES, _FIRST
        while at < len(states):
            left = limit - len(found)
            page = yield from self._page(queue, states[at], inner, min(max(left, least), most))
            matching = [n for n, m in enumerate(page.messages) if wanted.matches(m)]
            while len(matching) > left:  # read again up to the last match: a cursor marks the end of a page
                page = yield from self._page(queue, states[at], inner, matching[left - 1] + 1)
                matching = [n for n, m in enumerate(page.messages) if wanted.matches(m)]
            found.extend(page.messages[n] for n in matching)
            room -= sum(_size(page.messages[n]) for n in matching)
            if page.messages:  # those that follow may have the same size
                average = sum(map(_size, page.messages)) // len(page.messages)
                most = max(1, min(_MOST_READ, room // average))
            if page.cursor is None:
                at, inner = at + 1, None
            else:
                inner = page.cursor
            if (len(found) >= limit or room <= 0) and at < len(states):
                return MessagePage(found, _write_cursor(states[at], inner or ()))
        return MessagePage(found, None)

    def _page(self, queue: str, state: State, after: tuple[Any, ...] | None, limit: int) -> Steps[port.Page]:
        page: port.Page | None = yield Read(lambda engine: engine.page(self.tenant, queue, state, after, limit))
        if page is None:
            raise _no_queue(queue)
        return page

    def stats(self, queue: str | None = None) -> Steps[Any]:
        """`Stats` of one queue; without a name, a list with those of all queues; of ``shop.*``, those of that scope."""
        if queue is not None and is_pattern(validate.queue_or_scope(queue, system=True)):
            found = yield from self.stats()
            return [stats for stats in found if covers(queue, stats.queue)]
        rows: list[port.QueueStats] = yield Read(lambda engine: engine.stats(self.tenant, queue))
        if queue is not None:
            empty = not any(count for row in rows for count in row.counts.values())
            if not rows or (empty and (yield Read(lambda e: removal.is_hidden(e, self.tenant, queue)))):
                raise _no_queue(queue)
        else:
            hidden: set[str] = yield Read(lambda engine: removal.hidden(engine, self.tenant))
            rows = [row for row in rows if row.queue not in hidden and not row.queue.startswith(SYSTEM)]
        found = [
            Stats(
                row.queue,
                row.counts,
                None
                if row.oldest_ready_us is None
                else timedelta(microseconds=max(0, row.now_us - row.oldest_ready_us)),
                self.core.settings.get(self.tenant, row.queue).status,
            )
            for row in rows
        ]
        return found if queue is None else found[0]

    # -- many messages

    def replay(
        self,
        queue: str,
        *,
        ids: Sequence[str] | None = None,
        where: Where | dict[str, Any] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Steps[Replayed]:
        """Make dead messages ready again, with the same id and 0 attempts: by id, or all that match ``where``.

        They get the queue's current ``max_attempts``, unless their publisher set one.
        """
        check_replay(queue, ids, where, limit)
        chosen: list[Message] = []
        refused: list[Outcome] = []
        after = None
        while True:
            left = None if limit is None else limit - len(chosen)
            page, after = yield from self.replay_page(
                queue, ids=ids, where=where, limit=left, after=after, dry_run=True
            )
            chosen += page.messages
            refused += page.outcomes
            if after is None:
                break
        if not dry_run:
            yield from self.record("queue.replay", queue, {"messages": len(chosen)})
            refused += yield from self._replay(queue, chosen)
        return Replayed(chosen, refused, dry_run)

    def replay_page(
        self,
        queue: str,
        *,
        ids: Sequence[str] | None,
        where: Where | dict[str, Any] | None,
        limit: int | None,
        after: str | None,
        dry_run: bool,
    ) -> Steps[tuple[Replayed, str | None]]:
        """A part of `replay`, with at most 8 MB of messages, and the cursor of the next part."""
        check_replay(queue, ids, where, limit)
        most = _MOST_READ if limit is None else min(limit, _MOST_READ)
        refused: list[Outcome] = []
        if ids is not None:
            page = yield from self._by_id(queue, ids, most, after, refused)
        else:
            page = yield from self.messages(queue, state=State.DEAD, limit=most, after=after, where=where)
        if not dry_run and page.messages:
            yield from self.record("queue.replay", queue, {"messages": len(page.messages)})
            refused += yield from self._replay(queue, page.messages)
        cursor = None if limit is not None and len(page) >= limit else page.cursor
        return Replayed(page.messages, refused, dry_run), cursor

    def _replay(self, queue: str, messages: Sequence[Message]) -> Steps[list[Outcome]]:
        outcomes: list[Outcome] = []
        current = self.core.settings.get(self.tenant, queue).max_attempts
        for start in range(0, len(messages), _STEP):
            batch = messages[start : start + _STEP]
            attempts = [message.body.own_max_attempts or current for message in batch]
            outcomes += yield port.Replay(self.tenant, [message.id for message in batch], attempts, self.actor.name)
        return outcomes

    def _by_id(
        self, queue: str, ids: Sequence[str], most: int, after: str | None, refused: list[Outcome]
    ) -> Steps[MessagePage]:
        """The dead ones of these messages. The cursor is the number of ids that are done."""
        if after is not None and not (after.isdecimal() and len(after) < 8):
            raise InvalidMessage("after is not a cursor of these messages", field="after")
        first = int(after or 0)
        chosen: list[Message] = []
        size = 0
        for done, id in enumerate(ids[first:], first):
            if len(chosen) >= most or size >= _PAGE_BYTES:
                return MessagePage(chosen, str(done))
            wanted = validate.id_text(id)
            message: Message | None = yield Read(lambda engine, i=wanted: engine.get(self.tenant, i))  # type: ignore[misc]  # bound now
            if message is None or message.queue != queue:
                refused.append(Outcome(wanted, None, NotFound(f"no message {wanted} in queue {queue}", field="id")))
            elif message.state is not State.DEAD:
                refused.append(Outcome(wanted, None, InvalidState(f"the message is {message.state}, not dead")))
            else:
                chosen.append(message)
                size += _size(message)
        return MessagePage(chosen, None)

    def purge(self, queue: str, *, state: State | str | Iterable[State | str], dry_run: bool = False) -> Steps[int]:
        """Remove all messages in one or more states for good. Returns how many. Leased ones cannot be purged.

        What a legal hold covers stays; a queue that is under one as a whole cannot be purged.
        """
        states = purged_states(queue, state)
        stats = yield from self.stats(queue)
        if dry_run:
            return sum(stats.counts.get(s, 0) for s in states)
        holds: list[Hold] = yield Read(lambda engine: holds_of(engine, self.tenant, queue))
        check_removal([hold for hold in holds if hold.whole_queues], queue)
        yield from self.record("queue.purge", queue, {"states": states})
        if holds:
            return (yield from purge_others(self.tenant, self.actor.name, queue, states, holds))
        total = 0
        for current in states:
            while True:
                gone: int = yield port.Purge(self.tenant, queue, current, _STEP, self.actor.name)
                total += gone
                if gone < _STEP:
                    break
        return total

    # -- settings

    def put_config(self, queue: str, /, **changes: Any) -> Steps[QueueConfig]:
        """Change settings of a queue, which is created if it is new; ``*`` changes the defaults of all queues.

        ``shop.*`` changes what the queues of that scope inherit, such as ``shop.emails``; the longest scope counts.
        None inherits again. A new ordering also applies to waiting messages, in small steps. Returns the settings of
        the queue itself, without inherited ones.
        """
        validate.queue_or_scope(queue)
        if changes.get("dead_letter_to"):
            check_dead_letter_to(queue, changes["dead_letter_to"])
        for _ in range(_TRIES):
            document: port.Document | None = yield Read(lambda engine: engine.document(KIND, self.tenant, queue))
            old = QueueConfig() if document is None else read_config(document.value)
            new = change(old, changes)
            version = document.version if document else 0
            ranks = bool({"ordering", "ageing"} & changes.keys())
            moves = ranks or bool(_OF_GROUPS & changes.keys())
            if moves:
                yield from self._mark(queue, ranks=ranks)
            calls = yield from self._follower_uses(old, new)
            try:
                put = port.PutDocument(KIND, self.tenant, queue, msgspec.json.encode(new), version)
                yield from self.recorded([put, *calls], "queue.config", queue, old, new)
            except VersionConflict:
                continue
            self.core.settings.forget()
            if moves:
                yield from reorder.follow(self.tenant, queue, ranks=ranks)
            if {"status", "rate", "max_in_flight"} & changes.keys():
                self.core.wake_waiters()
            return new
        raise VersionConflict(f"the settings of {queue} keep changing", hint="try again")

    def _follower_uses(self, old: QueueConfig, new: QueueConfig) -> Steps[list[Any]]:
        """The calls by which the follower of `dead_letter_to` begins with the first queue that uses it, and ends."""
        needed = [(needed_follower(old), needed_follower(new))]
        calls: list[Any] = yield Read(lambda engine: uses.changes(engine, self.tenant, needed))
        return calls

    def _mark(self, queue: str, *, ranks: bool = True) -> Steps[None]:
        """Record that ordering or groups are about to change, so that maintenance goes on if this process dies."""
        now: int = yield Read(lambda engine: engine.now())
        earlier: bool = yield Read(lambda engine: reorder.is_ranking(engine, self.tenant, queue))
        yield reorder.marking(self.tenant, queue, now, ranks=ranks or earlier)

    def get_config(self, queue: str, *, inherited: bool = True) -> Steps[QueueConfig]:
        """The settings of a queue; with ``inherited=False`` only those set for the queue itself."""
        validate.queue_or_scope(queue)
        layers = yield from self._layers(queue)
        return inherit(*layers.values()) if inherited else layers[queue]

    def config_sources(self, queue: str) -> Steps[dict[str, str]]:
        """Where each setting of a queue comes from: itself, a scope such as ``shop.*``, ``*``, or ``built in``."""
        validate.queue_or_scope(queue)
        layers = yield from self._layers(queue)
        return {
            field: next(name for name, layer in layers.items() if getattr(layer, field) is not None) for field in FIELDS
        }

    def _layers(self, queue: str) -> Steps[dict[str, QueueConfig]]:
        """The settings of the queue, then those it inherits from, by name."""
        names = (queue, *parents(queue))
        own: list[QueueConfig | None] = yield Read(
            lambda _: [self.core.settings.own(self.tenant, name) for name in names]
        )
        return {name: config or QueueConfig() for name, config in zip(names, own, strict=True)} | {_BUILT_IN: BUILT_IN}

    def list_queues(self) -> Steps[list[str]]:
        """The names of all queues."""
        names: list[tuple[str, str]] = yield Read(lambda engine: engine.queues())
        hidden: set[str] = yield Read(lambda engine: removal.hidden(engine, self.tenant))
        own = (name for tenant, name in names if tenant == self.tenant and name not in hidden)
        return [name for name in own if not name.startswith(SYSTEM)]

    def remove_queue(self, queue: str, *, force: bool = False) -> Steps[int]:
        """Remove a queue for good, with its settings and its ended messages. Returns how many messages it had.

        Refused with `InvalidState` while messages are leased and, without ``force``, while messages wait. A later
        publish creates a new queue of the same name, with the default settings.
        """
        validate.name(queue, "queue")
        stats = yield from self.stats(queue)
        removal.check(queue, stats.counts, force=force)
        check_removal((yield Read(lambda engine: holds_of(engine, self.tenant, queue))), queue)
        yield from self.record("queue.remove", queue, {"messages": sum(stats.counts.values()), "force": force})
        states = [s for s in State if s in TERMINAL or (force and s is not State.LEASED)]
        total = yield from self.purge(queue, state=states)
        rows: list[port.QueueStats] = yield Read(lambda engine: engine.stats(self.tenant, queue))
        if any(count for row in rows for count in row.counts.values()):
            raise InvalidState(
                f"new messages arrived in {queue} meanwhile", field="queue", hint="close the queue, then remove it"
            )
        yield from self.reset_config(queue)
        yield removal.mark(self.tenant, queue)  # last: until then it is listed, and can be removed again
        return total

    def reset_config(self, queue: str) -> Steps[bool]:
        """Remove the settings of a queue, so that it inherits all. Its messages stay. False if it had none."""
        validate.queue_or_scope(queue)
        old: QueueConfig | None = yield Read(lambda _: self.core.settings.own(self.tenant, queue))
        if old is None:
            return False
        yield from self._mark(queue)
        calls = yield from self._follower_uses(old, QueueConfig())
        delete = port.DeleteDocument(KIND, self.tenant, queue)
        gone, *_ = yield from self.recorded([delete, *calls], "queue.reset", queue, old)
        self.core.settings.forget()
        if gone:
            yield from reorder.follow(self.tenant, queue)
        return bool(gone)

    def pause(self, queue: str) -> Steps[None]:
        """Stop delivery until `resume`. Publishing still works."""
        yield from self._set_status(queue, "paused")

    def resume(self, queue: str) -> Steps[None]:
        """Deliver and accept messages again."""
        yield from self._set_status(queue, "open")

    def drain(self, queue: str) -> Steps[None]:
        """Refuse new messages; deliver those that are there."""
        yield from self._set_status(queue, "draining")

    def close_queue(self, queue: str) -> Steps[None]:
        """Refuse new messages and stop delivery, until `resume`."""
        yield from self._set_status(queue, "closed")

    def _set_status(self, queue: str, status: str) -> Steps[None]:
        validate.name(queue, "queue")
        yield from self.stats(queue)
        yield from self.put_config(queue, status=status)


def _no_queue(queue: str) -> NotFound:
    return NotFound(f"no queue {queue}", field="queue", hint="publish to it or set its config first; see tampu queues")


_state = state


def _write_cursor(state: State, inner: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((str(state), inner))).decode().rstrip("=")


def _size(message: Message) -> int:
    """About the bytes that the message has in memory."""
    return 500 + len(message.body.payload) + len(message.last_error or "") + len(message.result_raw or b"")


def _read_cursor(text: str | None, states: Sequence[State]) -> tuple[int, tuple[Any, ...] | None]:
    if text is None:
        return 0, None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        name, inner = _to_cursor(raw)
        if any(isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 for value in inner):
            raise ValueError
        return list(states).index(State(name)), inner or None
    except (TypeError, ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidMessage("after is not a cursor of these messages", field="after") from None
