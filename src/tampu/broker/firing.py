"""Firing what is due of one schedule: decide, publish, confirm. Why each tick fires once is told in scheduled.py."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tampu.broker import incoming, scheduled, settings
from tampu.broker.core import Look, Steps
from tampu.broker.scheduled import Kept
from tampu.engines.port import Document, Item, Publish
from tampu.model.errors import IdempotencyConflict, StorageError, TampuError, VersionConflict
from tampu.model.message import Message
from tampu.model.times import SECOND

_STALE_US = 3600 * SECOND
"""Who has been away for so long since it read a document reads it again: others may have gone on, and the window of
the tick's idempotency key is not endless."""
_ERROR_CHARACTERS = 500
_PORTION_BYTES = 4 * 1024 * 1024


class Refused(msgspec.Struct, frozen=True):
    """A tick that can not be published now, and why: it is to be tried again."""

    why: str


def fire(tenant: str, name: str) -> Steps[int | Refused | None]:
    """Fire what is due; when there is something to do next."""
    while True:
        document: Document | None = yield Look(lambda engine: engine.document(scheduled.KIND, tenant, name))
        if document is None:
            return None
        kept = scheduled.read(document)
        now: int = yield Look(lambda engine: engine.now())
        if kept.firing:
            refused = yield from _publish(tenant, document, kept, now)
            if refused is not None:
                return refused
            continue
        decision = kept.decide(now)
        if decision is None:
            return kept.next_us
        decided = msgspec.structs.replace(
            kept, after_us=decision.after_us, firing=decision.fire, fired=kept.fired + len(decision.fire)
        )
        yield from _write(tenant, name, decided, document.version)


def _write(tenant: str, name: str, kept: Kept, version: int) -> Steps[bool]:
    """Whether nobody else has changed it; if somebody has, what is there now is looked at again."""
    try:
        yield scheduled.writing(tenant, name, kept, version)
    except VersionConflict:
        return False
    return True


def _publish(tenant: str, document: Document, kept: Kept, read_us: int) -> Steps[Refused | None]:
    """Publish what is decided, and confirm it."""
    name, last_id = document.name, ""
    try:
        set_: settings.Settings = yield Look(lambda engine: settings.read(engine.document, tenant, kept.queue))
        incoming.check_open(kept.queue, set_)
        for items in _portions([kept.item(name, set_, tick) for tick in kept.firing]):
            if (yield Look(lambda engine: engine.now())) - read_us > _STALE_US:
                return None
            last_id = yield from _store(
                Publish(tenant, kept.queue, items, set_.max_depth, places=set_.places, pace=set_.pace)
            )
    except StorageError:
        raise
    except TampuError as error:
        why = incoming.clip(str(error), _ERROR_CHARACTERS)
        if why != kept.error:
            yield from _write(tenant, name, msgspec.structs.replace(kept, error=why), document.version)
        return Refused(why)
    confirmed = msgspec.structs.replace(kept, firing=(), last_us=kept.firing[-1], last_id=last_id, error=None)
    yield from _write(tenant, name, confirmed, document.version)
    return None


def _portions(items: list[Item]) -> Iterator[list[Item]]:
    """Many missed ticks of a large message are not one huge commit."""
    portion: list[Item] = []
    size = 0
    for item in items:
        if portion and size + len(item.packed) > _PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(item)
        size += len(item.packed)
    yield portion


def _store(call: Publish) -> Steps[str]:
    """The id of the last message. What was stored under another body was so before the schedule was changed."""
    try:
        messages: list[Message] = yield call
        return messages[-1].id
    except IdempotencyConflict:
        *before, last = call.items
        for item in before:  # perhaps only some were
            yield from _store(msgspec.structs.replace(call, items=[item]))
        if before:
            return (yield from _store(msgspec.structs.replace(call, items=[last])))
        return last.id or ""
