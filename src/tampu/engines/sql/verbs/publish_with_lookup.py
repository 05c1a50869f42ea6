"""publish of messages that need a look-up: keys, idempotency keys, given ids, groups and holds.

A call is looked up with one statement per kind, then decided item by item in memory, then written. So a refused call
has written nothing, and a batch of a thousand takes as many statements as a single message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tampu.engines.encoding import CODE, HELD, LIVE_KINDS, STATES, id_bytes
from tampu.engines.groups import Limits
from tampu.engines.port import Item, Publish
from tampu.engines.rules import conflict, ended, full, made_by_the_store, of_another_queue, replaced
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Values, blob
from tampu.engines.sql.locks import fair_lock, group_lock, key_lock
from tampu.engines.sql.read import find, load
from tampu.engines.sql.rules import idempotency_keys
from tampu.engines.sql.rules.correlations import correlate
from tampu.engines.sql.rules.groups import admit
from tampu.engines.sql.rules.indexes import hold, restore_marks
from tampu.engines.sql.rules.message_row import MessageRow, Waiting
from tampu.engines.sql.rules.moves import end_waiting
from tampu.model.message import Message, State
from tampu.model.rank import FAIR, rank
from tampu.model.values import pack_body


def depth(commit: Commit, q: int) -> int:
    counts = commit.counts_by_state(q)
    return sum(counts[kind] for kind in LIVE_KINDS)


def due_at(item: Item, now: int) -> int | None:
    """When an item is due; None: at once."""
    run_at = item.run_us if item.delay_us is None else now + item.delay_us
    return run_at if run_at is not None and run_at > now else None


def needs_lookup(item: Item) -> bool:
    body = item.body
    return bool(
        body.key or body.idempotency_key or item.hold or item.group is not None or item.id or item.ordering == "fair"
    )


def locks(call: Publish) -> set[bytes]:
    """Names of the locks for everything that a call looks up."""
    names = set()
    tenant = call.tenant.encode()
    if any(item.ordering == "fair" for item in call.items):
        names.add(fair_lock(call.tenant, call.queue))
    for item in call.items:
        body = item.body
        if body.idempotency_key is not None:
            names.add(b"request/%s/%s" % (tenant, idempotency_keys.name(call.queue, body.idempotency_key)))
        if item.id is not None:
            names.add(b"id/%s/%s" % (tenant, item.id.encode()))
        if body.key is not None:
            names.add(key_lock(call.tenant, call.queue, body.key))
        if item.group is not None:
            names.add(group_lock((call.tenant, call.queue), item.group.encode()))
    return names


def publish(commit: Commit, call: Publish) -> list[Message]:
    work = _LookupBatch(commit, call)
    replies = [work.take(item) for item in call.items]
    return work.write(replies)


class _New(msgspec.Struct):
    """A message to be stored. A later item of the call may change its payload."""

    seq: int
    item: Item
    message: Message
    run_at: int | None
    packed: bytes


class _LookupBatch:
    """The items of one call: looked up together, decided by `take`, written by `write`."""

    def __init__(self, commit: Commit, call: Publish) -> None:
        self.commit = commit
        self.call = call
        self.q = commit.registry.number(commit.db, call.tenant, call.queue)
        self.new: dict[int, _New] = {}
        self._numbers = self._draw()
        self._replaced: dict[int, Message] = {}
        self._replacing: list[tuple[int, Message, str]] = []
        self._new_requests: list[tuple[Item, int, int, bytes | None]] = []
        self._depth = 0
        if call.max_depth:
            self._depth = 0 if self.q is None else depth(commit, self.q)
        self._look_up()

    def _draw(self) -> Iterator[int]:
        """Draws no number if nothing is new: then the commit writes nothing."""
        yield from self.commit.numbers(len(self.call.items))

    def _look_up(self) -> None:
        """Find the messages that the keys and ids of the call refer to."""
        db, tenant, items = self.commit.db, self.call.tenant, self.call.items
        requests = {item.body.idempotency_key for item in items if item.body.idempotency_key is not None}
        self._requests: dict[bytes, tuple[int, int, bytes | None, bytes]] = {}
        if requests:
            names = {idempotency_keys.name(self.call.queue, key) for key in requests}
            names.update(map(idempotency_keys.without_queue, requests))
            rows = db.rows(
                "find_idempotency_keys",
                idempotency_keys.scope(tenant),
                self.commit.now,
                Values("b", [(name,) for name in names]),
            )
            self._requests = {key: (seq, stamp, own, digest) for key, seq, stamp, own, digest in rows}
        given = [item.id for item in items if item.id is not None]
        self._ids: dict[str, int] = {}
        if given:
            if any(map(self._is_made, given)):
                raise made_by_the_store()
            self._ids = {id: seq for id, (seq, _) in find(db, self.commit.registry, tenant, given).items()}
        keys = {item.body.key.encode() for item in items if item.body.key is not None}
        self._keys: dict[bytes, int] = {}
        if keys and self.q is not None:
            self._keys = dict(db.rows("lock_keys", self.q, Values("b", [(key,) for key in sorted(keys)])))
        wanted = {*self._ids.values(), *self._keys.values(), *(seq for seq, *_ in self._requests.values())}
        self._found = load(db, self.commit.registry, sorted(wanted)) if wanted else {}

    def _is_made(self, id: str) -> bool:
        """True if the id has the form of those that the store makes."""
        scheme = self.commit.registry.id
        made = scheme.seq_of(id)
        return made is not None and (scheme.ahead is None or made.seq < self.commit.numbers(1)[0] + scheme.ahead)

    def take(self, item: Item) -> Message:
        """Decide what to do with one item; `write` does it."""
        known = self._known(item)
        if known is not None:
            return known
        body = item.body
        if body.key is not None and item.ends is None:
            waiting = self._keys.get(body.key.encode())
            if waiting is not None:
                return self._replace(waiting, item)
        if self.call.max_depth and item.ends is None:
            if self._depth >= self.call.max_depth:
                raise full(self.call)
            self._depth += 1
        return self._make(item)

    def _known(self, item: Item) -> Message | None:
        """The existing message with the item's id or idempotency key."""
        if item.body.idempotency_key is not None:
            entry = self._request(item, item.body.idempotency_key)
            if entry is not None:
                seq, stamp, own, digest = entry
                if digest != item.digest:
                    raise conflict()
                id = self.commit.id(seq, stamp, own)
                return as_duplicate(self._message(seq) or removed(self.call, item, id, stamp))
        if item.id is not None:
            known_seq = self._ids.get(item.id)
            found = None if known_seq is None else self._message(known_seq)
            if found is not None:
                if found.queue != self.call.queue:
                    raise of_another_queue()
                return as_duplicate(found)
        return None

    def _request(self, item: Item, key: str) -> tuple[int, int, bytes | None, bytes] | None:
        """What the idempotency key refers to. One without a queue is of this one if the digests, which include the
        queue, are equal."""
        entry = self._requests.get(idempotency_keys.name(self.call.queue, key))
        if entry is None:
            entry = self._requests.get(idempotency_keys.without_queue(key))
            *_, digest = entry or (None,)
            if digest != item.digest:
                return None
        return entry

    def _message(self, seq: int) -> Message | None:
        made = self.new.get(seq)
        return made.message if made is not None else self._replaced.get(seq) or self._found.get(seq)

    def _replace(self, seq: int, item: Item) -> Message:
        """Replace the payload of the waiting message with this key: id, order and attempts stay."""
        old = self._message(seq)
        assert old is not None
        self._note_key(item, seq, old.id)
        message = msgspec.structs.replace(old, body=replaced(old.body, item.body))
        made = self.new.get(seq)
        if made is not None:
            made.message, made.packed = message, pack_body(message.body)
        else:
            self._replaced[seq] = message
        self._replacing.append((seq, message, item.body.type))
        return as_duplicate(message)

    def _make(self, item: Item) -> Message:
        commit, body = self.commit, item.body
        seq, now = next(self._numbers), commit.now
        if item.id is not None:
            seq = commit.registry.id.given(seq)
        run_at = due_at(item, now)
        message = Message(
            item.id or commit.registry.id.of(commit.stamp, seq),
            self.call.tenant,
            self.call.queue,
            State.HELD if item.hold else State.READY if run_at is None else State.DELAYED,
            body,
            0,
            item.max_attempts,
            now,
            run_at,
            item.expires(now),
            reason=item.hold,
        )
        self.new[seq] = _New(seq, item, message, run_at, item.packed)
        if body.key is not None and item.ends is None:
            self._keys[body.key.encode()] = seq
        if item.id is not None:
            self._ids[item.id] = seq
        self._note_key(item, seq, message.id)
        return message

    def _note_key(self, item: Item, seq: int, id: str) -> None:
        """From now on the item's idempotency key returns this message."""
        key = item.body.idempotency_key
        if key is not None and item.window_us and item.digest is not None:
            made = self.commit.registry.id.seq_of(id)
            own = None if made is not None and made.seq == seq else id_bytes(id)
            stamp = self.commit.stamp if made is None else made.stamp
            self._requests[idempotency_keys.name(self.call.queue, key)] = (seq, stamp, own, item.digest)
            self._new_requests.append((item, seq, stamp, own))

    # -- writing

    def write(self, replies: list[Message]) -> list[Message]:
        commit, news = self.commit, list(self.new.values())
        if news:
            q = commit.queue(self.call.tenant, self.call.queue)
            new_rows = [self._row_of(q, new) for new in news]
            self._store(news, new_rows)
            self._admit(news, new_rows)
        self._write_requests()
        self._write_replaced()
        # States are final only after groups have admitted or held the messages: put them into the replies.
        by_id = {new.message.id: new.message for new in news}
        return [_final(reply, by_id.get(reply.id)) for reply in replies]

    def _row_of(self, q: int, new: _New) -> MessageRow:
        item, body, now = new.item, new.item.body, self.commit.now
        row_rank = rank(item.ordering, item.ageing_us, body.priority, body.deadline, now)
        if row_rank == FAIR:
            self.commit.turns.groups[new.seq] = (body.group or "").encode()
        own = id_bytes(item.id) if item.id else None
        expires = new.message.expires_us
        named = body.key is not None
        return MessageRow(
            new.seq, q, 0, self.commit.stamp, own, blob(item.group), row_rank, item.max_attempts, expires, named
        )  # fmt: skip

    def _store(self, news: list[_New], new_rows: list[MessageRow]) -> None:
        rows = [
            (row.seq, row.q, row.rank, row.max_attempts, row.expires, blob(new.item.body.key), row.group, row.own,
             new.packed)
            for row, new in zip(new_rows, news, strict=True)
        ]  # fmt: skip
        self.commit.db.send("insert_messages", self.commit.now, self.commit.ahead, Values("iiiiibbub", rows))
        self._correlate((new.seq, new.message) for new in news)

    def _correlate(self, messages: Iterable[tuple[int, Message]]) -> None:
        found = [(seq, self.call.tenant, m.correlation_id) for seq, m in messages if m.correlation_id is not None]
        if found:
            correlate(self.commit, found)

    def _admit(self, news: list[_New], new_rows: list[MessageRow]) -> None:
        commit = self.commit
        pairs = list(zip(news, new_rows, strict=True))
        staying = [(new, row) for new, row in pairs if new.item.ends is None]
        restore_marks(commit, [row for _, row in staying])
        hold(
            commit,
            [(row, new.run_at, None, None, new.item.hold.encode()) for new, row in staying if new.item.hold],
        )
        slots = self.call.slots
        limits = None if slots is None else Limits(slots, self.call.group_rate)
        going: list[Waiting] = [(row, new.run_at, None) for new, row in pairs if not new.item.hold]
        states = iter(admit(commit, going, limits))
        for new, row in pairs:
            state = HELD if new.item.hold else next(states)
            record = commit.record("publish", row.q, state)
            if row.own is not None:
                record.own[len(record.seqs)] = row.own
            record.extend([row.seq], [row.stamp], [0], [new.item.body.type])
            reason = new.item.hold or ("group" if state == HELD else None)
            run_us = commit.waits.get(row.seq, new.message.run_us)
            message = new.message
            if (message.state, message.reason, message.run_us) != (STATES[state], reason, run_us):
                new.message = msgspec.structs.replace(message, state=STATES[state], reason=reason, run_us=run_us)
        if len(staying) < len(pairs):
            end_waiting(commit, [(row, new.item.ends) for new, row in pairs if new.item.ends is not None])
            for new, _ in pairs:
                new.message = ended(new.message, new.item.ends)

    def _write_requests(self) -> None:
        if self._new_requests:
            last = {item.body.idempotency_key: (item, seq, stamp, own) for item, seq, stamp, own in self._new_requests}
            rows = [
                (idempotency_keys.name(self.call.queue, key or ""), seq, stamp, self.commit.now + item.window_us, own,
                 item.digest)
                for key, (item, seq, stamp, own) in last.items()
            ]  # fmt: skip
            scope = idempotency_keys.scope(self.call.tenant)
            self.commit.db.send("upsert_idempotency_keys", scope, Values("biiiub", rows))

    def _write_replaced(self) -> None:
        if self._replaced:
            bodies = [(seq, pack_body(message.body)) for seq, message in self._replaced.items()]
            self.commit.db.send("replace_bodies", Values("ib", bodies))
            self._correlate(self._replaced.items())
        if self._replacing:
            assert self.q is not None or self.new
            q = self.commit.queue(self.call.tenant, self.call.queue)
            for seq, message, kind in self._replacing:
                made = self.new.get(seq)
                state = CODE[made.message.state if made is not None else message.state]
                stamp, own = self._stamp(seq, message.id)
                record = self.commit.record("replace", q, state)
                if own is not None:
                    record.own[len(record.seqs)] = own
                record.extend([seq], [stamp], [message.attempts], [kind])

    def _stamp(self, seq: int, id: str) -> tuple[int, bytes | None]:
        made = self.commit.registry.id.seq_of(id)
        return (made.stamp, None) if made is not None and made.seq == seq else (self.commit.stamp, id_bytes(id))


def _final(reply: Message, made: Message | None) -> Message:
    """The reply, with the state that its message has in the end."""
    if made is None:
        return reply
    if not reply.duplicate and reply.body is made.body:
        return made
    return msgspec.structs.replace(
        reply, state=made.state, reason=made.reason, run_us=made.run_us, ended_us=made.ended_us,
        last_error=made.last_error,
    )  # fmt: skip


def removed(call: Publish, item: Item, id: str, stamp: int) -> Message:
    """The reply when the first message has ended and been removed: only its id is still known."""
    return Message(id, call.tenant, call.queue, State.DONE, item.body, 0, item.max_attempts, stamp * 1000)


def as_duplicate(message: Message) -> Message:
    return msgspec.structs.replace(message, duplicate=True)
