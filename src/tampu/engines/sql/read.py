"""get, list, stats: looking without changing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tampu.engines.encoding import (
    CANCELLED,
    CODE,
    DEAD,
    DELAYED,
    DONE,
    EXPIRED,
    HELD,
    LEASED,
    READY,
    STATES,
    unpack_seqs,
)
from tampu.engines.port import Page, PollStatus, QueueStats
from tampu.engines.sql.db import Db, Ints, Uuids, text
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.model.errors import InvalidMessage
from tampu.model.message import Failure, Message, State, unpack_body
from tampu.model.times import moment

_LISTS = {
    READY: "page_ready", DELAYED: "page_delayed", LEASED: "page_leased", HELD: "page_held", DEAD: "page_dead",
}  # fmt: skip
_START = -(1 << 63)
_ENDINGS = 200
"""Commits of which a page of ended messages is put together at a time."""


def find(db: Db, registry: QueueRegistry, tenant: str, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """(seq, q) by id, of the messages that are the tenant's."""
    made = [registry.id.seq_of(id) or (None, None) for id in ids]
    rows = db.rows(
        "find_messages",
        tenant,
        Ints(seq for _, seq in made),
        Ints(stamp for stamp, _ in made),
        Uuids(UUID(id).bytes for id in ids),
    )
    return {ids[n - 1]: (seq, q) for n, seq, q in rows}


def load(db: Db, registry: QueueRegistry, seqs: Sequence[int]) -> dict[int, Message]:
    """Messages with the index each is in, in the order asked for; without failures and result."""
    return dict(_message(db, registry, row) for row in db.rows("select_messages", Ints(seqs)))


def states(db: Db, seqs: Sequence[int]) -> dict[int, int]:
    """The index each message is in."""
    rows = db.rows("select_messages", Ints(seqs)) if seqs else []
    return {seq: state for seq, *_, state, _attempts, _run_at, _ended, _reason, _cancel, _error in rows}


def _message(db: Db, registry: QueueRegistry, row: Any) -> tuple[int, Message]:
    (
        seq, q, created, stamp, max_attempts, expires, own, body, code, attempts, run_at, ended, reason, cancel, error,
    ) = row  # fmt: skip
    tenant, queue = registry.name(db, q)
    return seq, Message(
        registry.id.of(stamp, seq) if own is None else str(own),
        tenant,
        queue,
        STATES[code],
        unpack_body(body),
        attempts,
        max_attempts,
        created,
        run_at,
        expires,
        ended,
        text(reason),
        text(error),
        cancel_requested=cancel,
    )


def whole(db: Db, registry: QueueRegistry, tenant: str, id: str, now: int | None) -> Message | None:
    """One message with failures and result."""
    place = find(db, registry, tenant, [id]).get(id)
    if place is None:
        return None
    seq, _ = place
    found = load(db, registry, [seq]).get(seq)
    if found is None:
        return None
    failures = tuple(
        Failure(attempt, moment(at), outcome, text(worker), text(error), text(traceback))
        for attempt, at, outcome, worker, error, traceback in db.rows("select_failures", seq)
    )
    return _with(found, failures, db.value("select_result", seq, now))


def _with(message: Message, failures: tuple[Failure, ...], result: bytes | None) -> Message:
    return Message(
        message.id, message.tenant, message.queue, message.state, message.body, message.attempts,
        message.max_attempts, message.created_us, message.run_us, message.expires_us, message.ended_us,
        message.reason, failures[-1].error if failures else None, failures, result, message.cancel_requested,
    )  # fmt: skip


def page(
    db: Db, registry: QueueRegistry, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
) -> Page | None:
    q = registry.number(db, tenant, queue)
    if q is None:
        return None
    places = keys(db, q, CODE[state], after, limit)
    found = load(db, registry, [seq for seq, _ in places])
    return Page([m for m in found.values() if m.state is state], last_cursor(places, limit))


def last_cursor(places: Sequence[tuple[int, tuple[int, ...]]], limit: int) -> tuple[int, ...] | None:
    """Where the next page begins, if this one is full."""
    if len(places) < limit:
        return None
    _, cursor = places[-1]
    return cursor


def keys(db: Db, q: int, code: int, after: tuple[Any, ...] | None, limit: int) -> list[tuple[int, tuple[int, ...]]]:
    """(seq, cursor) of a page of any state."""
    if after and (len(after) != (1 if code in (LEASED, HELD) else 2) or not all(isinstance(v, int) for v in after)):
        raise InvalidMessage("after is not a cursor of these messages", field="after")
    if code in (DONE, CANCELLED, EXPIRED):
        return _ended_page(db, q, code, after or (0, 0), limit)
    return live_page(db, q, code, after, limit)


def live_page(
    db: Db, q: int, code: int, after: tuple[Any, ...] | None, limit: int
) -> list[tuple[int, tuple[int, ...]]]:
    """(seq, cursor) of messages that have not ended, or are dead."""
    cursor = after or (_START,) * (1 if code in (LEASED, HELD) else 2)
    return [(seq, tuple(next_)) for seq, *next_ in db.rows(_LISTS[code], q, *cursor, limit)]


def _ended_page(db: Db, q: int, code: int, after: tuple[Any, ...], limit: int) -> list[tuple[int, tuple[int, ...]]]:
    """Ended messages, oldest end first; the cursor is (entry, last message of it that was seen)."""
    no, seen = after
    found: list[tuple[int, tuple[int, ...]]] = []
    while True:
        rows = db.rows("page_endings", q, code, no, _ENDINGS)
        for number, packed in rows:
            seqs = list(unpack_seqs(packed))
            # Trimming takes from the front: if the one seen last is gone, all that are left come after it.
            start = seqs.index(seen) + 1 if number == no and seen in seqs else 0
            there = db.rows("select_still_ended", Ints(seqs[start : start + limit - len(found)]))
            found.extend((seq, (number, seq)) for (seq,) in there)
            if len(found) == limit:
                return found
        if len(rows) < _ENDINGS:
            return found
        last, _ = rows[-1]
        no, seen = last + 1, 0


def stats(db: Db, tenant: str, queue: str | None, now: int | None) -> list[QueueStats]:
    found: dict[str, QueueStats] = {}
    for name, kind, count, oldest, at in db.rows("select_stats", tenant, queue, now):
        one = found.get(name)
        if one is None:
            one = found[name] = QueueStats(tenant, name, dict.fromkeys(STATES, 0), oldest, at)
        if kind is not None:
            one.counts[STATES[kind]] = count
    return list(found.values())


def poll_status(db: Db, queues: Sequence[tuple[str, str]], me: str, now: int | None) -> PollStatus:
    """Statements that stand by themselves, on their way together."""
    with db.together():
        asked = [
            db.ahead(name) for name in ("select_server_time", "select_next_due", "select_revision", "current_leader")
        ]
        counts = [db.ahead("count_ready", *queue) for queue in queues]
    ((clock,),), (dues,), ((revision,),), leader = (answer() for answer in asked)  # all there: one round trip
    return PollStatus(
        clock if now is None else now,
        min((at for at in dues if at is not None), default=None),
        revision,
        all(holder == me for (holder,) in leader),
        {queue: ready for queue, count in zip(queues, counts, strict=True) for (ready,) in count()},
    )
