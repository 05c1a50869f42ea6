"""Messages of which the lake has an end, and that are heard of again: by a replay, or because their store was moved.

A store that took messages over tells an adoption of each, in the state it had. A lake that was fed by the old store has
those ends already; one that is new has them from the adoption only.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake.silver import within
from tampu.lake.snapshots import Snapshot
from tampu.lake.verbs import ENDS
from tampu.model.journal import Position

WHO = pa.schema([("id", pa.string()), ("tenant", pa.string())])
_EVENT = ("verb", "state", "partition", "offset", "id", "tenant")


def replayed(events: Snapshot, have: Position, target: Position) -> pa.Table:
    """id and tenant of messages that are replayed between two positions."""
    return _who(_found(events, have, target, adopted=False))


def ended_before(events: Snapshot, have: Position, target: Position) -> pa.Table:
    """The same, and of those that are adopted as ended."""
    return _who(_found(events, have, target, adopted=True))


def told_again(events: Snapshot, have: Position, target: Position) -> dict[str, pa.Array]:
    """Offsets, by partition, of adoptions between two positions that tell of an end which the lake has."""
    if not any(have.values()):
        return {}
    found = _found(events, have, target, adopted=True)
    ids = found.filter(pc.equal(found["verb"], "adopt"))["id"].combine_chunks()
    if not len(ids):
        return {}
    schema = events.table.spec.schema
    told = [
        batch.filter(pc.and_(pc.is_in(batch.column("id"), value_set=ids), _ends_or_replays(batch)))
        for batch in events.peeked(_EVENT, events.files())
    ]
    rows = pa.Table.from_batches([within(batch, {}, target) for batch in told], pa.schema(map(schema.field, _EVENT)))
    rows = rows.sort_by([(name, "ascending") for name in ("tenant", "id", "partition", "offset")])
    later, sooner = rows.slice(1), rows.slice(0, max(0, rows.num_rows - 1))
    again = pc.equal(later["verb"], "adopt")
    for name in ("tenant", "id", "state"):
        again = pc.and_(again, pc.equal(later[name], sooner[name]))
    known = later.filter(again)
    return {
        p: known.filter(pc.equal(known["partition"], p))["offset"].combine_chunks()
        for p in pc.unique(known["partition"]).to_pylist()
    }


def _found(events: Snapshot, have: Position, target: Position, *, adopted: bool) -> pa.Table:
    schema = pa.schema([events.table.spec.schema.field(name) for name in _EVENT])
    wanted = {"replay", "adopt"} if adopted else {"replay"}
    found = []
    for file in events.files(after=have):
        verbs = events.peeked(["verb"], [file])
        if any(not wanted.isdisjoint(pc.unique(batch.column(0)).to_pylist()) for batch in verbs):
            for batch in events.peeked(_EVENT, [file]):
                some = within(batch, have, target)
                named = pc.is_in(some.column("verb"), pa.array(sorted(wanted)))
                found.append(some.filter(pc.and_(named, _ends_or_replays(some))))
    return pa.Table.from_batches(found, schema)


def _ends_or_replays(batch: pa.RecordBatch) -> pa.Array:
    ended = pc.fill_null(pc.is_in(batch.column("state"), pa.array(sorted(ENDS))), False)
    return pc.or_(ended, pc.equal(batch.column("verb"), "replay"))


def _who(found: pa.Table) -> pa.Table:
    return found.select(WHO.names).group_by(WHO.names).aggregate([])
