"""The recorded progress of a migration: a document in the source (`SourceProgress`), one in the target
(`TargetProgress`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from tampu.engines.port import Call, DeleteDocument, Engine, PutDocument
from tampu.model.decoders import from_json
from tampu.model.errors import TampuError, VersionConflict
from tampu.model.journal import Position

KIND = "move"
_TENANT = "*"
_AWAY = "away"
N = TypeVar("N", bound="SourceProgress | TargetProgress")


def do(engine: Engine, call: Call) -> Any:
    """Carry out one call. Returns its reply or raises its error."""
    (reply,) = engine.run([call])
    if isinstance(reply, TampuError):
        raise reply
    return reply


class SourceProgress(msgspec.Struct, kw_only=True):
    """In the source: which migration it is, and the statuses its queues had before they were closed."""

    token: str
    began_us: int
    target: str
    """Shown to users."""
    statuses: dict[str, str | None] = {}
    """tenant/queue → the status that was set for the queue itself."""
    done: bool = False
    version: int = 0
    """Of the document, so that two migrations at once cannot overwrite each other."""


class TargetProgress(msgspec.Struct, kw_only=True):
    """In the target, under the token of the migration."""

    token: str
    began_us: int
    origin: str
    before: dict[str, str | None] = {}
    """tenant/queue → status, of queues that were here before; their settings are not replaced."""
    had: dict[str, int] = {}
    """How many messages these queues had."""
    journal: Position = {}
    """Where the journal of the source ended."""
    fresh: bool = False
    """The journal was empty: it continues where the other ended, and so do its readers."""
    arrived: bool = False
    """Everything is here; the queues are still to be opened."""
    done: bool = False
    version: int = 0


_to_away = from_json(SourceProgress).decode
_to_coming = from_json(TargetProgress).decode


def away(engine: Engine) -> SourceProgress | None:
    return _read(engine, _AWAY, _to_away)


def coming(engine: Engine, token: str) -> TargetProgress | None:
    return _read(engine, token, _to_coming)


def begun(engine: Engine) -> TargetProgress | None:
    """A migration to this store that is not complete, if there is one."""
    for document in engine.documents(KIND, _TENANT):
        if document.name != _AWAY:
            note = _to_coming(document.value)
            if not note.arrived:
                return note
    return None


def _read(engine: Engine, name: str, read: Callable[[bytes], N]) -> N | None:
    found = engine.document(KIND, _TENANT, name)
    if found is None:
        return None
    note = read(found.value)
    note.version = found.version
    return note


def save(engine: Engine, note: SourceProgress | TargetProgress) -> None:
    name = _AWAY if isinstance(note, SourceProgress) else note.token
    try:
        note.version = do(engine, PutDocument(KIND, _TENANT, name, msgspec.json.encode(note), note.version))
    except VersionConflict:
        raise VersionConflict(
            "another migration of this store is running", hint="wait until it has ended, then copy again: it continues"
        ) from None


def forget_source_progress(engine: Engine) -> None:
    do(engine, DeleteDocument(KIND, _TENANT, _AWAY))


def new_token() -> str:
    return secrets.token_hex(8)
