"""Fire the due ticks of one schedule: publish their messages and update the schedule, as one unit. See `stored`."""

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
    """A tick cannot be published now, and why. It will be tried again."""

    why: str


def fire(tenant: str, name: str) -> Steps[int | Refused | None]:
    """Fire all due ticks. Returns when the next one is due (microseconds), or `Refused`."""
    while True:
        document: Document | None = yield Read(lambda engine: engine.document(stored.KIND, tenant, name))
        if document is None:
            return None
        schedule = stored.read(document)
        if not schedule.firing:
            decision = schedule.decide((yield Read(lambda engine: engine.now())))
            if decision is None:
                return schedule.next_us
            schedule = msgspec.structs.replace(
                schedule, after_us=decision.after_us, firing=decision.fire, fired=schedule.fired + len(decision.fire)
            )
        try:
            yield from _publish(tenant, document, schedule)
        except VersionConflict:  # somebody else has changed it: read it again
            continue
        except StorageError:
            raise
        except TampuError as error:
            why = validate.clip(str(error), _ERROR_CHARACTERS)
            yield from _store_error(tenant, document, msgspec.structs.replace(schedule, error=why))
            return Refused(why)


def _publish(tenant: str, document: Document, schedule: StoredSchedule) -> Steps[None]:
    """Publish the ticks to fire, or a first part of them, and remove them from the schedule, as one unit."""
    name = document.name
    if not schedule.firing:
        yield stored.writing(tenant, name, schedule, document.version)
        return
    # So that many missed ticks of a large message are not one huge commit.
    ticks = schedule.firing[: max(1, _PORTION_BYTES // len(schedule.body))]
    messages = [schedule.of_tick(name, tick) for tick in ticks]

    def prepare(engine: Engine) -> Publish | PublishSet:
        # Read now: the cache may be old, as maintenance may have slept.
        settings_of = functools.cache(functools.partial(settings.read_with_policies, engine, tenant))
        return publish.prepare(tenant, schedule.queue, messages, settings_of)

    step: Publish | PublishSet = yield Read(prepare)
    after = msgspec.structs.replace(
        schedule, firing=schedule.firing[len(ticks) :], last_us=ticks[-1], last_id=schedule.id(ticks[-1]), error=None
    )
    calls = step.calls if isinstance(step, PublishSet) else [step]
    yield Together(tenant, [stored.writing(tenant, name, after, document.version), *calls])


def _store_error(tenant: str, document: Document, schedule: StoredSchedule) -> Steps[None]:
    """Store the ticks that are to fire, and why they could not."""
    if schedule != stored.read(document):
        try:
            yield stored.writing(tenant, document.name, schedule, document.version)
        except VersionConflict:
            return
