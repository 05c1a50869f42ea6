"""Fast path: commits of one round trip for the common batches of publish, claim and ack, each as one statement.

A batch of simple messages, a claim of new messages, and the acks of one claim need no decision in Python. The statement
also writes what `Commit.finish` writes: journal record, counts, and the row of the claim. All other calls, and those
that a statement finds not to be simple, take the general path.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, cast

import msgspec
from psycopg import errors

from tampu.engines.encoding import DONE, LEASED, READY, STATES, pack_seqs
from tampu.engines.port import Call, Claim, Publish, Settle
from tampu.engines.postgres.database import Db
from tampu.engines.sql.commit import BLOCK, Commit
from tampu.engines.sql.db import Blobs, Ints, blob
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.verbs.claim import SOON
from tampu.engines.sql.verbs.settle import acks_of_one_claim
from tampu.model.message import Lease, Message, State, unpack_body
from tampu.model.outcome import Outcome

Done = tuple[list[Any], Commit]
FEWEST, FURTHEST = 100, 12_800
"""After a claim or ack that was not simple, this many of its queue take the general path; doubled each time."""
MOST = 10_000
"""Most messages of one statement."""
_FEW, _FAR = 8, 16 * BLOCK
"""Most ranges of numbers that get a journal entry each (see `claim_in_one_statement`), and their greatest span: the
statement reads all numbers in between."""
_pack = msgspec.msgpack.Encoder().encode
_NOTHING = _pack(None)
_COLUMNS = b"\x99"
"""MessagePack: an array of nine follows (see `tampu.engines.encoding.Record`)."""
_LONG, _BYTES, _RUN = b"\xcf", b"\xc6", b"\xc4\x14"
"""MessagePack: what follows is an unsigned number of eight bytes; bytes with a length of four bytes; 20 bytes."""


class SingleStatement:
    """The fast path of one engine."""

    def __init__(self, registry: QueueRegistry) -> None:
        self._registry = registry
        self._left: dict[tuple[type[Any], int], int] = {}
        """By verb and queue: how many calls take the general path before the next try."""
        self._refused: dict[tuple[type[Any], int], int] = {}
        """By verb and queue: how many it was the last time."""

    def run(self, db: Db, calls: Sequence[Call], now: int | None) -> Done | None:
        """Run the calls; None: nothing was done, they must take the general path."""
        kind = type(calls[0])
        if any(type(call) is not kind for call in calls):
            return None
        if kind is Publish:
            return self._publish(db, cast("Sequence[Publish]", calls), now)
        if kind is Settle:
            return self._ack(db, cast("Sequence[Settle]", calls), now)
        return self._claim(db, calls[0], now) if isinstance(calls[0], Claim) and len(calls) == 1 else None

    def _worth_trying(self, verb: type[Any], q: int) -> bool:
        """True if the fast path is worth trying."""
        left = self._left.get((verb, q), 0)
        if left:
            self._left[verb, q] = left - 1
        return not left

    def _pause(self, verb: type[Any], q: int) -> None:
        times = min(2 * self._refused.get((verb, q), FEWEST // 2), FURTHEST)
        self._left[verb, q] = self._refused[verb, q] = times

    # -- publish

    def _publish(self, db: Db, calls: Sequence[Publish], now: int | None) -> Done | None:
        tenant, name = calls[0].tenant, calls[0].queue
        for call in calls:
            if not call.simple or call.max_depth or call.queue != name or call.tenant != tenant:
                return None
        items = calls[0].items if len(calls) == 1 else [item for call in calls for item in call.items]
        q = self._registry.numbers.get((tenant, name))
        if q is None or not 0 < len(items) <= BLOCK:
            return None
        attempts = items[0].max_attempts
        types = [item.body.type for item in items]
        if any(item.max_attempts != attempts for item in items):
            return None
        type_column = types[0] if types.count(types[0]) == len(types) else types
        state = State.READY

        def make(answer: list[Any]) -> tuple[int, list[Message]]:
            ((now, first),) = answer
            stamp = max(self._registry.stamp, now // 1000)
            ids = self._registry.id.many([stamp] * len(items), range(first, first + len(items)))
            return now, [
                Message(id, tenant, name, state, item.body, 0, attempts, now)
                for id, item in zip(ids, items, strict=True)
            ]

        began, made = db.whole(
            "publish_in_one_statement",
            len(items),
            make,
            q,
            now,
            db.synchronous,
            self._registry.stamp,
            attempts,
            Blobs([item.packed for item in items]),
            b"".join((_COLUMNS, _pack("publish"), _pack(READY), _NOTHING, _RUN)),
            struct.pack(">qI", 1, len(items)) + _LONG,
            _pack(0) + _pack(type_column) + _NOTHING + _NOTHING,
        )
        commit = Commit(db, self._registry, began)
        commit.became_ready(q, len(items))
        commit.named = {q: (tenant, name)}
        return _split_replies(calls, made), commit

    # -- claim

    def _claim(self, db: Db, call: Claim, now: int | None) -> Done | None:
        want = call.wants[0]
        q = self._registry.numbers.get((call.tenant, want.queue))
        if len(call.wants) > 1 or want.max_in_flight or want.rate or want.has_group_rate or self._registry.expects_due:
            return None
        if q is None or call.limit > MOST or not self._worth_trying(Claim, q):
            return None
        lease = secrets.randbits(63)
        before = b"".join((_COLUMNS, _pack("claim"), _pack(LEASED), _pack(call.worker), _BYTES))
        after = _pack(1) + _NOTHING + _NOTHING + _NOTHING
        tenant, queue, worker, leased = call.tenant, want.queue, call.worker, State.LEASED
        start, end = f"{queue}/", f".{lease:x}"

        def make(began: int, rows: list[Any]) -> list[Lease]:
            until = began + want.lease_us
            _, seqs, stamps, *_ = zip(*rows, strict=True) if rows else ((),) * 3
            ids = self._registry.id.many(stamps, seqs)
            return [
                Lease(
                    Message(id, tenant, queue, leased, unpack_body(body), 1, max_attempts, created),
                    f"{start}{seq:x}{end}",
                    until,
                    worker,
                )
                for id, (created, seq, _, max_attempts, _, body) in zip(ids, rows, strict=True)
            ]

        (began, simple, *due, _), leases = db.claim_in_one_statement(
            make, q, call.limit, lease, want.lease_us, blob(worker), now, record=(before, after)
        )
        next_ = min((at for at in due if at is not None), default=None)
        if next_ is not None and next_ <= began + SOON:
            self._registry.expects_due = True
            if next_ <= began:
                return None
        if simple == 0:
            self._pause(Claim, q)
            return None
        commit = Commit(db, self._registry, began)
        if leases:
            commit.note_claim(began + want.lease_us, lease, len(leases))
        return [leases], commit

    # -- ack

    def _ack(self, db: Db, calls: Sequence[Settle], now: int | None) -> Done | None:
        tenant = calls[0].tenant
        if any(call.tenant != tenant or call.notify_queues for call in calls):
            return None
        items = calls[0].items if len(calls) == 1 else [item for call in calls for item in call.items]
        if not 0 < len(items) <= MOST:
            return None
        q = self._registry.numbers.get((tenant, items[0].queue))
        found = acks_of_one_claim(items)
        if found is None or q is None or any(item.id is None for item in items) or not self._worth_trying(Settle, q):
            return None
        lease, seqs = found
        until = self._registry.open_claims.until_if_complete(lease, len(seqs))
        parts = ranges(sorted(seqs))
        walked = len(parts) > 1 or parts[0][-1] - parts[0][0] == len(seqs) - 1
        packed = [pack_seqs(part) for part in parts]
        done = STATES[DONE]

        def make(answer: list[Any]) -> tuple[int, list[Outcome]]:
            ((began,),) = answer
            return began, [Outcome(item.id, done) for item in items]

        try:
            began, outcomes = db.whole(
                "ack_in_one_statement",
                len(seqs),
                make,
                Ints(() if walked else seqs),
                lease,
                q,
                now,
                db.synchronous,
                len(seqs),
                pack_seqs(seqs) if until is None else b"",
                until,
                Ints(part[0] for part in parts),
                Ints(len(part) for part in parts),
                Blobs(packed),
                Blobs(b"".join((_COLUMNS, _pack("ack"), _pack(DONE), _NOTHING, _pack(one))) for one in packed),
                _NOTHING + _NOTHING + _NOTHING,
            )
        except errors.InvalidTextRepresentation:
            self._pause(Settle, q)
            return None
        commit = Commit(db, self._registry, began)
        commit.settled(lease, len(seqs))
        return _split_replies(calls, outcomes), commit


def ranges(seqs: Sequence[int]) -> list[Sequence[int]]:
    """Split ascending numbers where one is missing, if that gives few ranges close together; else all as one."""
    count = len(seqs)
    if seqs[-1] - seqs[0] < count or seqs[-1] - seqs[0] > _FAR:
        return [seqs]
    ends = [place for place, (one, two) in enumerate(pairwise(seqs), 1) if two - one > 1]
    if len(ends) >= _FEW or (len(ends) + 1) * _FEW > count:
        return [seqs]
    return [seqs[start:end] for start, end in zip([0, *ends], [*ends, count], strict=True)]


def _split_replies(calls: Sequence[Publish | Settle], replies: list[Any]) -> list[Any]:
    """Split the replies to all items by call."""
    if len(calls) == 1:
        return [replies]
    each = iter(replies)
    return [list(islice(each, len(call.items))) for call in calls]
