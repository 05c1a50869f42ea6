"""publish: store messages in ready, delayed or held.

Plain messages of all calls of a commit are written together, also those with a new user-given id: one statement looks
up fifty ids. Calls that need other look-ups (keys, groups, holds, existing ids) run one by one; see
`tampu.engines.sql.verbs.publish_with_lookup`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tampu.engines.encoding import DELAYED, READY, id_bytes
from tampu.engines.port import Item, Publish
from tampu.engines.sql.verbs.publish import Batch, store
from tampu.engines.sql.verbs.publish_with_lookup import due_at
from tampu.engines.sqlite import ids, ready
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.database import sql_of
from tampu.engines.sqlite.verbs import batch_ids
from tampu.model.errors import TampuError
from tampu.model.message import Message, State
from tampu.model.rank import FAIR, rank

# Bodies are bound as bytearray: sqlite3 looks for an adapter of every bytes, which takes longer than the copy.
_INSERT_PLAIN = sql_of("insert_plain")
_INSERT_OWN = sql_of("insert_plain_with_id")
_INSERT_DELAYED = sql_of("insert_delayed")
_SET_EXPIRES, _INSERT_EXPIRY = sql_of("set_expires"), sql_of("insert_expiry")
_LOOKED_UP = 50
_THERE = sql_of("any_id_exists")


def publish(commit: Commit, calls: Sequence[Publish]) -> list[list[Message] | TampuError]:
    """Answer named batches that are stored already. Store the others, with their names."""
    if not any(call.batch_id for call in calls):
        return store(_Plain(commit), calls)
    replies: dict[int, list[Message] | TampuError] = {}
    first: dict[tuple[str, str, str], int] = {}
    for at, call in enumerate(calls):
        name = (call.tenant, call.queue, call.batch_id or f"/{at}")
        if first.setdefault(name, at) == at and call.batch_id:
            try:
                there = batch_ids.found(commit, call)
            except TampuError as error:
                replies[at] = error
            else:
                if there is not None:
                    replies[at] = there
    fresh = [at for at in first.values() if at not in replies]
    for at, reply in zip(fresh, store(_Plain(commit), [calls[at] for at in fresh]), strict=True):
        replies[at] = reply
        if calls[at].batch_id and not isinstance(reply, TampuError):
            batch_ids.remember(commit, calls[at], reply)
    # The second of two equal batches in one commit finds what was stored for the first.
    return [replies[at] if at in replies else publish(commit, [call])[0] for at, call in enumerate(calls)]


def _special(item: Item) -> bool:
    body = item.body
    return bool(body.key or body.idempotency_key or item.hold or item.group is not None)


class _Plain(Batch):
    """Messages that need no look-up. Gathered over the calls of a commit, written with one statement per table."""

    commit: Commit

    def __init__(self, commit: Commit) -> None:
        super().__init__(commit)
        self._messages: list[tuple[int, int, int, int, int, bytearray]] = []
        self._own: list[tuple[int, int, int, int, int, bytes, bytearray]] = []
        self._ids: dict[int, bytes] = {}
        """User-given ids, by sequence number."""
        self._expiry: list[tuple[int, int]] = []
        self._delayed: list[tuple[int, int, None, int, int]] = []
        self._runs: list[ready.Row] = []

    def takes(self, items: Sequence[Item]) -> bool:
        return not any(map(_special, items)) and self._are_new(items)

    def _are_new(self, items: Sequence[Item]) -> bool:
        """True if no message, of any tenant, has one of these ids."""
        given = [item.id for item in items if item.id]
        if not given:
            return True
        unknown = set(given)
        if len(unknown) < len(given) or any(map(self.commit.registry.id.seq_of, given)):
            return False
        raw = [id_bytes(id) for id in given]
        if self._ids and not set(raw).isdisjoint(self._ids.values()):
            return False
        for start in range(0, len(raw), _LOOKED_UP):
            some = raw[start : start + _LOOKED_UP]
            some += some[-1:] * (_LOOKED_UP - len(some))
            if self.commit.db.execute(_THERE, some).fetchone() is not None:
                return False
        return True

    def add(self, call: Publish) -> list[Message]:
        commit, now, id_of, tenant = self.commit, self.commit.now, self.commit.registry.id.of, call.tenant
        made = []
        messages, name = self._messages, call.queue
        q = commit.queue(tenant, name)
        turns = self._turns(q, call.items)
        for seq, item in zip(commit.numbers(len(call.items)), call.items, strict=True):
            body = item.body
            if item.id:
                seq += 1  # noqa: PLW2901 - odd numbers have a user-given id
            place = 0
            if item.ordering != "fifo":
                place = rank(item.ordering, item.ageing_us, body.priority, body.deadline, now)
            expires = item.expires(now)
            if expires is not None:
                self._expiry.append((expires, seq))
            run_at = due_at(item, now)
            if run_at is not None:
                self._delayed.append((seq, run_at, None, q, 0))
                state, code = State.DELAYED, DELAYED
            else:
                self._enter(q, place if place != FAIR else next(turns), seq, seq)
                state, code = State.READY, READY
            if item.id:
                own = self._ids[seq] = id_bytes(item.id)
                self._own.append((seq, q, place, now, item.max_attempts, own, bytearray(item.packed)))
            else:
                messages.append((seq, q, place, now, item.max_attempts, bytearray(item.packed)))
            self._note(q, code, (seq,), (body.type,))
            if body.correlation_id is not None:
                self._correlated.append((seq, tenant, body.correlation_id))
            made.append(
                Message(item.id or id_of(0, seq), tenant, name, state, body, 0, item.max_attempts, now, run_at, expires)
            )
        return made

    def _turns(self, q: int, items: Sequence[Item]) -> Iterator[int]:
        """The ranks of those that are ready now in a queue with fair order."""
        fair = [item for item in items if item.ordering == "fair" and due_at(item, self.commit.now) is None]
        groups = [(q, (item.body.group or "").encode()) for item in fair]
        return iter(self.commit.turns.ranks(groups) if groups else ())

    def add_simple(self, calls: Sequence[Publish]) -> list[list[Message]]:
        """`add` for simple calls to one queue: 8 % less work, and calls can be stored together."""
        now, tenant, name = self.commit.now, calls[0].tenant, calls[0].queue
        items = calls[0].items if len(calls) == 1 else [item for call in calls for item in call.items]
        q = self.commit.queue(tenant, name)
        numbers = self.commit.numbers(len(items))
        self._messages.extend(
            [
                (seq, q, 0, now, item.max_attempts, bytearray(item.packed))
                for seq, item in zip(numbers, items, strict=True)
            ]
        )
        self._enter(q, 0, numbers[0], numbers[-1])
        self._note(q, READY, numbers, [item.body.type for item in items])
        state = State.READY
        made = [
            Message(id, tenant, name, state, item.body, 0, item.max_attempts, now)
            for id, item in zip(self.commit.registry.id.many((), numbers), items, strict=True)
        ]
        if len(calls) == 1:
            return [made]
        rest = iter(made)
        return [list(itertools.islice(rest, len(call.items))) for call in calls]

    def _enter(self, q: int, rank: int, first: int, last: int) -> None:
        """Add ready messages. They extend the last run if they follow it."""
        if self._runs:
            owner, same, pos, seq, _, _, before = self._runs[-1]
            if (owner, same, before) == (q, rank, first - ids.STEP):
                self._runs[-1] = (q, rank, pos, seq, 0, None, last)
                return
        self._runs.append((q, rank, first, first, 0, None, last))

    def flush(self) -> None:
        if not self._noted:
            return
        commit, db = self.commit, self.commit.db
        db.executemany(_INSERT_PLAIN, self._messages)
        db.executemany(_INSERT_OWN, self._own)
        if self._delayed:
            db.executemany(_INSERT_DELAYED, self._delayed)
            commit.falls_due(min(run_at for _, run_at, _, _, _ in self._delayed))
        db.executemany(ready.INSERT, self._runs)
        self._record(self._ids)
        if self._expiry:
            db.executemany(_SET_EXPIRES, self._expiry)
            db.executemany(_INSERT_EXPIRY, self._expiry)
            soonest, _ = min(self._expiry)
            commit.falls_due(soonest)
        self._write_correlations()
        self._messages, self._own, self._ids, self._expiry, self._delayed, self._runs = [], [], {}, [], [], []
