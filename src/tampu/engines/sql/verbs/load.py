"""load: store many simple messages under given ids, without making an object for each.

Contract: a call is all or nothing; refused with QueueFull. A message whose id exists already stays as it is. The others
become ready in order. Loads with the same id prefix wait for each other, so that no message is stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.encoding import READY, Record
from tampu.engines.load import NUMBER_BYTES, check
from tampu.engines.port import Load
from tampu.engines.rules import full
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Db, Ints, Uuids
from tampu.engines.sql.locks import queue_lock
from tampu.engines.sql.verbs.publish_with_lookup import depth
from tampu.model.errors import TampuError


def load(commit: Commit, calls: Sequence[Load]) -> list[int | TampuError]:
    commit.locks.take(
        [id_prefix_lock(call) for call in calls]
        + [queue_lock(call.tenant, call.queue) for call in calls if call.max_depth]
    )
    replies: list[int | TampuError] = []
    for call in calls:
        try:
            replies.append(_load(commit, call))
        except TampuError as error:
            replies.append(error)
    return replies


def id_prefix_lock(call: Load) -> bytes:
    return b"load/%s/%s" % (call.tenant.encode(), call.id_prefix)


def _load(commit: Commit, call: Load) -> int:
    check(call)
    numbers, starts, bodies = call.numbers, call.starts, call.bodies
    known = known_numbers(commit.db, call)
    chosen = [i for i, number in enumerate(numbers) if number not in known]
    if not chosen:
        return 0
    q = commit.registry.number(commit.db, call.tenant, call.queue)
    if call.max_depth and (0 if q is None else depth(commit, q)) + len(chosen) > call.max_depth:
        raise full(call)
    if q is None:
        q = commit.queue(call.tenant, call.queue)
    seqs = commit.numbers(len(chosen))
    ids = [call.id_prefix + numbers[i].to_bytes(NUMBER_BYTES, "big") for i in chosen]
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
    record = commit.record("publish", q, READY)
    record.own.update(enumerate(ids, len(record.seqs)))
    record_stored(commit, record, q, seqs, [call.types[i] for i in chosen])
    return len(seqs)


def record_stored(commit: Commit, record: Record, q: int, seqs: Sequence[int], types: list[str]) -> None:
    """Journal and count messages that were stored, and wake waiting claims."""
    record.extend(seqs, [commit.stamp] * len(seqs), [0] * len(seqs), types)
    commit.count(q, READY, len(seqs))
    commit.became_ready(q, len(seqs))


def known_numbers(db: Db, call: Load) -> set[int]:
    """The numbers whose messages exist already in this tenant."""
    low, high = (call.id_prefix + n.to_bytes(NUMBER_BYTES, "big") for n in (call.numbers[0], call.numbers[-1]))
    rows = db.rows("find_loaded_ids", call.tenant, low, high)
    return {int.from_bytes(id[-NUMBER_BYTES:], "big") for (id,) in rows}
