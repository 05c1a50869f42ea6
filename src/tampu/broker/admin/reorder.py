"""After a change of a queue's ordering or group limits, give waiting messages their new rank or slot, in small steps.

It is completed even if the process that began it dies: a mark, which is a document, is written before the settings
change. The process that changes them updates the messages at once. Some seconds later, when all processes publish by
the new settings, maintenance does it once more and then removes the mark. Messages that are up to date are skipped.
"""

from __future__ import annotations

import msgspec

from tampu.broker import settings
from tampu.broker.core import Read, Steps
from tampu.engines.port import Document, Engine, PutDocument, Regroup, Rerank
from tampu.model.config import covers
from tampu.model.decoders import from_json
from tampu.model.times import SECOND

KIND = "ranking"
NOTICED_US = 5 * SECOND
"""After this time every process has noticed a change of settings."""
_STEP = 500


class Reorder(msgspec.Struct, frozen=True):
    """The content of a mark."""

    since_us: int
    done: bool = False
    ranks: bool = True
    """True if the ordering changes, and not only limits of groups."""


_read = from_json(Reorder).decode


def marking(tenant: str, queue: str, now: int, *, ranks: bool) -> PutDocument:
    """The call that marks a queue or scope (``*``: all queues) whose ordering or group limits are about to change."""
    return PutDocument(KIND, tenant, queue, msgspec.json.encode(Reorder(now, ranks=ranks)))


def is_ranking(engine: Engine, tenant: str, queue: str) -> bool:
    """True if a change of the ordering is not completed yet."""
    document = engine.document(KIND, tenant, queue)
    mark = None if document is None else _read(document.value)
    return mark is not None and mark.ranks and not mark.done


def unmarking(document: Document) -> PutDocument:
    """The call that sets a mark to done; refused if the queue was changed again meanwhile."""
    mark = _read(document.value)
    value = msgspec.json.encode(msgspec.structs.replace(mark, done=True))
    return PutDocument(KIND, document.tenant, document.name, value, document.version)


def marked(engine: Engine) -> list[tuple[Document, Reorder]]:
    """All marks that are not done."""
    found = []
    for tenant in sorted({tenant for tenant, _ in engine.queues()}):
        for document in engine.documents(KIND, tenant):
            mark = _read(document.value)
            if not mark.done:
                found.append((document, mark))
    return found


def follow(tenant: str, queue: str, *, ranks: bool = True) -> Steps[None]:
    """Update the waiting messages of a queue or scope (``*``: of all queues) to the current group limits.

    With ``ranks``, also to the current ordering.
    """
    names: list[tuple[str, str]] = yield Read(lambda engine: engine.queues())
    for owner, name in names:
        if owner == tenant and covers(queue, name):
            yield from _regroup(tenant, name)
            if ranks:
                yield from _rank(tenant, name)


# Settings are read in each step: they may change again, and the last change counts.


def _regroup(tenant: str, name: str) -> Steps[None]:
    group: str | None = ""
    while group is not None:
        set_: settings.Settings = yield Read(lambda e: settings.read(e.document, tenant, name))
        group = yield Regroup(tenant, name, set_.slots, after=group, limit=_STEP, group_rate=set_.group_rate)


def _rank(tenant: str, name: str) -> Steps[None]:
    after: int | None = 0
    while after is not None:
        set_: settings.Settings = yield Read(lambda e: settings.read(e.document, tenant, name))
        after = yield Rerank(tenant, name, set_.ordering, set_.ageing_us, after=after, limit=_STEP)
