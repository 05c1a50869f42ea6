"""The audit trail backwards: its records are stored in the order of time, so spans of time are read, newest first."""

from __future__ import annotations

from collections.abc import Callable

from tampu.broker import audit
from tampu.engines.port import Document, Engine
from tampu.model.audit import AuditRecord
from tampu.model.times import SECOND

_FIRST_SPAN = 3600 * SECOND
_SHORTEST = 1000
_PAGE = 1000
_DENSE = 4000
"""Records of one span; with more, shorter spans are read."""
_SPARSE = 500
_MOST_READ = 20_000
"""Records that one page looks at."""


def newest(
    engine: Engine, tenant: str, until_us: int, since_us: int, wanted: Callable[[AuditRecord], bool], most: int
) -> tuple[list[AuditRecord], int | None]:
    """(the last records before a time that are wanted, newest first; where to go on, None at the beginning)"""
    first = engine.documents(audit.KIND, tenant, limit=1)
    if not first:
        return [], None
    beginning = max(since_us, int(first[0].name[:16], 16))
    found: list[AuditRecord] = []
    end, span, read = until_us, _FIRST_SPAN, 0
    while end > beginning and read < _MOST_READ:
        start = max(beginning, end - span)
        part = _between(engine, tenant, start, end, whole=span <= _SHORTEST)
        if len(part) > _DENSE and span > _SHORTEST:
            span = max(_SHORTEST, span // 8)
            continue
        read += len(part)
        for document in reversed(part):
            record = audit.view(document)
            if wanted(record):
                found.append(record)
                if len(found) == most:
                    return found, int(document.name[:16], 16)
        end = start
        if len(part) < _SPARSE:
            span *= 4
    return found, end if end > beginning else None


def _between(engine: Engine, tenant: str, start: int, end: int, *, whole: bool) -> list[Document]:
    """The records of a span of time; if not ``whole``, only the first of them where there are very many."""
    found: list[Document] = []
    after, last = audit.name_at(start), audit.name_at(end)
    while whole or len(found) <= _DENSE:
        page = engine.documents(audit.KIND, tenant, after=after, limit=_PAGE)
        inside = [document for document in page if document.name < last]
        found += inside
        if len(inside) < _PAGE:
            break
        after = page[-1].name
    return found
