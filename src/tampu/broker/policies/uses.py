"""How many definitions need a follower. It begins with the first of them, and ends with the last, in any tenant.

The count is a document that changes with its version, in the unit of the definition: of two changes at once one is
tried again, so the count is right.
"""

from __future__ import annotations

import msgspec

from tampu.broker import journal_readers
from tampu.broker.journal_cursor import end_of_journal
from tampu.broker.journal_readers import Reader
from tampu.engines.port import DeleteDocument, Engine, PutDocument
from tampu.model.decoders import from_json

KIND = "follower_uses"
_read = from_json(dict[str, int]).decode


def changes(engine: Engine, tenant: str, old: str | None, new: str | None) -> list[PutDocument | DeleteDocument]:
    """The calls that go with a definition which needed the follower ``old``, and needs ``new`` now."""
    if old == new:
        return [] if new is None else [*_begin(engine, new)]
    gone = [] if old is None else _count(engine, tenant, old, -1)
    return gone if new is None else gone + _count(engine, tenant, new, 1)


def _count(engine: Engine, tenant: str, follower: str, more: int) -> list[PutDocument | DeleteDocument]:
    document = engine.document(KIND, journal_readers.TENANT, follower)
    begin = _begin(engine, follower)
    if document is None and not begin:
        return []  # it began before its uses were counted: it stays
    counts = {} if document is None else _read(document.value)
    counts[tenant] = counts.get(tenant, 0) + more
    counts = {name: count for name, count in counts.items() if count > 0}
    version = 0 if document is None else document.version
    put = PutDocument(KIND, journal_readers.TENANT, follower, msgspec.json.encode(counts), version)
    if counts:
        return [put, *(begin if more > 0 else [])]
    return [put, journal_readers.forgetting(journal_readers.FOLLOWER + follower)]


def _begin(engine: Engine, follower: str) -> list[PutDocument]:
    """The call that lets a follower begin at the end of the journal; none if it has begun already."""
    name = journal_readers.FOLLOWER + follower
    if engine.document(journal_readers.KIND, journal_readers.TENANT, name) is not None:
        return []
    return [journal_readers.saving(Reader(name, end_of_journal(engine), engine.now()), version=0)]
