"""Batches with a name: a batch published again within its window is not stored again.

Contract: `found` returns the messages of a stored batch as duplicates, also after they have ended and been removed.
`remember` stores the name in the commit that stores the batch. A name is one row for the whole batch; user-given ids
would be an index entry for each message.

Names are stored among the idempotency keys, under a tenant name that is not allowed. So they are trimmed like those,
and cannot be equal to a user's key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tampu.engines.encoding import pack_seqs, unpack_seqs
from tampu.engines.port import Publish
from tampu.engines.sql import read
from tampu.engines.sql.verbs.publish_with_lookup import as_duplicate, removed
from tampu.engines.sqlite import ids
from tampu.engines.sqlite.commit import Commit
from tampu.model.errors import IdempotencyConflict
from tampu.model.message import Message


def _place(call: Publish) -> tuple[str, str | None]:
    """The (tenant, key) under which the name is stored. No real tenant has a slash in its name."""
    return f"{call.tenant}/{call.queue}", call.batch_id


def found(commit: Commit, call: Publish) -> list[Message] | None:
    """The messages of the stored batch with this name; None if there is none."""
    row = commit.db.row("find_batch", *_place(call), commit.now)
    if row is None:
        return None
    packed, content = row
    seqs = unpack_seqs(packed)
    if len(seqs) != len(call.items) or content != _content(call):
        raise IdempotencyConflict(
            f"another batch, of {len(seqs)} messages, was published under this name",
            field="once",
            hint="draw a new name for every batch",
        )
    there = read.load(commit.db, commit.registry, seqs)
    return [
        as_duplicate(there.get(seq) or removed(call, item, item.id or commit.registry.id.of(0, seq), seq >> 20))
        for seq, item in zip(seqs, call.items, strict=True)
    ]


def remember(commit: Commit, call: Publish, messages: Sequence[Message]) -> None:
    """Store the name of a batch whose messages are written."""
    seqs = pack_seqs(_seqs(commit, call, messages))
    commit.db.send("insert_batch", *_place(call), _content(call), seqs, commit.now + call.batch_id_us)


def _content(call: Publish) -> bytes:
    """A digest of the payloads. Other fields, such as the trace, may differ between two tries."""
    return hashlib.blake2b(b"".join([item.body.payload for item in call.items]), digest_size=16).digest()


def _seqs(commit: Commit, call: Publish, messages: Sequence[Message]) -> Sequence[int]:
    if call.simple:  # their numbers are consecutive
        first, last = (commit.registry.id.seq_of(message.id) for message in (messages[0], messages[-1]))
        assert first is not None
        assert last is not None
        return range(first.seq, last.seq + 1, ids.STEP)
    places = read.find(commit.db, commit.registry, call.tenant, [message.id for message in messages])
    return [places[message.id][0] for message in messages if message.id in places]
