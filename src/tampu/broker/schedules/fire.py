"""Firing what is due of one schedule: publish, and move the schedule on, as one unit. See scheduled.py."""

from __future__ import annotations

import functools

import msgspec

from tampu.broker import publish, settings, validate
from tampu.broker.core import PublishSet, Read, Steps
from tampu.broker.schedules import stored
from tampu.broker.schedules.stored import StoredSchedule
from tampu.engines.port import Document, Engine, Publish, Together
from tampu.model.errors import StorageError, TampuError, VersionConflict

_ERROR_CHARACTERS = 500
_PORTION_BYTES = 4 * 1024 * 1024


class Refused(msgspec.Struct, frozen=True):
    """A tick that can not be published now, and why: it is to be tried again."""

    why: str


def fire(tenant: str, name: str) -> Steps[int | Refused | None]:
    """Fire what is due; when there is something to do next."""
    while True:
        document: Document | None = yield Read(lambda engine: engine.document(stored.KIND, tenant, name))
        if document is None:
            return None
        kept = stored.read(document)
        if not kept.firing:
            decision = kept.decide((yield Read(lambda engine: engine.now())))
            if decision is None:
                return kept.next_us
            kept = msgspec.structs.replace(
                kept, after_us=decision.after_us, firing=decision.fire, fired=kept.fired + len(decision.fire)
            )
        try:
            yield from _publish(tenant, document, kept)
        except VersionConflict:  # somebody else has changed it: what is there now is looked at again
            continue
        except StorageError:
            raise
        except TampuError as error:
            why = validate.clip(str(error), _ERROR_CHARACTERS)
            yield from _keep(tenant, document, msgspec.structs.replace(kept, error=why))
            return Refused(why)


def _publish(tenant: str, document: Document, kept: StoredSchedule) -> Steps[None]:
    """Publish what is decided, or as much of it as one commit should hold, and move on over it, in one unit."""
    name = document.name
    if not kept.firing:
        yield stored.writing(tenant, name, kept, document.version)
        return
    # Many missed ticks of a large message are not one huge commit.
    ticks = kept.firing[: max(1, _PORTION_BYTES // len(kept.body))]
    messages = [kept.of_tick(name, tick) for tick in ticks]

    def prepare(engine: Engine) -> Publish | PublishSet:
        # As they are this moment: maintenance may not have looked for a while.
        settings_of = functools.cache(functools.partial(settings.read, engine.document, tenant))
        return publish.prepare(tenant, kept.queue, messages, settings_of)

    step: Publish | PublishSet = yield Read(prepare)
    moved_on = msgspec.structs.replace(
        kept, firing=kept.firing[len(ticks) :], last_us=ticks[-1], last_id=kept.id(ticks[-1]), error=None
    )
    calls = step.calls if isinstance(step, PublishSet) else [step]
    yield Together(tenant, [stored.writing(tenant, name, moved_on, document.version), *calls])


def _keep(tenant: str, document: Document, kept: StoredSchedule) -> Steps[None]:
    """What is refused stays decided, and says why."""
    if kept != stored.read(document):
        try:
            yield stored.writing(tenant, document.name, kept, document.version)
        except VersionConflict:
            return
