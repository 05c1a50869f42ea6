"""The audit trail: every act that is not a plain publish, claim or settle leaves a record.

A record is a message of the system queue ``_tampu.audit``. It is held, so nobody can claim it, and it expires after
400 days unless the settings of that queue say otherwise. As a message it is in the journal, and so it reaches the lake.

What changes a document (settings, definitions, schedules) is stored with its record as one unit. What changes messages
(cancel, free, replay, purge) has an outcome for each message, so it cannot be part of a unit: its record is stored
first, and then it is done. The journal says what became of each message, and who did it.
"""

from __future__ import annotations

import copy
import getpass
import logging
import os
import uuid
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from tampu.broker import publish, validate
from tampu.broker.core import Core, Steps
from tampu.engines import port
from tampu.model.audit import Actor, AuditRecord
from tampu.model.decoders import from_json
from tampu.model.errors import StorageFull
from tampu.model.message import Message, NewMessage

log = logging.getLogger("tampu")
QUEUE = "_tampu.audit"
_KEPT = 400 * 86_400
_MOST_TEXT = 200
_MOST_IDS = 1000
"""Ids in one record."""


class _Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a record has besides its labels."""

    before: Any = None
    after: Any = None
    request_id: str | None = None


_read = from_json(_Payload).decode


def current_user() -> Actor:
    """The user of the operating system, for stores in this process."""
    try:
        return Actor(getpass.getuser())
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return Actor(f"uid:{os.getuid()}")


def record_call(
    core: Core,
    tenant: str,
    actor: Actor,
    action: str,
    target: str,
    before: Any,
    after: Any,
    id: uuid.UUID | None = None,
) -> port.Publish:
    """The call that stores a record."""
    payload = _Payload(before, after, actor.request_id)
    settings = core.settings.get(tenant, QUEUE)
    new = NewMessage(
        payload=msgspec.json.encode(payload),
        content_type="application/json",
        type=action,
        labels={"actor": actor.name[:_MOST_TEXT] or "-", "target": target[:_MOST_TEXT] or "-"},
        hold="audit",
        ttl=None if settings.ttl_us else _KEPT,
        id=validate.system_id(id or uuid.uuid4()),
    )
    return publish.publish_call(tenant, QUEUE, settings, [validate.item(QUEUE, settings, new)])


class Recording:
    """Verbs that leave a record."""

    core: Core
    tenant: str
    actor: Actor = Actor("tampu")
    """Who uses these verbs."""

    def by(self, actor: Actor) -> Self:
        """These verbs, used by ``actor``."""
        made = copy.copy(self)
        made.actor = actor
        return made

    def recorded(
        self, calls: Sequence[Any], action: str, target: str, before: Any = None, after: Any = None
    ) -> Steps[list[Any]]:
        """Carry out these calls and store a record of them, as one unit. Returns the replies of the calls."""
        record = record_call(self.core, self.tenant, self.actor, action, target, before, after)
        replies: list[Any] = yield port.Together(self.tenant, [*calls, record])
        return replies[: len(calls)]

    def record(self, action: str, target: str, after: Any = None) -> Steps[None]:
        """Store a record of what is done next. A disk that is full does not stop what makes room on it."""
        yield from _if_room(record_call(self.core, self.tenant, self.actor, action, target, None, after))

    def record_ids(self, action: str, ids: Sequence[str]) -> Steps[None]:
        """Store a record of what is done next to these messages."""
        if ids:
            yield from _if_room(self.record_of_ids(action, ids))

    def record_of_ids(self, action: str, ids: Sequence[str], unit: str | None = None) -> port.Publish:
        """The call that stores a record about these messages.

        As part of a ``unit`` with a name it is the same each time the unit is sent: without the request, and with an
        id derived from the name.
        """
        target = ids[0] if len(ids) == 1 else f"{len(ids)} messages"
        listed = {"ids": list(ids[:_MOST_IDS])}
        actor, id = self.actor, None
        if unit is not None:
            actor = Actor(actor.name)
            id = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.tenant}/{unit}/{action}/{ids[0]}")
        return record_call(self.core, self.tenant, actor, action, target, None, listed, id)


def _if_room(record: port.Publish) -> Steps[None]:
    try:
        yield record
    except StorageFull:
        log.warning("the disk is full: %s is done without a record", record.items[0].body.type)


def read_record(message: Message) -> AuditRecord:
    payload = _read(message.body.payload)
    return AuditRecord(
        id=message.id,
        at=message.created_at,
        actor=message.labels.get("actor", "-"),
        action=message.type or "-",
        target=message.labels.get("target", "-"),
        request_id=payload.request_id,
        before=payload.before,
        after=payload.after,
    )
