"""get, list and stats: reads that change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.engines.encoding import (
    CANCELLED,
    CODE,
    DEAD,
    DELAYED,
    DONE,
    EXPIRED,
    HELD,
    LEASED,
    PARTITION,
    READY,
    STATES,
    id_bytes,
    id_text,
    unpack_seqs,
)
from tampu.engines.port import Page, PollStatus, QueueStats
from tampu.engines.rules import correlation_word
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
"""Rows of `ending` to read at a time for a page of ended messages."""


def find(db: Db, registry: QueueRegistry, tenant: str, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """{id: (seq, q)} of those messages that belong to the tenant."""
    made = [registry.id.seq_of(id) or (None, None) for id in ids]
    rows = db.rows(
        "find_messages",
        tenant,
        Ints(seq for _, seq in made),
        Ints(stamp for stamp, _ in made),
        Uuids(id_bytes(id) for id in ids),
    )
    return {ids[n - 1]: (seq, q) for n, seq, q in rows}


def load(db: Db, registry: QueueRegistry, seqs: Sequence[int]) -> dict[int, Message]:
    """Messages with their states, in the order of ``seqs``; without failures and result."""
    rows = db.rows("select_messages", Ints(seqs))
    return {seq: _message(db, registry, row) for row in rows for seq in row[:1]}


def states(db: Db, seqs: Sequence[int]) -> dict[int, tuple[int, str | None]]:
    """{seq: (state number, reason)}."""
    rows = db.rows("select_messages", Ints(seqs)) if seqs else []
    return {
        seq: (state, text(reason)) for seq, _, _, _, _, _, _, _, state, _attempts, _run_at, _ended, reason, *_ in rows
    }


def attempts(db: Db, seqs: Sequence[int]) -> dict[int, int]:
    """{seq: attempts}."""
    rows = db.rows("select_messages", Ints(seqs)) if seqs else []
    found = {}
    for seq, _q, _created, _stamp, _max_attempts, _expires, _id, _body, _state, attempts, *_ in rows:
        found[seq] = attempts
    return found


def _message(
    db: Db, registry: QueueRegistry, row: Any, failures: tuple[Failure, ...] = (), result: bytes | None = None
) -> Message:
    (
        seq, q, created, stamp, max_attempts, expires, own, body, code, attempts, run_at, ended, reason, cancel, error,
        worker, until, since, extended,
    ) = row  # fmt: skip
    tenant, queue = registry.name(db, q)
    return Message(
        registry.id.of(stamp, seq) if own is None else id_text(own),
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
        failures,
        result,
        bool(cancel),
        worker=text(worker),
        lease_until_us=until,
        started_us=since,
        updated_us=extended or since,
    )


def get(db: Db, registry: QueueRegistry, tenant: str, id: str, now: int | None) -> Message | None:
    """One message with failures and result."""
    made = registry.id.seq_of(id)
    if made is not None:
        message = _get(db, registry, made.seq, now)
        if message is not None and (message.tenant, message.id) == (tenant, id):
            return message
    for seq, _ in find(db, registry, tenant, [id]).values():
        return _get(db, registry, seq, now)
    return None


def _get(db: Db, registry: QueueRegistry, seq: int, now: int | None) -> Message | None:
    """Independent statements, sent in one round trip."""
    message = db.ahead("select_messages", Ints([seq]))
    history = db.ahead("select_failures", seq)
    result = db.ahead("select_result", seq, now)
    for row in message():
        failures = [
            Failure(attempt, moment(at), outcome, text(worker), text(error), text(traceback))
            for attempt, at, outcome, worker, error, traceback in history()
        ]
        (body,) = (result() or [(None,)])[0]
        return _message(db, registry, row, tuple(failures), body)
    return None


def correlated(db: Db, registry: QueueRegistry, tenant: str, correlation_id: str, limit: int) -> list[Message]:
    """Messages with a correlation id, oldest first. The body decides: its correlation id may have been replaced."""
    seqs = [seq for (seq,) in db.rows("find_correlated", correlation_word(tenant, correlation_id), limit)]
    found = load(db, registry, seqs).values() if seqs else ()
    return [m for m in found if m.tenant == tenant and m.correlation_id == correlation_id]


def page(
    db: Db, registry: QueueRegistry, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
) -> Page | None:
    q = registry.number(db, tenant, queue)
    if q is None:
        return None
    entries = keys(db, q, CODE[state], after, limit)
    found = load(db, registry, [seq for seq, _ in entries])
    return Page([m for m in found.values() if m.state is state], last_cursor(entries, limit))


def last_cursor(entries: Sequence[tuple[int, tuple[int, ...]]], limit: int) -> tuple[int, ...] | None:
    """The cursor of the next page; None if this page is not full."""
    if len(entries) < limit:
        return None
    _, cursor = entries[-1]
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
    """(seq, cursor) of live or dead messages."""
    cursor = after or (_START,) * (1 if code in (LEASED, HELD) else 2)
    return [(seq, tuple(next_)) for seq, *next_ in db.rows(_LISTS[code], q, *cursor, limit)]


def _ended_page(db: Db, q: int, code: int, after: tuple[Any, ...], limit: int) -> list[tuple[int, tuple[int, ...]]]:
    """Ended messages, oldest end first; the cursor is (row of `ending`, last message of it that was returned)."""
    no, seen = after
    found: list[tuple[int, tuple[int, ...]]] = []
    while True:
        rows = db.rows("page_endings", q, code, no, _ENDINGS)
        for number, packed in rows:
            seqs = list(unpack_seqs(packed))
            # Trim removes from the front: if the last returned message is gone, all that are left come after it.
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
        entry = found.get(name)
        if entry is None:
            entry = found[name] = QueueStats(tenant, name, dict.fromkeys(STATES, 0), oldest, at)
        if kind is not None:
            entry.counts[STATES[kind]] = count
    return list(found.values())


_POLLED = (
    "select_server_time", "select_next_due", "select_revision", "current_leader",
    "select_journal_end", "has_unnumbered",
)  # fmt: skip


def poll_status(db: Db, queues: Sequence[tuple[str, str]], instance: str, now: int | None) -> PollStatus:
    """Independent statements, sent in one round trip."""
    with db.together():
        sent = [db.ahead(name) for name in _POLLED]
        counts = [db.ahead("count_ready", *queue) for queue in queues]
    ((clock,),), (dues,), ((revision,),), leader, ((end,),), ((unnumbered,),) = (answer() for answer in sent)
    return PollStatus(
        clock if now is None else now,
        min((at for at in dues if at is not None), default=None),
        revision,
        all(holder == instance for (holder,) in leader),
        {queue: ready for queue, count in zip(queues, counts, strict=True) for (ready,) in count()},
        {PARTITION: end + bool(unnumbered)},
    )
