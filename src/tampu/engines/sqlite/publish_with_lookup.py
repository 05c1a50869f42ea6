"""publish for a message that may exist already, by its key, its idempotency key or its id. One at a time.

Contract: as `publish`, which calls this inside a savepoint.
"""

from __future__ import annotations

import msgspec

from tampu.engines.encoding import CODE, HELD, LIVE_KINDS, STATES
from tampu.engines.port import Item, Publish
from tampu.engines.rules import KEPT_BY_KEY, conflict, full
from tampu.engines.sqlite import ids
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.groups import admit, set_limits
from tampu.engines.sqlite.indexes import hold, restore_marks
from tampu.engines.sqlite.read import load
from tampu.model.message import Message, State
from tampu.model.rank import rank
from tampu.model.values import pack_body

_INSERT = "INSERT INTO tampu_message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def depth(commit: Commit, q: int) -> int:
    """How many live messages a queue has."""
    counts = commit.tally(q)
    return sum(counts[kind] for kind in LIVE_KINDS)


def publish_one(commit: Commit, call: Publish, item: Item) -> Message:
    body, tenant = item.body, call.tenant
    known = _known(commit, call, item)
    if known is not None:
        return known
    q = commit.queue(tenant, call.queue)
    if body.key is not None:
        waiting = commit.db.execute("SELECT seq FROM tampu_key WHERE q = ? AND key = ?", (q, body.key)).fetchone()
        if waiting is not None:
            (seq,) = waiting
            _remember(commit, tenant, seq, item)
            return _replace(commit, q, seq, item)
    if call.max_depth and depth(commit, q) >= call.max_depth:
        raise full(call)
    seq = commit.numbers(1)[0] + (1 if item.id else 0)
    now = commit.now
    place = rank(item.ordering, item.ageing_us, body.priority, body.deadline, now)
    expires = item.expires(now)
    run_at = item.run_us if item.delay_us is None else now + item.delay_us
    if run_at is not None and run_at <= now:
        run_at = None
    own = ids.id_bytes(item.id) if item.id else None
    commit.db.execute(_INSERT, (seq, q, place, now, item.max_attempts, expires, body.key, item.group, own, item.packed))
    if expires is not None:
        commit.falls_due(expires)
    restore_marks(commit, [seq])
    _remember(commit, tenant, seq, item)
    if item.group is not None and call.slots is not None:
        set_limits(commit, q, call.slots, call.group_rate)
    if body.hold:
        hold(commit, seq, q, None, body.hold, run_at, 0)
        code = HELD
    else:
        code = admit(commit, seq, q, place, run_at, 0, item.group)
    run_at = commit.waits.get(seq, run_at)
    commit.record("publish", q, code).extend([seq], [0], [body.type])
    return Message(
        commit.id(seq), tenant, call.queue, STATES[code], body, 0, item.max_attempts, now, run_at, expires,
        reason=body.hold or ("group" if code == HELD else None),
    )  # fmt: skip


def _known(commit: Commit, call: Publish, item: Item) -> Message | None:
    """The stored message with this id or idempotency key."""
    key, tenant = item.body.idempotency_key, call.tenant
    if key is not None:
        row = commit.db.execute(
            "SELECT seq, id, digest, until FROM tampu_idempotency WHERE tenant = ? AND key = ?", (tenant, key)
        ).fetchone()
        if row is not None:
            seq, own, digest, until = row
            if until > commit.now:
                if digest != item.digest:
                    raise conflict()
                found = load(commit.db, commit.registry, seq)
                return again(found) if found is not None else gone(commit, call, item, seq, own)
    if item.id is not None:
        place = commit.find(tenant, item.id)
        if place is not None:
            seq, _ = place
            found = load(commit.db, commit.registry, seq)
            assert found is not None
            return again(found)
    return None


def again(message: Message) -> Message:
    """A stored message as the reply to a publish that found it."""
    return msgspec.structs.replace(message, duplicate=True)


def gone(commit: Commit, call: Publish, item: Item, seq: int, own: bytes | None) -> Message:
    """The reply when the first message has ended and been removed: only its id is still known."""
    id = ids.id_text(own) if own else commit.registry.id.of(seq)
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
    """Give the waiting message with this key the new payload. Its id, position and attempts stay."""
    old = load(commit.db, commit.registry, seq)
    assert old is not None
    kept = {name: getattr(old.body, name) for name in KEPT_BY_KEY}
    body = msgspec.structs.replace(item.body, **kept)
    commit.db.execute("UPDATE tampu_message SET body = ? WHERE seq = ?", (pack_body(body), seq))
    found = msgspec.structs.replace(old, body=body)
    commit.begin_record_group()  # the message may be published in this very commit: its publish comes first
    commit.record("replace", q, CODE[found.state]).extend([seq], [found.attempts], [item.body.type])
    return again(found)
