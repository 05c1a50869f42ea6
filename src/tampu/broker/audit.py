"""The audit trail: every act that is not a plain publish, claim or settle leaves a record.

A record is a document whose name begins with the time, so that they are in order. Users cannot change it; maintenance
removes it after 400 days.

What changes a document (settings, definitions, schedules, keys) is stored with its record as one unit. What changes
messages (cancel, free, replay, purge) has an outcome for each message, so it cannot be part of a unit: its record is
stored first, and then it is done. The journal says what became of each message, and who did it.
"""

from __future__ import annotations

import copy
import getpass
import itertools
import logging
import os
import secrets
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from tampu.broker.core import Core, Read, Steps
from tampu.engines import port
from tampu.model.audit import Actor, AuditRecord
from tampu.model.decoders import from_json
from tampu.model.errors import StorageFull
from tampu.model.times import SECOND, moment

log = logging.getLogger("tampu")
KIND = "audit"
KEPT_US = 400 * 86_400 * SECOND
_numbers = itertools.count()
"""For records of one process at the same time."""
_MOST_TEXT = 500
_MOST_IDS = 1000
"""Ids in one record."""


class StoredRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the document."""

    at_us: int
    actor: str
    action: str
    target: str
    request_id: str | None = None
    before: Any = None
    after: Any = None


read = from_json(StoredRecord).decode


def current_user() -> Actor:
    """The user of the operating system, for stores in this process."""
    try:
        return Actor(getpass.getuser())
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return Actor(f"uid:{os.getuid()}")


def name_at(us: int) -> str:
    """The beginning of the names of records of this time; names are in the order of time."""
    return f"{us:016x}"


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
        record = yield from self._record(action, target, before, after)
        replies: list[Any] = yield port.Together(self.tenant, [*calls, record])
        return replies[: len(calls)]

    def record(self, action: str, target: str, after: Any = None) -> Steps[None]:
        """Store a record of what is done next. A disk that is full does not stop what makes room on it."""
        record = yield from self._record(action, target, None, after)
        try:
            yield record
        except StorageFull:
            log.warning("the disk is full: %s of %s is done without a record", action, target)

    def record_ids(self, action: str, ids: Sequence[str]) -> Steps[None]:
        """Store a record of what is done next to these messages."""
        if ids:
            target = ids[0] if len(ids) == 1 else f"{len(ids)} messages"
            yield from self.record(action, target, {"ids": list(ids[:_MOST_IDS])})

    def _record(self, action: str, target: str, before: Any, after: Any) -> Steps[port.PutDocument]:
        now: int = yield Read(lambda engine: engine.now())
        actor = self.actor
        stored = StoredRecord(
            now, actor.name[:_MOST_TEXT], action, target[:_MOST_TEXT], actor.request_id, before, after
        )
        name = f"{name_at(now)}-{next(_numbers):08x}-{secrets.token_hex(6)}"
        return port.PutDocument(KIND, self.tenant, name, msgspec.json.encode(stored))


def view(document: port.Document) -> AuditRecord:
    """A record as users see it."""
    stored = read(document.value)
    return AuditRecord(
        id=document.name,
        at=moment(stored.at_us),
        actor=stored.actor,
        action=stored.action,
        target=stored.target,
        request_id=stored.request_id,
        before=stored.before,
        after=stored.after,
    )


def outdated(engine: port.Engine, tenant: str, limit: int) -> list[port.DeleteDocument]:
    """The calls that remove the oldest records which are past their time."""
    end = name_at(max(engine.now() - KEPT_US, 0))
    oldest = engine.documents(KIND, tenant, limit=limit)
    return [port.DeleteDocument(KIND, tenant, document.name) for document in oldest if document.name < end]
