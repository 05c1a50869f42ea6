"""How many definitions need a follower. It begins with the first of them, and ends with the last, in any tenant.

The count is a document that changes with its version, in the unit of the definition: of two changes at once one is
tried again, so the count is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from tampu.broker import journal_readers
from tampu.broker.journal_cursor import end_of_journal
from tampu.broker.journal_readers import Reader
from tampu.engines.port import DeleteDocument, Engine, PutDocument
from tampu.model.decoders import from_json

KIND = "follower_uses"
_read = from_json(dict[str, int]).decode


def changes(
    engine: Engine, tenant: str, needed: Iterable[tuple[str | None, str | None]]
) -> list[PutDocument | DeleteDocument]:
    """The calls that go with definitions, for each the follower that it needed, and the one that it needs now."""
    more: Counter[str] = Counter()
    for old, new in needed:
        if old is not None:
            more[old] -= 1
        if new is not None:
            more[new] += 1
    return [call for follower, count in more.items() for call in _count(engine, tenant, follower, count)]


def _count(engine: Engine, tenant: str, follower: str, more: int) -> list[PutDocument | DeleteDocument]:
    begin: list[PutDocument | DeleteDocument] = [*_begin(engine, follower)]
    if more == 0:
        return begin
    document = engine.document(KIND, journal_readers.TENANT, follower)
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
