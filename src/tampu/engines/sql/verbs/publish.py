"""publish: store messages in ready, delayed or held.

Contract: a call is all or nothing. It is refused with QueueFull if the queue would have more than max_depth live
messages, and with IdempotencyConflict. A key replaces the payload of the waiting message that has it. A known
idempotency key (within its window) or a known id returns the first message.

Messages that need no look-up are gathered over all calls of a commit and written together. Calls that need one (keys,
ids, groups, holds) are handled one by one in `publish_with_lookup`. All locks are taken first, in one order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from tampu.engines.encoding import DELAYED, READY
from tampu.engines.port import Item, Publish
from tampu.engines.rules import all_done_at_once, full
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints
from tampu.engines.sql.locks import queue_lock
from tampu.engines.sql.rules.correlations import correlate
from tampu.engines.sql.verbs import publish_ended, publish_with_lookup
from tampu.engines.sql.verbs.publish_with_lookup import depth, due_at
from tampu.model.errors import TampuError
from tampu.model.message import Message, State
from tampu.model.rank import rank


def publish(commit: Commit, calls: Sequence[Publish]) -> list[list[Message] | TampuError]:
    _lock(commit, calls)
    return store(Batch(commit), calls)


def store(batch: Batch, calls: Sequence[Publish]) -> list[list[Message] | TampuError]:
    replies: list[list[Message] | TampuError] = []
    for together in [calls] if len(calls) == 1 else _neighbours(calls):
        call = together[0]
        try:
            if call.copy:
                batch.check_depth(call)
                replies.extend(batch.add_copies(together))
            elif call.simple or batch.takes(call.items):
                batch.check_depth(call)
                replies.extend(batch.add_simple(together) if call.simple else [batch.add(call)])
            else:
                batch.flush()
                verb = publish_ended if all_done_at_once(call.items) else publish_with_lookup
                replies.append(verb.publish(batch.commit, call))
        except TampuError as error:
            replies.append(error)
    batch.flush()
    return replies


def _neighbours(calls: Sequence[Publish]) -> Iterator[list[Publish]]:
    """Group successive calls that can be stored as one: simple ones for the same queue, and copies of the same items.
    Each other call is alone."""

    def common(call: Publish) -> tuple[str, str | int] | None:
        if not call.simple or call.max_depth:
            return None
        return call.tenant, id(call.items) if call.copy else call.queue

    for key, group in itertools.groupby(calls, common):
        if key is None:
            yield from ([call] for call in group)
        else:
            yield list(group)


def _lock(commit: Commit, calls: Sequence[Publish]) -> None:
    """Lock everything that these calls will look up."""
    names = set()
    for call in calls:
        if call.max_depth:
            names.add(queue_lock(call.tenant, call.queue))
        if not call.simple:
            names |= publish_with_lookup.locks(call)
    if names:
        commit.locks.take(names)


class Batch:
    """Messages that need no look-up, gathered over the calls of a commit and written together."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self._simple: dict[tuple[int, int], tuple[list[int], list[bytes]]] = {}
        """(seqs, bodies) by queue and max_attempts."""
        self._rows: list[tuple[int, int, int, int, int | None, int | None, bytes]] = []
        self._noted: dict[tuple[int, int], tuple[list[int], list[str]]] = {}
        self._correlated: list[tuple[int, str, str]] = []
        """(seq, tenant, correlation id)"""

    def takes(self, items: Sequence[Item]) -> bool:
        """True if these items need no look-up."""
        return not any(map(publish_with_lookup.needs_lookup, items))

    def check_depth(self, call: Publish) -> None:
        """Refuse a call that would exceed max_depth, counting messages that are not written yet."""
        if call.max_depth:
            q = self.commit.registry.number(self.commit.db, call.tenant, call.queue)
            held = 0 if q is None else depth(self.commit, q)
            held += sum(len(seqs) for (owner, _), (seqs, _) in self._noted.items() if owner == q)
            if held + len(call.items) > call.max_depth:
                raise full(call)

    def add(self, call: Publish) -> list[Message]:
        commit, now, tenant, name = self.commit, self.commit.now, call.tenant, call.queue
        made = []
        q = commit.queue(tenant, name)
        numbers = commit.numbers(len(call.items))
        ids = commit.registry.id.many([commit.stamp] * len(numbers), numbers)
        for seq, id, item in zip(numbers, ids, call.items, strict=True):
            body = item.body
            row_rank = 0
            if item.ordering != "fifo":
                row_rank = rank(item.ordering, item.ageing_us, body.priority, body.deadline, now)
            expires = item.expires(now)
            run_at = due_at(item, now)
            state, code = (State.READY, READY) if run_at is None else (State.DELAYED, DELAYED)
            self._rows.append((seq, q, row_rank, item.max_attempts, expires, run_at, item.packed))
            self._note(q, code, [seq], [body.type])
            if body.correlation_id is not None:
                self._correlated.append((seq, tenant, body.correlation_id))
            made.append(Message(id, tenant, name, state, body, 0, item.max_attempts, now, run_at, expires))
        return made

    def add_simple(self, calls: Sequence[Publish]) -> list[list[Message]]:
        """`add` for simple calls to one queue. The replies are filled while the server commits."""
        commit, now = self.commit, self.commit.now
        tenant, name = calls[0].tenant, calls[0].queue
        items = calls[0].items if len(calls) == 1 else [item for call in calls for item in call.items]
        q = commit.queue(tenant, name)
        numbers = commit.numbers(len(items))
        attempts = items[0].max_attempts if items else 0
        if all(item.max_attempts == attempts for item in items):
            seqs, bodies = self._simple.setdefault((q, attempts), ([], []))
            seqs.extend(numbers)
            bodies.extend([item.packed for item in items])
        else:
            self._rows.extend(
                (seq, q, 0, item.max_attempts, None, None, item.packed)
                for seq, item in zip(numbers, items, strict=True)
            )
        self._note(q, READY, numbers, [item.body.type for item in items])
        replies: list[list[Message]] = [[] for _ in calls]

        def fill() -> None:
            state = State.READY
            ids = commit.registry.id.many([commit.stamp] * len(numbers), numbers)
            made = iter(
                [
                    Message(id, tenant, name, state, item.body, 0, item.max_attempts, now)
                    for id, item in zip(ids, items, strict=True)
                ]
            )
            for call, reply in zip(calls, replies, strict=True):
                reply.extend(itertools.islice(made, len(call.items)))

        commit.deferred.append(fill)
        return replies

    def add_copies(self, calls: Sequence[Publish]) -> list[list[Message]]:
        """Store the items of a call in the queues of all these calls."""
        commit, items = self.commit, calls[0].items
        count, types = len(items), [item.body.type for item in items]
        numbers = commit.numbers(count * len(calls))
        qs = [commit.queue(call.tenant, call.queue) for call in calls]
        for at, q in enumerate(qs):
            self._note(q, READY, numbers[at * count : (at + 1) * count], types)
        bodies = Blobs([item.packed for item in items])
        commit.db.send(
            "publish_copies", commit.now, commit.ahead, items[0].max_attempts, Ints(qs), Ints(numbers), bodies
        )
        return [[] for _ in calls]

    def _note(self, q: int, code: int, seqs: Sequence[int], types: Sequence[str]) -> None:
        noted_seqs, noted_types = self._noted.setdefault((q, code), ([], []))
        noted_seqs.extend(seqs)
        noted_types.extend(types)

    def flush(self) -> None:
        commit, db = self.commit, self.commit.db
        for (q, attempts), (seqs, bodies) in self._simple.items():
            db.send("publish_simple", q, commit.now, commit.ahead, attempts, Ints(seqs), Blobs(bodies))
        if self._rows:
            *numbers, packed = zip(*self._rows, strict=True)
            db.send("publish_without_lookup", commit.now, commit.ahead, *map(Ints, numbers), Blobs(packed))
            for _, _, _, _, expires, run_at, _ in self._rows:
                for at in (expires, run_at):
                    if at is not None:
                        commit.falls_due(at)
        self._record({})
        self._simple, self._rows = {}, []
        self._write_correlations()

    def _write_correlations(self) -> None:
        if self._correlated:
            correlate(self.commit, self._correlated)
            self._correlated = []

    def _record(self, own: Mapping[int, bytes]) -> None:
        """Journal and count what was noted. ``own`` are the ids that users gave, by sequence number."""
        commit = self.commit
        for (q, code), (seqs, types) in self._noted.items():
            record = commit.record("publish", q, code)
            if own:
                record.own.update({i: own[seq] for i, seq in enumerate(seqs, len(record.seqs)) if seq in own})
            record.extend(seqs, [commit.stamp] * len(seqs), [0] * len(seqs), types)
            commit.count(q, code, len(seqs))
            if code == READY:
                commit.became_ready(q, len(seqs))
        self._noted = {}
