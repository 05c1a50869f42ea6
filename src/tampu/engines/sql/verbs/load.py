"""load: store many simple messages under given ids, without making an object for each.

Contract: a call is all or nothing; refused with QueueFull, and with IdempotencyConflict if another queue has one of the
ids. A message that the queue has already stays as it is. The others become ready in order. Loads with the same id
prefix wait for each other, so that no message is stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tampu.engines.encoding import READY, Record
from tampu.engines.load import NUMBER_BYTES, check
from tampu.engines.port import Load
from tampu.engines.rules import full, of_another_queue
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Db, Ints, Uuids
from tampu.engines.sql.locks import queue_lock
from tampu.engines.sql.verbs.publish_with_lookup import depth

Insert = Callable[[Any, Load, int, Sequence[int]], tuple[Sequence[int], Sequence[bytes]]]
"""Stores the messages at these positions of a call in a queue; returns their sequence numbers and ids."""


def insert_rows(commit: Commit, call: Load, q: int, chosen: Sequence[int]) -> tuple[Sequence[int], Sequence[bytes]]:
    seqs, starts, bodies = commit.numbers(len(chosen)), call.starts, call.bodies
    ids = [call.id_prefix + call.numbers[i].to_bytes(NUMBER_BYTES, "big") for i in chosen]
    commit.db.send(
        "insert_loaded",
        q,
        commit.now,
        commit.ahead,
        call.max_attempts,
        Ints(seqs),
        Uuids(ids),
        Blobs(bytes(bodies[starts[i] : starts[i + 1]]) for i in chosen),
    )
    return seqs, ids


def locks(call: Load) -> Iterator[bytes]:
    yield id_prefix_lock(call)
    if call.max_depth:
        yield queue_lock(call.tenant, call.queue)


def id_prefix_lock(call: Load) -> bytes:
    return b"load/%s/%s" % (call.tenant.encode(), call.id_prefix)


def load(commit: Commit, call: Load, insert: Insert = insert_rows) -> int:
    check(call)
    known = known_numbers(commit.db, call)
    chosen: Sequence[int] = range(len(call.numbers))
    if known:
        chosen = [i for i in chosen if call.numbers[i] not in known]
    if not chosen:
        return 0
    q = commit.registry.number(commit.db, call.tenant, call.queue)
    if call.max_depth and (0 if q is None else depth(commit, q)) + len(chosen) > call.max_depth:
        raise full(call)
    if q is None:
        q = commit.queue(call.tenant, call.queue)
    seqs, ids = insert(commit, call, q, chosen)
    record = commit.record("publish", q, READY)
    record.own.update(enumerate(ids, len(record.seqs)))
    types = [call.types[i] for i in chosen] if known else list(call.types)
    record_stored(commit, record, q, seqs, types)
    return len(seqs)


def record_stored(commit: Commit, record: Record, q: int, seqs: Sequence[int], types: list[str]) -> None:
    """Journal and count messages that were stored, and wake waiting claims."""
    record.extend(seqs, [commit.stamp] * len(seqs), [0] * len(seqs), types)
    commit.count(q, READY, len(seqs))
    commit.became_ready(q, len(seqs))


def known_numbers(db: Db, call: Load) -> set[int]:
    """The numbers whose messages the queue has already. Raises if another queue of the tenant has one of them."""
    low, high = (call.id_prefix + n.to_bytes(NUMBER_BYTES, "big") for n in (call.numbers[0], call.numbers[-1]))
    found = {
        int.from_bytes(id[-NUMBER_BYTES:], "big"): queue
        for id, queue in db.rows("find_loaded_ids", call.tenant, low, high)
    }
    if not {number for number, queue in found.items() if queue != call.queue}.isdisjoint(call.numbers):
        raise of_another_queue()
    return set(found)
