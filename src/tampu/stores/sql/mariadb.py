"""MariaDB as an Arrow store. Driver and executors each connect to it. Rows come column by column, many in one answer,
because the Python driver is slow per row."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.mariadb import MariaEngine
from tampu.engines.sql.db import Db, Ints, ServerDb
from tampu.stores.arrow.numbers import Numbers
from tampu.stores.arrow.snapshot_rows import NONE
from tampu.stores.sql.store import ServerStore

ROWS = 1 << 13
"""Maximum number of messages that one statement reads."""
BYTES = 4 << 20
"""Approximate size of a batch; a single row may be larger."""


class MariaStore(ServerStore[MariaEngine]):
    def hold(self, db: Db, other: ServerDb) -> int:
        """The lock keeps others from assigning offsets. So the records without an offset in the snapshot of ``other``
        are exactly the missing ones, and those are numbered, whatever was committed since."""
        with db.together():
            db.command(b"START TRANSACTION")
            (latest,) = db.row("lock_journal")
            with other.together():
                other.begin_reading()
                new = other.rows("snapshot_unnumbered")
            ends = list(itertools.accumulate((n for _, _, n in new), initial=latest))
            db.send(
                "snapshot_number_records",
                Ints(end + 1 for end in ends[:-1]),
                Ints(no for no, _, _ in new),
                Ints(part for _, part, _ in new),
            )
            db.send("end_numbering", latest)
            db.send("seal_journal")  # after this commit all that was seen is on disk, even if nothing was new
            db.command(b"COMMIT")
        return int(ends[-1])

    def walk(self, wanted: Numbers, *, bodies: bool) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - always there
        """One transaction per batch. The size of a batch follows from how many messages fitted into the one before."""
        first, last, most = int(wanted[0]), int(wanted[-1]), ROWS
        while first <= last:
            asked = functools.partial(_batch, first=first, last=last, limit=most)
            batch, whole = self.engine.readers.run_in_snapshot(asked)
            if batch is None:
                return
            yield batch
            first = batch.column("seq")[-1].as_py() + 1
            most = ROWS if whole else max(1, 2 * len(batch))


def _batch(db: Db, first: int, last: int, limit: int) -> tuple[pa.RecordBatch | None, bool]:
    """The first messages of a range, up to ``limit`` and `BYTES`; and False if the size cut them off."""
    ((*texts, has_own, own_ids),) = db.rows("snapshot_columns", first, last, limit, NONE)
    if has_own is None:
        return None, True
    seqs, created, most, expires, ahead, sizes = map(_numbers, texts)
    own = np.frombuffer(has_own.encode(), np.uint8) == ord("1")
    room = min(BYTES, getattr(db, "most_bytes", BYTES))
    count = max(1, int(np.searchsorted(np.cumsum(sizes), room, "right")))
    ((same, bodies),) = db.rows("snapshot_bodies", int(seqs[0]), int(seqs[count - 1]))
    assert np.array_equal(_numbers(same), seqs[:count]), "the rows of one moment, in the order of their key"
    columns = {
        "seq": pa.array(seqs[:count]),
        "created": pa.array(created[:count]),
        "max_attempts": pa.array(most[:count]),
        "expires": _nullable(expires[:count]),
        "ahead": _nullable(ahead[:count]),
        "id": _ids(own, own_ids)[:count],
        "body": _packed(bodies, sizes[:count]),
    }
    return pa.record_batch(columns), count == len(seqs)


def _numbers(text: str) -> Numbers:
    return np.fromstring(text, np.int64, sep=",")


def _nullable(values: Numbers) -> pa.Array:
    return pa.array(values, mask=values == NONE)


def _ids(own: Any, packed: bytes | None) -> pa.Array:
    """A column of given ids, 16 bytes each; null where there is none."""
    wide = np.zeros((len(own), 16), np.uint8)
    if packed is not None:
        wide[own] = np.frombuffer(packed, np.uint8).reshape(-1, 16)
    made = pa.Array.from_buffers(pa.binary(16), len(own), [None, pa.py_buffer(wide)])
    return made if own.all() else pc.if_else(pa.array(own), made, None)


def _packed(bodies: bytes, sizes: Numbers) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    assert len(bodies) == offsets[-1], "bodies do not have the sizes that were read"
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(bodies)])
