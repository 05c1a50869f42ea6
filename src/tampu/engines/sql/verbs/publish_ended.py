"""publish of messages that end as they are stored and need no look-up, such as those of a broadcast queue.

It writes what `publish_with_lookup` writes for them, without an object for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.encoding import DONE, HELD
from tampu.engines.port import ENDING_VERB, Item, Publish
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Values
from tampu.engines.sql.rules.correlations import correlate
from tampu.model.message import Message, State


def takes(items: Sequence[Item]) -> bool:
    """True if all of them are done at once, for one reason, and there is nothing to look up."""
    how = items[0].ends
    if how is None or how.state is not State.DONE:
        return False
    return all(
        item.ends == how
        and item.id is None
        and item.group is None
        and not item.ttl_us
        and item.expire_us is None
        and item.delay_us is None
        and item.run_us is None
        and not (item.body.key or item.body.idempotency_key)
        for item in items
    )


def publish(commit: Commit, call: Publish) -> list[Message]:
    items, how, now = call.items, call.items[0].ends, commit.now
    assert how is not None
    q = commit.queue(call.tenant, call.queue)
    seqs = commit.numbers(len(items))
    stamps, attempts = [commit.stamp] * len(items), [0] * len(items)
    rows = [
        (seq, q, 0, item.max_attempts, None, None, None, None, item.packed)
        for seq, item in zip(seqs, items, strict=True)
    ]
    commit.db.send("insert_messages", now, commit.ahead, Values("iiiiibbub", rows))
    commit.record("publish", q, HELD).extend(seqs, stamps, attempts, [item.body.type for item in items])
    commit.begin_record_group()
    commit.db.send("insert_ended", now, Values("iiiii", [(seq, None, q, 0, DONE) for seq in seqs]))
    commit.ended(q, DONE, list(seqs))
    ended = commit.record(ENDING_VERB[how.state], q, DONE)
    ended.details.extend([None] * (len(ended.seqs) - len(ended.details)) + [how.reason] * len(items))
    ended.extend(seqs, stamps, attempts)
    stories = [
        (seq, call.tenant, item.body.correlation_id)
        for seq, item in zip(seqs, items, strict=True)
        if item.body.correlation_id is not None
    ]
    if stories:
        correlate(commit, stories)
    ids = commit.registry.id.many(stamps, seqs)
    return [
        Message(
            id, call.tenant, call.queue, how.state, item.body, 0, item.max_attempts, now, ended_us=now,
            reason=how.reason,
        )
        for id, item in zip(ids, items, strict=True)
    ]  # fmt: skip
