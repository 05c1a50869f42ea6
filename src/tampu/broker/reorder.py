"""A queue that changes its ordering, or how many of a group may go at once: what waits follows, in small steps.

To the end, even if who began dies.

A mark is written before the settings change. Who changes them ranks at once. Some seconds later, when every process has
noticed and nobody publishes by the old ordering any more, the keepers do it once more and only then take the mark away;
messages that have their rank already are left alone.
"""

from __future__ import annotations

import msgspec

from tampu.broker import settings
from tampu.broker.core import Read, Steps
from tampu.broker.settings import DEFAULTS
from tampu.engines.port import Document, Engine, PutDocument, Regroup, Rerank
from tampu.model.decoders import from_json
from tampu.model.times import SECOND

KIND = "ranking"
NOTICED_US = 5 * SECOND
"""By then every process has noticed a change of settings."""
_STEP = 500


class Reorder(msgspec.Struct, frozen=True):
    since_us: int
    done: bool = False
    ranks: bool = True
    """The ordering changes, not only the limits of groups."""


_read = from_json(Reorder).decode


def marking(tenant: str, queue: str, now: int, *, ranks: bool) -> PutDocument:
    """The call that says: the ordering of this queue (or with ``*`` of all), or its groups, are about to change."""
    return PutDocument(KIND, tenant, queue, msgspec.json.encode(Reorder(now, ranks=ranks)))


def is_ranking(engine: Engine, tenant: str, queue: str) -> bool:
    """Is there a mark of an ordering that was changed, and nobody has finished yet?"""
    document = engine.document(KIND, tenant, queue)
    mark = None if document is None else _read(document.value)
    return mark is not None and mark.ranks and not mark.done


def unmarking(document: Document) -> PutDocument:
    """The call that says that it is done; refused when it has changed again meanwhile."""
    mark = _read(document.value)
    value = msgspec.json.encode(msgspec.structs.replace(mark, done=True))
    return PutDocument(KIND, document.tenant, document.name, value, document.version)


def marked(engine: Engine) -> list[tuple[Document, Reorder]]:
    """Marks of rankings that are not done."""
    found = []
    for tenant in sorted({tenant for tenant, _ in engine.queues()}):
        for document in engine.documents(KIND, tenant):
            mark = _read(document.value)
            if not mark.done:
                found.append((document, mark))
    return found


def follow(tenant: str, queue: str, *, ranks: bool = True) -> Steps[None]:
    """Bring what waits in a queue, or with ``*`` in all of the tenant, to what is set now: groups, and with ``ranks``
    the ordering."""
    names: list[tuple[str, str]] = yield Read(lambda engine: engine.queues())
    for owner, name in names:
        if owner == tenant and queue in (name, DEFAULTS):
            yield from _regroup(tenant, name)
            if ranks:
                yield from _rank(tenant, name)


# Settings are read with each step: somebody may change them again, and the last one holds.


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
