"""The audit trail in the lake: records of the store that the lake does not have yet.

Records have no place in the journal, but names that begin with their time. One may become visible after a later one,
so those of the last day before the newest are looked at again: what the lake has is known by its name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

import msgspec
import pyarrow as pa

from tampu.broker import audit
from tampu.engines.port import Document
from tampu.lake.storage.snapshots import Snapshot
from tampu.lake.tables.bronze import AUDIT
from tampu.model.errors import Forbidden
from tampu.model.journal import Position
from tampu.model.times import SECOND, moment
from tampu.stores.port import ArrowStore

log = logging.getLogger("tampu.pipeline")
_AGAIN_US = 86_400 * SECOND
"""How long before the newest record one may have come late."""
_BITS = 36
_DIGITS = 7
"""Names that begin with the same seven digits are of the same 2^36 microseconds: some 19 hours."""


def new_records(
    store: ArrowStore, known: Snapshot, reader: str, tenants: Collection[str], run: str
) -> tuple[list[pa.RecordBatch], Position]:
    """Rows of bronze.audit that are not there yet; and when the newest of each tenant was made, for the log of the
    table: days that were let go do not come back."""
    rows, newest = [], {}
    for tenant in sorted(tenants):
        place = f"audit/{tenant}"
        since = max(known.position(reader, [place])[place] - _AGAIN_US, 0)
        names = _names(known, tenant, since)
        try:
            found = [one for one in _documents(store, tenant, since) if one.name not in names]
        except Forbidden as error:  # through a server, by a key that is no administrator's
            log.warning("the audit trail is left out: %s", error.message)
            break
        if found:
            rows.append(pa.RecordBatch.from_pylist([_row(one, run) for one in found], schema=AUDIT.schema))
            made = max(since + _AGAIN_US, *(audit.read(one.value).at_us for one in found))
            newest[place] = min(made, store.now())  # of a clock that was ahead
    return rows, newest


def _names(known: Snapshot, tenant: str, since: int) -> set[str]:
    """Of the records that the lake has."""
    first = moment(since).date().isoformat()
    files = [file for file in known.files() if file.tenant == tenant and (file.day or first) >= first]
    return {name for batch in known.peeked(["id"], files) for name in batch.column("id").to_pylist()}


def _documents(store: ArrowStore, tenant: str, since: int) -> Iterator[Document]:
    """Those of a time and later, also of a clock that is two days ahead. All that there are begin with a zero."""
    parts = [f"{part:0{_DIGITS}x}" for part in range(since >> _BITS, (store.now() + 2 * _AGAIN_US >> _BITS) + 1)]
    for part in parts if since else ["0"]:
        for one in store.documents(audit.KIND, tenant, part):
            if one.name >= audit.name_at(since):
                yield one


def _row(document: Document, run: str) -> dict[str, object]:
    record = audit.view(document)
    row = msgspec.structs.asdict(record)
    for name in ("before", "after"):
        row[name] = None if row[name] is None else msgspec.json.encode(row[name]).decode()
    return {**row, "run": run, "day": record.at.date(), "tenant": document.tenant}
