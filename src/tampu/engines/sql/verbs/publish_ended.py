"""publish of messages that end as they are stored and need no look-up, such as those of a broadcast queue.

It writes what `publish_with_lookup` writes for them, without an object for each.
"""

from __future__ import annotations

from tampu.engines.encoding import DONE, HELD
from tampu.engines.port import ENDING_VERB, Publish
from tampu.engines.rules import done_at_once
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints
from tampu.model.message import Message


def publish(commit: Commit, call: Publish) -> list[Message]:
    items, how, now = call.items, call.items[0].ends, commit.now
    assert how is not None
    q = commit.queue(call.tenant, call.queue)
    seqs = commit.numbers(len(items))
    stamps, attempts = [commit.stamp] * len(items), [0] * len(items)
    commit.db.send(
        "publish_ended", q, now, commit.ahead, items[0].max_attempts, DONE, Ints(seqs),
        Blobs([item.packed for item in items]),
    )  # fmt: skip
    commit.record("publish", q, HELD).extend(seqs, stamps, attempts, [item.body.type for item in items])
    commit.begin_record_group()
    commit.ended(q, DONE, list(seqs))
    ended = commit.record(ENDING_VERB[how.state], q, DONE)
    ended.details.extend([None] * (len(ended.seqs) - len(ended.details)) + [how.reason] * len(items))
    ended.extend(seqs, stamps, attempts)
    ids = commit.registry.id.many(stamps, seqs)
    return [done_at_once(id, call.tenant, call.queue, item, how, now) for id, item in zip(ids, items, strict=True)]
