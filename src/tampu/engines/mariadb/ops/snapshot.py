"""Operations of readers: giving offsets to the journal, and snapshots for Spark (see `tampu.stores.sql.messages`)."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

from tampu.engines.encoding import DEAD, DELAYED, HELD, LEASED, READY
from tampu.engines.mariadb.ops.common import Operation
from tampu.engines.sql.db import Ints, Uuids

if TYPE_CHECKING:
    from tampu.engines.mariadb.database import Db


def number_journal(db: Db, most: int, end: int) -> Operation:
    db.submit("number_journal", most, end)
    answer = db.submit("end_numbering", end)
    yield
    return answer.get()


def snapshot_endings(db: Db, qs: Ints, states: Ints, first: int, last: int) -> Operation:
    answers = [db.submit("snapshot_endings", qs, state, first, last) for state in states]
    yield
    return [row for one in answers for row in one.get()]


def snapshot_live(db: Db, qs: Ints, states: Ints) -> Operation:
    wanted = [state in states for state in (READY, DELAYED, LEASED, HELD, DEAD)]
    answer = db.submit("snapshot_live", qs, *wanted)
    yield
    return answer.get()


def snapshot_unmoved(db: Db, qs: Ints) -> Operation:
    answer = db.submit("snapshot_unmoved", qs)
    yield
    return [(q, _eight_bytes_each(numbers)) for q, numbers in answer.get()]


def _eight_bytes_each(numbers: str) -> bytes:
    packed = array("q", map(int, numbers.split(",")))
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


def snapshot_find(db: Db, seqs: Ints, stamps: Ints, ids: Uuids) -> Operation:
    made = db.submit("find_by_number", None, Ints(seq for seq in seqs if seq is not None))
    given = db.submit("find_by_own_id", None, ids)
    yield
    wanted = set(zip(seqs, stamps, strict=True))
    found = [(seq, q) for seq, q, stamp in made.get() if (seq, stamp) in wanted]
    return found + [(seq, q) for _, seq, q in given.get()]
