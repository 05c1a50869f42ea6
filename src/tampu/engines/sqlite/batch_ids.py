"""Batches with a name: published again within their window, they are answered and not stored again.

Contract: `found` answers a batch that is there with its messages, as duplicates, also when they have ended and been
removed; `remember` keeps the name in the commit that stores the batch. A name is one row for the whole batch, where ids
of their own are an index entry for each message.

Names lie among the idempotency keys, under a tenant that nobody can have: they are trimmed with those, and no key of a
user's is one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tampu.engines.encoding import pack_seqs, unpack_seqs
from tampu.engines.port import Publish
from tampu.engines.sqlite import ids
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.publish_with_lookup import again, gone
from tampu.engines.sqlite.read import load
from tampu.model.errors import IdempotencyConflict
from tampu.model.message import Message


def _place(call: Publish) -> tuple[str, str | None]:
    """Under which (tenant, key) the name is kept. No tenant has a slash in its name."""
    return f"{call.tenant}/{call.queue}", call.batch_id


def found(commit: Commit, call: Publish) -> list[Message] | None:
    """The messages of the batch, if one of this name is there."""
    row = commit.db.execute(
        "SELECT digest, id FROM tampu_idempotency WHERE tenant = ? AND key = ? AND until > ?",
        (*_place(call), commit.now),
    ).fetchone()
    if row is None:
        return None
    seqs = unpack_seqs(row[0])
    if len(seqs) != len(call.items) or row[1] != _content(call):
        raise IdempotencyConflict(
            f"another batch, of {len(seqs)} messages, was published under this name",
            field="once",
            hint="draw a new name for every batch",
        )
    made = []
    for seq, item in zip(seqs, call.items, strict=True):
        message = load(commit.db, commit.registry, seq)
        own = ids.id_bytes(item.id) if item.id else None
        made.append(again(message) if message is not None else gone(commit, call, item, seq, own))
    return made


def remember(commit: Commit, call: Publish, messages: Sequence[Message]) -> None:
    """These were stored for this call; their rows are written."""
    seqs = pack_seqs(_seqs(commit, call, messages))
    row = (*_place(call), 0, _content(call), seqs, commit.now + call.batch_id_us)
    commit.db.execute("INSERT OR REPLACE INTO tampu_idempotency VALUES (?, ?, ?, ?, ?, ?)", row)


def _content(call: Publish) -> bytes:
    """Tells batches apart; what is said of the messages besides, such as their trace, may differ."""
    return hashlib.blake2b(b"".join([item.body.payload for item in call.items]), digest_size=16).digest()


def _seqs(commit: Commit, call: Publish, messages: Sequence[Message]) -> Sequence[int]:
    if call.simple:  # they follow each other
        first, last = (ids.seq_of(message.id, commit.registry.tail) for message in (messages[0], messages[-1]))
        assert first is not None
        assert last is not None
        return range(first, last + 1, ids.STEP)
    places = [commit.find(call.tenant, message.id) for message in messages]
    return [place[0] for place in places if place is not None]
