"""The audit trail in the lake: records of the store that the lake does not have yet.

Records have no place in the journal, but names that begin with their time. One may become visible after a later one,
so those of the last day before the newest are looked at again: what the lake has is known by its name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from datetime import datetime

import msgspec
import pyarrow as pa

from tampu.broker import audit
from tampu.engines.port import Document
from tampu.lake.storage.snapshots import Snapshot
from tampu.lake.tables.bronze import AUDIT
from tampu.model.errors import Forbidden
from tampu.model.times import SECOND
from tampu.stores.port import ArrowStore

log = logging.getLogger("tampu.pipeline")
_AGAIN_US = 86_400 * SECOND
"""How long before the newest record one may have come late."""
_BITS = 36
_DIGITS = 7
"""Names that begin with the same seven digits are of the same 2^36 microseconds: some 19 hours."""


def new_records(store: ArrowStore, known: Snapshot, tenants: Collection[str], run: str) -> Iterator[pa.RecordBatch]:
    """Rows of bronze.audit that are not there yet."""
    for tenant in sorted(tenants):
        newest, names = _known(known, tenant)
        try:
            found = [one for one in _documents(store, tenant, newest) if one.name not in names]
        except Forbidden as error:  # through a server, by a key that is no administrator's
            log.warning("the audit trail is left out: %s", error.message)
            return
        if found:
            yield pa.RecordBatch.from_pylist([_row(one, run) for one in found], schema=AUDIT.schema)


def _known(known: Snapshot, tenant: str) -> tuple[int | None, set[str]]:
    """When the newest record was made that the lake has, and the names of those about as new."""
    files = [file for file in known.files() if file.tenant == tenant]
    made = [_us(file.newest) for file in files if file.newest is not None]
    newest = max(made, default=None) if len(made) == len(files) else 0
    recent = [file for file in files if newest is None or file.newest is None or _us(file.newest) >= newest - _AGAIN_US]
    return newest, {name for batch in known.peeked(["id"], recent) for name in batch.column("id").to_pylist()}


def _us(at: datetime) -> int:
    return round(at.timestamp() * SECOND)


def _documents(store: ArrowStore, tenant: str, newest: int | None) -> Iterator[Document]:
    if not newest:
        yield from store.documents(audit.KIND, tenant, "0")  # what all times of ours begin with
        return
    begin = max(newest - _AGAIN_US, 0)
    for part in range(begin >> _BITS, (max(newest, store.now()) >> _BITS) + 1):
        for one in store.documents(audit.KIND, tenant, f"{part:0{_DIGITS}x}"):
            if one.name >= audit.name_at(begin):
                yield one


def _row(document: Document, run: str) -> dict[str, object]:
    record = audit.view(document)
    row = msgspec.structs.asdict(record)
    for name in ("before", "after"):
        row[name] = None if row[name] is None else msgspec.json.encode(row[name]).decode()
    return {**row, "run": run, "day": record.at.date(), "tenant": document.tenant}
