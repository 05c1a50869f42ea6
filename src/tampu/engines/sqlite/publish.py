"""publish: store messages in ready, delayed or held.

Contract: a call is all or nothing. Refuses with QueueFull when a queue would hold more than its max_depth of
messages that have not ended, and IdempotencyConflict. A key replaces the payload of the waiting message that has
it; an idempotency key within its window, or an id that is there, answers with the first message.

Plain messages of all calls of a commit are written together. Only calls that must look something up (keys, ids,
groups, holds) go one by one, inside a savepoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from tampu.engines.port import Item, Load, Publish
from tampu.engines.sqlite import ids, ready
from tampu.engines.sqlite.codes import CODE, DELAYED, HELD, READY, STATES
from tampu.engines.sqlite.commit import LIVE_KINDS, Commit
from tampu.engines.sqlite.reading import load
from tampu.model.errors import IdempotencyConflict, QueueFull, TampuError
from tampu.model.message import Message, State, pack_body
from tampu.model.rank import rank

# Columns that are NULL are left out and bodies are bound as bytearray: sqlite3 looks for an adapter of every None and
# bytes, which costs as much as the row itself (8 µs a row against 2).
_INSERT_PLAIN = "INSERT INTO tampu_message (seq, q, rank, created, max_attempts, body) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT = "INSERT INTO tampu_message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def publish(commit: Commit, calls: Sequence[Publish]) -> list[list[Message] | TampuError]:
    replies: list[list[Message] | TampuError] = []
    plain = _Plain(commit)
    for together in neighbours(calls):
        call = together[0]
        try:
            plain.check_room(call)
            if len(together) > 1:
                replies.extend(plain.add_together(together))
            elif call.bare:
                replies.append(plain.add_bare(call.tenant, call.queue, call.items))
            elif not any(_special(item) for item in call.items):
                replies.append(plain.add(call))
            else:
                plain.flush()
                with commit.attempt():
                    replies.append([_one(commit, call, item) for item in call.items])
        except TampuError as error:
            replies.append(error)
    plain.flush()
    return replies


def neighbours(calls: Sequence[Publish]) -> Iterator[list[Publish]]:
    """Calls that can be stored as one, as they come from many callers of one queue; the others by themselves."""
    for key, group in itertools.groupby(
        calls, lambda call: (call.tenant, call.queue) if call.bare and not call.max_depth else None
    ):
        if key is None:
            yield from ([call] for call in group)
        else:
            yield list(group)


def _special(item: Item) -> bool:
    body = item.body
    return bool(body.key or body.idempotency_key or body.hold or item.lane is not None or item.id)


def depth(commit: Commit, q: int) -> int:
    counts = commit.tally(q)
    return sum(counts[kind] for kind in LIVE_KINDS)


def full(call: Publish | Load) -> QueueFull:
    return QueueFull(
        f"queue {call.queue} is full: it may hold {call.max_depth} messages that have not ended",
        field="queue",
        hint="publish again when workers have caught up, or raise max_depth",
    )


class _Plain:
    """Messages that need no look-up, gathered over the calls of a commit and written with one statement per table."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self._messages: list[tuple[int, int, int, int, int, bytearray]] = []
        self._expiry: list[tuple[int, int]] = []
        self._delayed: list[tuple[int, int, int, int, None]] = []
        self._runs: list[ready.Row] = []
        self._queues: dict[tuple[str, str], int] = {}
        self._noted: dict[tuple[int, int], tuple[list[int], list[str]]] = {}

    def check_room(self, call: Publish) -> None:
        """Refuse a batch that would overfill its queue, counting what is gathered and not written yet."""
        if call.max_depth and not any(_special(item) for item in call.items):
            q = self.commit.house.number(self.commit.db, call.tenant, call.queue)
            held = 0 if q is None else depth(self.commit, q)
            held += sum(len(seqs) for (owner, _), (seqs, _) in self._noted.items() if owner == q)
            if held + len(call.items) > call.max_depth:
                raise full(call)

    def add(self, call: Publish) -> list[Message]:
        commit, now, id_of, tenant = self.commit, self.commit.now, self.commit.house.id.of, call.tenant
        made = []
        messages, noted, name = self._messages, self._noted, call.queue
        q = self._queue(tenant, name)
        for seq, item in zip(commit.numbers(len(call.items)), call.items, strict=True):
            body = item.body
            place = 0
            if item.ordering != "fifo":
                place = rank(item.ordering, item.ageing_us, body.priority, body.deadline, now)
            expires = None
            if item.ttl_us:
                expires = now + item.ttl_us
                self._expiry.append((expires, seq))
            run_at = item.run_us if item.delay_us is None else now + item.delay_us
            if run_at is not None and run_at > now:
                self._delayed.append((seq, q, run_at, 0, None))
                state, code = State.DELAYED, DELAYED
            else:
                run_at = None
                self._enter(q, place, seq, seq)
                state, code = State.READY, READY
            messages.append((seq, q, place, now, item.max_attempts, bytearray(item.packed)))
            seqs, types = noted[q, code]
            seqs.append(seq)
            types.append(body.type)
            made.append(Message(id_of(seq), tenant, name, state, body, 0, item.max_attempts, now, run_at, expires))
        return made

    def add_together(self, calls: Sequence[Publish]) -> Iterator[list[Message]]:
        """`add_bare` of several calls of one queue at once; the reply of each."""
        made = iter(self.add_bare(calls[0].tenant, calls[0].queue, [item for call in calls for item in call.items]))
        return (list(itertools.islice(made, len(call.items))) for call in calls)

    def add_bare(self, tenant: str, name: str, items: Sequence[Item]) -> list[Message]:
        """`add` without its questions: some 8 % less work, and calls can be stored together."""
        now = self.commit.now
        q = self._queue(tenant, name)
        numbers = self.commit.numbers(len(items))
        self._messages.extend(
            [
                (seq, q, 0, now, item.max_attempts, bytearray(item.packed))
                for seq, item in zip(numbers, items, strict=True)
            ]
        )
        self._enter(q, 0, numbers[0], numbers[-1])
        seqs, types = self._noted[q, READY]
        seqs.extend(numbers)
        types.extend([item.body.type for item in items])
        state = State.READY
        return [
            Message(id, tenant, name, state, item.body, 0, item.max_attempts, now)
            for id, item in zip(self.commit.house.id.many(numbers), items, strict=True)
        ]

    def _enter(self, q: int, rank: int, first: int, last: int) -> None:
        """These are ready; they prolong the run before them if they follow it."""
        if self._runs:
            owner, same, pos, seq, _, _, before = self._runs[-1]
            if (owner, same, before) == (q, rank, first - ids.STEP):
                self._runs[-1] = (q, rank, pos, seq, 0, None, last)
                return
        self._runs.append((q, rank, first, first, 0, None, last))

    def _queue(self, tenant: str, name: str) -> int:
        q = self._queues.get((tenant, name))
        if q is None:
            q = self._queues[tenant, name] = self.commit.queue(tenant, name)
            self._noted.update({(q, READY): ([], []), (q, DELAYED): ([], [])})
        return q

    def flush(self) -> None:
        if not self._messages:
            return
        commit, db = self.commit, self.commit.db
        db.executemany(_INSERT_PLAIN, self._messages)
        if self._delayed:
            commit.enter_delayed(self._delayed)
        ready.enter(db, self._runs)
        for (q, code), (seqs, types) in self._noted.items():
            if seqs:
                commit.record("publish", q, code).extend(seqs, [0] * len(seqs), types)
                if code == READY:
                    commit.count(q, READY, len(seqs))
                    commit.ready[q] = commit.ready.get(q, 0) + len(seqs)
        if self._expiry:
            db.executemany("UPDATE tampu_message SET expires = ? WHERE seq = ?", self._expiry)
            db.executemany("INSERT INTO tampu_expiry VALUES (?, ?)", self._expiry)
            commit.falls_due(min(self._expiry)[0])
        self._messages, self._expiry, self._delayed, self._runs, self._queues, self._noted = [], [], [], [], {}, {}


def _one(commit: Commit, call: Publish, item: Item) -> Message:
    """Publish one message that may already be there."""
    body, tenant = item.body, call.tenant
    known = _known(commit, call, item)
    if known is not None:
        return known
    q = commit.queue(tenant, call.queue)
    if body.key is not None:
        waiting = commit.db.execute("SELECT seq FROM tampu_key WHERE q = ? AND key = ?", (q, body.key)).fetchone()
        if waiting is not None:
            _remember(commit, tenant, waiting[0], item)
            return _replace(commit, q, waiting[0], item)
    if call.max_depth and depth(commit, q) >= call.max_depth:
        raise full(call)
    seq = commit.numbers(1)[0] + (1 if item.id else 0)
    now = commit.now
    place = rank(item.ordering, item.ageing_us, body.priority, body.deadline, now)
    expires = now + item.ttl_us if item.ttl_us else None
    run_at = item.run_us if item.delay_us is None else now + item.delay_us
    if run_at is not None and run_at <= now:
        run_at = None
    own = ids.id_bytes(item.id) if item.id else None
    commit.db.execute(_INSERT, (seq, q, place, now, item.max_attempts, expires, body.key, item.lane, own, item.packed))
    if expires is not None:
        commit.falls_due(expires)
    commit.restore_marks([seq])
    _remember(commit, tenant, seq, item)
    if body.hold:
        commit.hold(seq, q, None, body.hold, run_at, 0)
        code = HELD
    else:
        code = commit.admit(seq, q, place, run_at, 0, item.lane)
    commit.record("publish", q, code).extend([seq], [0], [body.type])
    return Message(
        commit.id(seq), tenant, call.queue, STATES[code], body, 0, item.max_attempts, now, run_at, expires,
        reason=body.hold or ("group" if code == HELD else None),
    )  # fmt: skip


def _known(commit: Commit, call: Publish, item: Item) -> Message | None:
    """The message that an id or an idempotency key stands for already."""
    key, tenant = item.body.idempotency_key, call.tenant
    if key is not None:
        row = commit.db.execute(
            "SELECT seq, id, digest, until FROM tampu_idempotency WHERE tenant = ? AND key = ?", (tenant, key)
        ).fetchone()
        if row is not None and row[3] > commit.now:
            if row[2] != item.digest:
                raise IdempotencyConflict(
                    "this idempotency key was used for a message with another body",
                    field="idempotency_key",
                    hint="use a new key for new work",
                )
            found = load(commit.db, commit.house, row[0])
            return _again(found) if found is not None else _gone(commit, call, item, row[0], row[1])
    if item.id is not None:
        place = commit.find(tenant, item.id)
        if place is not None:
            found = load(commit.db, commit.house, place[0])
            assert found is not None
            return _again(found)
    return None


def _again(message: Message) -> Message:
    return msgspec.structs.replace(message, duplicate=True)


def _gone(commit: Commit, call: Publish, item: Item, seq: int, own: bytes | None) -> Message:
    """The first message has ended and been removed; its id is still the answer."""
    id = ids.id_text(own) if own else commit.house.id.of(seq)
    created = (seq >> 20) * 1000
    return Message(id, call.tenant, call.queue, State.DONE, item.body, 0, item.max_attempts, created, duplicate=True)


def _remember(commit: Commit, tenant: str, seq: int, item: Item) -> None:
    if item.body.idempotency_key is not None and item.window_us:
        commit.db.execute(
            "INSERT OR REPLACE INTO tampu_idempotency VALUES (?, ?, ?, ?, ?, ?)",
            (
                tenant,
                item.body.idempotency_key,
                seq,
                ids.id_bytes(commit.id(seq)) if ids.own_id(seq) else None,
                item.digest,
                commit.now + item.window_us,
            ),
        )


def _replace(commit: Commit, q: int, seq: int, item: Item) -> Message:
    """Give the waiting message of this key the new payload, in place: id, order and attempts stay."""
    old = load(commit.db, commit.house, seq)
    assert old is not None
    kept = {name: getattr(old.body, name) for name in ("priority", "deadline", "group", "hold")}
    body = msgspec.structs.replace(item.body, **kept)
    commit.db.execute("UPDATE tampu_message SET body = ? WHERE seq = ?", (pack_body(body), seq))
    found = msgspec.structs.replace(old, body=body)
    commit.record("replace", q, CODE[found.state]).extend([seq], [found.attempts], [item.body.type])
    return _again(found)
