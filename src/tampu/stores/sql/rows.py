"""Rows of messages from a SQL database: the state in the snapshot, joined with what never changes.

If the wanted messages are close together, a range of the table is scanned, in batches. If they are few among others,
each is looked up. Either way their sizes are asked for first, so that no answer is much larger than `BYTES`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.encoding import DONE
from tampu.engines.sql.db import Db, Ints, Values, text
from tampu.stores.arrow import ids, message_rows, snapshot_rows
from tampu.stores.arrow.message_rows import Found
from tampu.stores.arrow.numbers import Numbers, cuts
from tampu.stores.arrow.snapshot_rows import NONE, SnapshotRows
from tampu.stores.port import MessageQuery

if TYPE_CHECKING:
    from tampu.stores.sql.store import SqlStore

ROWS = 1 << 14
"""Messages that are read together."""
BYTES = 4 << 20
"""Approximate size of bodies and results fetched at once; a single message may be larger."""
_LOOKED_UP = 1 << 11
"""Maximum number of messages in one lookup."""


class Reader:
    """Reads the messages of one piece, a few thousand at a time, each part in its own transaction."""

    def __init__(self, store: SqlStore[Any], now: int, query: MessageQuery) -> None:
        self._store = store
        self._readers = store.engine.readers
        self._now = now
        self._query = query

    def batches(self, wanted: SnapshotRows) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(wanted), ROWS):
            part = wanted.part(start, start + ROWS)
            for found in self._walk(part) if self._close_together(part.seq) else self._look_up(part):
                made = message_rows.queried(found, self._query)
                if made.num_rows:
                    yield made

    def _close_together(self, seqs: Numbers) -> bool:
        first, last, most = int(seqs[0]), int(seqs[-1]), self._store.sparse * len(seqs)
        if last - first < most:
            return True
        return bool(self._readers.run(lambda db: db.row("snapshot_count", first, last, most + 1))[0] <= most)

    # -- scanning

    def _walk(self, wanted: SnapshotRows) -> Iterator[Found]:
        for start, stop in cuts(self._result_sizes(wanted), BYTES):
            yield from self._walk_part(wanted.part(start, stop))

    def _result_sizes(self, wanted: SnapshotRows) -> Numbers:
        """Size of the results from each message to the one before it, including those of other messages in between."""
        sizes = np.zeros(len(wanted), np.int64)
        if (wanted.state == DONE).any():
            first, last = int(wanted.seq[0]), int(wanted.seq[-1])
            found = self._readers.run(lambda db: db.rows("snapshot_result_sizes", first, last, self._now))
            seqs, known = (np.array([row[i] for row in found], np.int64) for i in (0, 1))
            np.add.at(sizes, np.searchsorted(wanted.seq, seqs), known)
        return sizes

    def _walk_part(self, wanted: SnapshotRows) -> Iterator[Found]:
        # Read data that is removed with a message first: a message that is there afterwards was there all the time.
        beside = self._readers.run_in_snapshot(lambda db: _Beside(db, self._store, wanted, self._now))
        done = 0
        for rows in self._store.walk(wanted.seq, bodies=message_rows.in_bodies(self._query.columns)):
            seqs = _numbers(rows, "seq")
            part = wanted.part(done, done + len(seqs))
            if not np.array_equal(part.seq, seqs):
                kept = np.isin(seqs, part.seq, assume_unique=True)
                rows = rows.filter(pa.array(kept))  # noqa: PLW2901 - the wanted part of it
                part = wanted.part(done, done + len(rows))
                if not np.array_equal(part.seq, seqs[kept]):
                    raise snapshot_rows.gone(1)
            if len(rows):
                done += len(rows)
                yield beside.found(rows, part)
        if done < len(wanted):
            raise snapshot_rows.gone(len(wanted) - done)

    # -- looking up

    def _look_up(self, wanted: SnapshotRows) -> Iterator[Found]:
        """Look up each message, in parts of bounded size."""
        for start in range(0, len(wanted), _LOOKED_UP):
            some = wanted.part(start, start + _LOOKED_UP)
            seqs = some.seq.tolist()
            asked = functools.partial(_sizes, seqs=seqs)
            for low, high in cuts(self._readers.run(asked), BYTES):
                work = functools.partial(
                    look_up, store=self._store, seqs=seqs[low:high], now=self._now, wanted=some.part(low, high)
                )
                yield self._readers.run_in_snapshot(work)


def _sizes(db: Db, seqs: Sequence[int]) -> Numbers:
    """Sizes of messages with their results; 0 for one that is gone."""
    known = dict(db.rows("snapshot_sizes", Ints(seqs)))
    return np.array([known.get(seq, 0) for seq in seqs], np.int64)


def look_up(db: Db, store: SqlStore[Any], seqs: Sequence[int], now: int, wanted: SnapshotRows | None) -> Found:
    """Messages by number, in the states of ``wanted``, or as they are now (None)."""
    rows = db.rows("select_messages", Ints(seqs))
    if wanted is not None and len(rows) < len(wanted):
        raise snapshot_rows.gone(len(wanted) - len(rows))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 15
    (
        seq, q, created, stamp, max_attempts, expires, own, bodies, state, attempts, run_at, at, reason, _, error, *_,
    ) = columns  # fmt: skip
    numbers, tried = np.array(seq, np.int64), np.array(attempts, np.int64)
    errors: list[str | None] = [text(one) for one in error]
    expiry = snapshot_rows.numbers(expires)
    if wanted is None:
        here = SnapshotRows(
            numbers,
            np.array(q, np.int64),
            np.array(state, np.int64),
            tried,
            snapshot_rows.numbers(run_at),
            snapshot_rows.numbers(at),
            [text(one) for one in reason],
        )
    else:
        here = wanted
        if wanted.attempts is not None:
            tried = wanted.attempts
        if wanted.failures is not None:
            known = _failed(db, wanted)
            errors = [known.get(seq) for seq in wanted.seq.tolist()]
        if wanted.expires is not None:
            expiry = np.where(wanted.expires == NONE, expiry, wanted.expires)
    results: dict[int, bytes] = {}
    done = here.state == DONE
    if done.any():
        results = dict(db.rows("snapshot_results_of", Ints(numbers[done].tolist()), now))
    return Found(
        here,
        ids=lambda: ids.with_given(store.ids(np.array(stamp, np.int64), numbers), pa.array(own, pa.binary(16))),
        names={one: store.engine.registry.name(db, one) for one in np.unique(here.q).tolist()},
        attempts=tried,
        max_attempts=np.array(max_attempts, np.int64),
        created=np.array(created, np.int64),
        expires=expiry,
        bodies=pa.array(bodies, pa.binary()),
        errors=errors,
        results=[results.get(one) for one in numbers.tolist()] if results else None,
    )


def _failed(db: Db, wanted: SnapshotRows) -> dict[int, str | None]:
    assert wanted.failures is not None
    failed = np.flatnonzero(wanted.failures)
    if not len(failed):
        return {}
    pairs = list(zip(wanted.seq[failed].tolist(), wanted.failures[failed].tolist(), strict=True))
    return {seq: text(error) for seq, error in db.rows("snapshot_errors", Values("ii", pairs))}


class _Beside:
    """Data from other tables for the messages of a scan."""

    def __init__(self, db: Db, store: SqlStore[Any], wanted: SnapshotRows, now: int) -> None:
        first, last = int(wanted.seq[0]), int(wanted.seq[-1])
        self._store = store
        self._names = {q: store.engine.registry.name(db, q) for q in np.unique(wanted.q).tolist()}
        self._attempts: dict[int, int] = {}
        self._errors: Mapping[int, str | None]
        if wanted.attempts is None:
            self._attempts = dict(db.rows("snapshot_attempts", first, last))
        if wanted.failures is None:
            self._errors = {seq: text(error) for seq, error in db.rows("snapshot_last_errors", first, last)}
        else:
            self._errors = _failed(db, wanted)
        self._results: dict[int, bytes] = {}
        if (wanted.state == DONE).any():
            self._results = dict(db.rows("snapshot_results", first, last, now))

    def found(self, rows: pa.RecordBatch, wanted: SnapshotRows) -> Found:
        """A batch of messages in these states."""
        seqs = wanted.seq.tolist() if self._attempts or self._errors or self._results else []
        attempts = wanted.attempts
        if attempts is None:
            attempts = np.ones(len(wanted), np.int64)
            if self._attempts:
                attempts = np.array([self._attempts.get(seq, 1) for seq in seqs], np.int64)
        expires = _times(rows, "expires")
        if wanted.expires is not None:
            expires = np.where(wanted.expires == NONE, NONE if expires is None else expires, wanted.expires)
        created = _numbers(rows, "created")
        return Found(
            wanted,
            ids=lambda: self._id_column(rows, created, wanted.seq),
            names=self._names,
            attempts=attempts,
            max_attempts=_numbers(rows, "max_attempts"),
            created=created,
            expires=expires,
            bodies=rows.column("body"),
            errors=[self._errors.get(seq) for seq in seqs] if self._errors else None,
            results=[self._results.get(seq) for seq in seqs] if self._results else None,
        )

    def _id_column(self, rows: pa.RecordBatch, created: Numbers, seqs: Numbers) -> pa.Array:
        stamps = created // 1000
        ahead = rows.column("ahead")
        if ahead.null_count < len(ahead):
            stamps = stamps + pc.fill_null(ahead, 0).to_numpy(zero_copy_only=False)
        return ids.with_given(self._store.ids(stamps, seqs), rows.column("id"))


def _numbers(rows: pa.RecordBatch, name: str) -> Numbers:
    found: Numbers = rows.column(name).to_numpy().astype(np.int64, copy=False)
    return found


def _times(rows: pa.RecordBatch, name: str) -> Numbers | None:
    column = rows.column(name)
    if column.null_count == len(column):
        return None
    filled: Numbers = pc.fill_null(column, NONE).to_numpy()
    return filled
