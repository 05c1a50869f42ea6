"""Firing what is due of one schedule: decide, publish, confirm. Why each tick fires once is told in scheduled.py."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from tampu.broker import incoming, publish, scheduled, settings
from tampu.broker.core import Look, PublishSet, Steps
from tampu.broker.scheduled import WINDOW_US, Kept
from tampu.engines.port import Document, Engine, Publish
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
    # Many missed ticks of a large message are not one huge commit.
    most = max(1, _PORTION_BYTES // len(kept.body))
    try:
        for start in range(0, len(kept.firing), most):
            if (yield Look(lambda engine: engine.now())) - read_us > _STALE_US:
                return None
            last_id = yield from _store(tenant, name, kept, kept.firing[start : start + most])
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


def _store(tenant: str, name: str, kept: Kept, ticks: Sequence[int]) -> Steps[str]:
    """The id of the last message. What was stored under another body was so before the schedule was changed."""
    messages = [kept.of_tick(name, tick) for tick in ticks]

    def prepare(engine: Engine) -> Publish | PublishSet:
        # As they are this moment: keepers may not have looked for a while.
        settings_of = functools.cache(functools.partial(settings.read, engine.document, tenant))
        return publish.prepare(tenant, kept.queue, messages, settings_of, window_us=WINDOW_US)

    try:
        stored: list[Message] = yield (yield Look(prepare))
        return stored[-1].id
    except IdempotencyConflict:
        if len(ticks) == 1:
            return kept.id(ticks[0])
    for tick in ticks[:-1]:  # perhaps only some were
        yield from _store(tenant, name, kept, [tick])
    return (yield from _store(tenant, name, kept, ticks[-1:]))
