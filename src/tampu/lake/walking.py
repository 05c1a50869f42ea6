"""What the transitions of messages add up to: deliveries, ended messages, stays in ready. Arrow in and out, no Spark.

All events of a message must be in the same table; then all messages are walked at once. The rows are put in order by
message and place in the journal, and every question ("the move before", "claims so far", "the last failure") is one
operation on whole columns: a running sum or a running maximum that begins anew with each message.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake.stories import STATES, Flags, Numbers, Story, among, in_order
from tampu.lake.tables import BY_NAME, TIME
from tampu.lake.verbs import ENDS, FAILS

CARRIED: pa.Schema = BY_NAME["bronze.events"].schema
_BODY = pa.schema(
    [
        *((name, pa.string()) for name in ("correlation_id", "causation_id", "parent_id", "group", "source")),
        ("payload_bytes", pa.int64()),
        ("result_bytes", pa.int64()),
    ]
)
TOLD = pa.schema([*CARRIED, pa.field("new", pa.bool_()), *_BODY])
"""What is walked: events, and a row without a verb for each body of bronze.messages, at the place of the end it is of.
Of a body, ``at`` is when the message was created."""
STAYS = pa.schema(
    [
        ("id", pa.string()),
        ("ready_at", TIME),
        ("left_at", TIME),
        ("queue", pa.string()),
        ("day", pa.date32()),  # of left_at
        ("tenant", pa.string()),
    ]
)
"""Closed stays in ready."""
WAITING = pa.schema([("queue", pa.string()), ("ready_at", TIME), ("day", pa.date32()), ("tenant", pa.string())])
"""Stays in ready that are open. They are rewritten by every run, so by tenant only: the day is always the first."""
REPLACED = pa.schema([("id", pa.string()), ("ended_at", TIME), ("day", pa.date32()), ("tenant", pa.string())])
"""Rows of silver.messages that no longer hold: the message was replayed."""

NO_DAY = date(1970, 1, 1)


class Walked(NamedTuple):
    """What the new events add."""

    attempts: pa.Table
    messages: pa.Table
    stays: pa.Table
    waiting: pa.Table
    replaced: pa.Table
    carried: pa.Table
    """All events so far of messages that have not ended."""


def walk(rows: pa.Table) -> Walked:
    """Rows in the columns of `TOLD`. An event that is there twice counts once, as new if one of the two is."""
    story = Story(*in_order(rows))
    return Walked(
        attempts=_attempts(story),
        messages=_messages(story),
        stays=_stays(story),
        waiting=_waiting(story),
        replaced=_replaced(story),
        carried=story.rows.filter(pa.array(story.live)).select(CARRIED.names),
    )


def _seconds(micros: Numbers, valid: Flags | None = None) -> pa.Array:
    return pa.array(micros / 1e6, pa.float64(), mask=None if valid is None else ~valid)


def _table(schema: pa.Schema, columns: dict[str, pa.ChunkedArray | pa.Array]) -> pa.Table:
    made = [columns[field.name] for field in schema]
    return pa.table(
        [c if c.type == f.type else c.cast(f.type) for c, f in zip(made, schema, strict=True)], schema=schema
    )


def _attempts(story: Story) -> pa.Table:
    moves = np.flatnonzero(story.new & story.ended)
    here, claim = story.at_row[moves], story.row(story.one[moves])
    readied = np.where(story.of(story.two, story.state, STATES, "ready"), story.two, -1)[moves]
    ready = story.row(readied)
    failed = np.where(story.was(*(FAILS - {"reap"}))[moves], here, -1)
    waits = story.at[story.one[moves]] - story.at[readied] if len(moves) else moves
    columns = {name: story.take(name, here) for name in ("id", "queue", "day", "tenant")}
    columns |= {
        "type": story.take("type", story.kind[here]),
        "attempt": story.take("attempt", claim),
        "ready_at": story.take("at", ready),
        "claimed_at": story.take("at", claim),
        "ended_at": story.take("at", here),
        "wait": _seconds(waits, ready >= 0),
        "run": _seconds(story.ran()[moves]),
        "worker": story.take("worker", claim),
        "outcome": story.take("verb", here),
        "error": story.take("detail", failed),
        "fingerprint": story.take("fingerprint", failed),
    }
    return _table(BY_NAME["silver.attempts"].schema, columns)


def _messages(story: Story) -> pa.Table:
    """Messages that ended and were not replayed since. A purge after the end takes nothing from the record.

    Of a message that had ended elsewhere when it came, nobody saw how it was delivered."""
    purged = np.append(story.was("purge")[1:], False)[: len(story.verb)]
    over = among(story.state, ENDS, STATES) & (story.final | purged)
    moves = np.flatnonzero(story.new & over)
    here, body = story.at_row[moves], story.body_of(moves)
    published = np.where(story.was("publish")[story.begin], story.begin, -1) if len(moves) else moves
    created = pc.coalesce(
        story.take("at", story.row(published[moves] if len(moves) else moves)), story.take("at", body)
    )
    failures = story.latest(story.was(*FAILS))[moves]
    told = np.where(story.was("reap")[failures], -1, failures) if len(moves) else failures
    failure = story.row(told)
    total = pc.subtract(story.take("at", here).cast(pa.int64()), created.cast(pa.int64()))
    unseen = (story.was("adopt") & (story.one < 0))[moves]
    waited = story.so_far(np.where(story.waited, story.since_one(), 0))
    ran = story.so_far(np.where(story.ended, story.ran(), 0))
    columns = {name: story.take(name, here) for name in ("id", "queue", "state", "day", "tenant")}
    columns |= {name: story.take(name, body) for name in _BODY.names}
    columns |= {
        "type": pc.coalesce(story.take("type", story.kind[here]), story.take("type", body)),
        "created_at": created,
        "first_claimed_at": story.take("at", story.row(story.first_claim()[moves])),
        "ended_at": story.take("at", here),
        "attempts": story.take("attempt", here),
        "deliveries": pa.array(story.so_far(story.was("claim"))[moves], mask=unseen),
        "replays": pa.array(story.so_far(story.was("replay"))[moves]),
        "wait": _seconds(waited[moves], ~unseen),
        "run": _seconds(ran[moves], ~unseen),
        "total": pc.if_else(pa.array(unseen), None, pc.divide(total.cast(pa.float64()), 1e6)),
        "worker": story.take("worker", story.row(story.latest(story.was("claim"))[moves])),
        "error": story.take("detail", failure),
        "fingerprint": story.take("fingerprint", failure),
    }
    return _table(BY_NAME["silver.messages"].schema, columns)


def _stays(story: Story) -> pa.Table:
    moves = np.flatnonzero(story.new & story.of(story.one, story.state, STATES, "ready"))
    here = story.at_row[moves]
    columns = {name: story.take(name, here) for name in ("id", "queue", "day", "tenant")}
    columns |= {"ready_at": story.take("at", story.row(story.one[moves])), "left_at": story.take("at", here)}
    return _table(STAYS, columns)


def _waiting(story: Story) -> pa.Table:
    here = story.at_row[story.latest_of_all & among(story.state, frozenset({"ready"}), STATES)]
    columns = {name: story.take(name, here) for name in ("queue", "tenant")}
    columns |= {"ready_at": story.take("at", here), "day": pa.repeat(pa.scalar(NO_DAY, pa.date32()), len(here))}
    return _table(WAITING, columns)


def _replaced(story: Story) -> pa.Table:
    """A replay follows on the end that it takes back; if that end was told in an earlier run, it has a row."""
    back = story.new & story.was("replay") & (story.one >= 0)
    moves = np.flatnonzero(back)
    moves = moves[~story.new[story.one[moves]]]
    here, end = story.at_row[moves], story.row(story.one[moves])
    columns = {name: story.take(name, here) for name in ("id", "tenant")}
    columns |= {"ended_at": story.take("at", end), "day": story.take("day", end)}
    return _table(REPLACED, columns)
