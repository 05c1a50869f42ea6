"""Operations of readers: giving offsets to the journal, and snapshots for Spark (see `tampu.stores.sql.messages`)."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from typing import Any

from tampu.engines.encoding import DEAD, DELAYED, HELD, LEASED, READY
from tampu.engines.mariadb.wire import Rows, Wire
from tampu.engines.sql.db import Ints, Uuids

Rest = Callable[[], Rows]


def number_journal(wire: Wire, most: int, end: int) -> Rest:
    wire.ask("number_journal", most, end)
    return wire.ask("end_numbering", end).get


def snapshot_endings(wire: Wire, qs: Ints, states: Ints, first: int, last: int) -> Rest:
    answers = [wire.ask("snapshot_endings", qs, state, first, last) for state in states.values]
    return lambda: [row for one in answers for row in one.get()]


def snapshot_live(wire: Wire, qs: Ints, states: Ints) -> Rest:
    wanted = [state in states.values for state in (READY, DELAYED, LEASED, HELD, DEAD)]
    return wire.ask("snapshot_live", qs, *wanted).get


def snapshot_unmoved(wire: Wire, qs: Ints) -> Rest:
    answer = wire.ask("snapshot_unmoved", qs)
    return lambda: [(q, _eight_bytes_each(numbers)) for q, numbers in answer.get()]


def _eight_bytes_each(numbers: str) -> bytes:
    packed = array("q", map(int, numbers.split(",")))
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


def snapshot_find(wire: Wire, seqs: Ints, stamps: Ints, ids: Uuids) -> Rest:
    made = wire.ask("find_by_number", None, Ints(seq for seq in seqs.values if seq is not None))
    given = wire.ask("find_by_own_id", None, ids)

    def rest() -> Rows:
        wanted = set(zip(seqs.values, stamps.values, strict=True))
        found = [(seq, q) for seq, q, stamp in made.get() if (seq, stamp) in wanted]
        return found + [(seq, q) for _, seq, q in given.get()]

    return rest


OPERATIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (number_journal, snapshot_endings, snapshot_find, snapshot_live, snapshot_unmoved)
}
