"""load: store many plain messages under ids of their own, without making an object of any.

Contract: a call is all or nothing; refuses with QueueFull. A message whose id is there already is left as it is. The
others become ready in their order. Loads under one stem wait for each other, so that none is stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.loads import NUMBER_BYTES, check
from tampu.engines.port import Load
from tampu.engines.postgres.commit import Commit, queue_lock
from tampu.engines.postgres.publish import depth
from tampu.engines.postgres.statements import Blobs, Ints, Uuids
from tampu.engines.sqlite.codes import READY
from tampu.engines.sqlite.publish import full
from tampu.model.errors import TampuError


def load(commit: Commit, calls: Sequence[Load]) -> list[int | TampuError]:
    commit.lock(
        [b"load/%s/%s" % (call.tenant.encode(), call.stem) for call in calls]
        + [queue_lock(call.tenant, call.queue) for call in calls if call.max_depth]
    )
    replies: list[int | TampuError] = []
    for call in calls:
        try:
            replies.append(_load(commit, call))
        except TampuError as error:
            replies.append(error)
    return replies


def _load(commit: Commit, call: Load) -> int:
    check(call)
    numbers, starts, bodies = call.numbers, call.starts, call.bodies
    known = _known(commit, call)
    chosen = [i for i, number in enumerate(numbers) if number not in known]
    if not chosen:
        return 0
    q = commit.house.number(commit.db, call.tenant, call.queue)
    if call.max_depth and (0 if q is None else depth(commit, q)) + len(chosen) > call.max_depth:
        raise full(call)
    if q is None:
        q = commit.queue(call.tenant, call.queue)
    seqs = commit.numbers(len(chosen))
    ids = [call.stem + numbers[i].to_bytes(NUMBER_BYTES, "big") for i in chosen]
    commit.db.send(
        "load_rows",
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
    record.extend(seqs, [commit.stamp] * len(seqs), [0] * len(seqs), [call.types[i] for i in chosen])
    commit.count(q, READY, len(seqs))
    commit.became_ready(q, len(seqs))
    return len(seqs)


def _known(commit: Commit, call: Load) -> set[int]:
    """The numbers whose messages are there already; other tenants' messages do not count."""
    low, high = (call.stem + n.to_bytes(NUMBER_BYTES, "big") for n in (call.numbers[0], call.numbers[-1]))
    rows = commit.db.rows("load_known", call.tenant, low, high)
    return {int.from_bytes(id.bytes[-NUMBER_BYTES:], "big") for (id,) in rows}
