"""Erasures as documents: what is to be removed, how far it is, and the ids of what was removed.

An erasure that has not ended is marked (`tampu.broker.recovery`). The ids
of messages are stored before the messages are removed: the report names all of them, whatever process dies.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from tampu.broker import recovery
from tampu.engines.port import DeleteDocument, Document, Engine, PutDocument
from tampu.model.decoders import from_json
from tampu.model.erasure import Erasure, Subject
from tampu.model.message import Message
from tampu.model.times import moment, moment_or_none

KIND = "erasure"
PARTS = "erasure_ids"
"""Kind of the documents with what was removed, named by the erasure and the time."""


class StoredErasure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the document."""

    subject: Subject
    actor: str
    started_us: int
    moved_us: int
    """When a process last worked on it."""
    ended_us: int | None = None
    leased: tuple[str, ...] = ()
    held: dict[str, tuple[str, ...]] = {}
    schedules: tuple[str, ...] = ()
    """Names of schedules that were deleted, because their messages would be the subject's."""


class Removed(msgspec.Struct, frozen=True, array_like=True):
    id: str
    queue: str
    state: str


read = from_json(StoredErasure).decode
_read_part = from_json(list[Removed]).decode


def writing(tenant: str, id: str, stored: StoredErasure) -> list[PutDocument | DeleteDocument]:
    """The calls that store an erasure, and its mark until it has ended."""
    mark = recovery.marked(KIND, tenant, id) if stored.ended_us is None else recovery.unmarked(KIND, tenant, id)
    return [PutDocument(KIND, tenant, id, msgspec.json.encode(stored)), mark]


def part(tenant: str, id: str, now: int, messages: Iterable[Message]) -> PutDocument:
    """The call that stores which messages are removed next."""
    entries = [Removed(message.id, message.queue, message.state) for message in messages]
    return PutDocument(PARTS, tenant, f"{id}/{now:016x}-{secrets.token_hex(4)}", msgspec.json.encode(entries))


def view(engine: Engine, tenant: str, document: Document) -> Erasure:
    """An erasure as users see it."""
    stored = read(document.value)
    entries = {
        one.id: one
        for found in engine.documents(PARTS, tenant, f"{document.name}/")
        for one in _read_part(found.value)
        if one.id not in stored.leased
    }
    removed: dict[str, dict[str, int]] = {}
    for one in entries.values():
        of_queue = removed.setdefault(one.queue, {})
        of_queue[one.state] = of_queue.get(one.state, 0) + 1
    return Erasure(
        id=document.name,
        subject=stored.subject,
        status="done" if stored.ended_us is not None else "waiting" if stored.leased else "running",
        started_at=moment(stored.started_us),
        ended_at=moment_or_none(stored.ended_us),
        removed=removed,
        ids=list(entries),
        leased=list(stored.leased),
        held={name: list(ids) for name, ids in stored.held.items()},
        schedules=list(stored.schedules),
    )
