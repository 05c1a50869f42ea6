"""What is stored of an alert that fires: one document for each alert, written in one unit with its notification."""

from __future__ import annotations

import hashlib
import uuid

import msgspec

from tampu.engines.port import Document, Engine, PutDocument
from tampu.model.decoders import from_json
from tampu.model.definitions import Firing
from tampu.model.times import moment

KIND = "alert_state"
HISTORY = "*"
"""The name of a document of this kind that is not an alert's: what the leader remembers of the tenant. So one read
finds both."""


class Since(msgspec.Struct, frozen=True):
    us: int
    value: float


class AlertState(msgspec.Struct, frozen=True, omit_defaults=True):
    firing: dict[str, Since] = {}
    """By queue, or name of the follower."""
    changes: int = 0
    """How often it has changed: each change has one notification, whose id is derived from this number."""


read = from_json(AlertState).decode


def stored(engine: Engine, tenant: str) -> list[Document]:
    """The documents of the alerts of a tenant that have ever fired."""
    return [document for document in engine.documents(KIND, tenant) if document.name != HISTORY]


def saving(tenant: str, alert: str, state: AlertState, version: int) -> PutDocument:
    """The call that stores a state if the document still has this version."""
    return PutDocument(KIND, tenant, alert, msgspec.json.encode(state), version)


def firing(engine: Engine, tenant: str) -> list[Firing]:
    """All that fires in a tenant."""
    return [
        Firing(document.name, target, moment(since.us), since.value)
        for document in stored(engine, tenant)
        for target, since in sorted(read(document.value).firing.items())
    ]


def counts(engine: Engine, tenant: str) -> dict[str, int]:
    """For how many queues or followers each alert fires that has ever fired."""
    return {document.name: len(read(document.value).firing) for document in stored(engine, tenant)}


def notification_id(tenant: str, alert: str, changes: int) -> str:
    """The id of the message about a change: always the same."""
    raw = bytearray(hashlib.blake2b(f"alert\0{tenant}\0{alert}\0{changes}".encode(), digest_size=16).digest())
    raw[6], raw[8] = raw[6] & 0x0F | 0x80, raw[8] & 0x3F | 0x80  # UUIDv8
    return str(uuid.UUID(bytes=bytes(raw)))
