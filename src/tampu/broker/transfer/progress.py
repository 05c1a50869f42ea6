"""What a move writes down: one document in the source (`SourceProgress`), one in the target (`TargetProgress`)."""

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
_HOUSE = "*"
_AWAY = "away"
N = TypeVar("N", bound="SourceProgress | TargetProgress")


def do(engine: Engine, call: Call) -> Any:
    """Carry out one call; its error is raised."""
    (reply,) = engine.run([call])
    if isinstance(reply, TampuError):
        raise reply
    return reply


class SourceProgress(msgspec.Struct, kw_only=True):
    """In the source: which move takes it away, and what its queues were before they were closed."""

    token: str
    began_us: int
    target: str
    """For people."""
    statuses: dict[str, str | None] = {}
    """By tenant/queue: the status that was set for the queue itself."""
    done: bool = False
    version: int = 0
    """Of the document: two moves at once must not write over each other."""


class TargetProgress(msgspec.Struct, kw_only=True):
    """In the target, under the token of the move."""

    token: str
    began_us: int
    origin: str
    before: dict[str, str | None] = {}
    """Statuses of queues that were here before, by tenant/queue; their settings are not replaced."""
    had: dict[str, int] = {}
    """How many messages these queues had."""
    journal: Position = {}
    """Where the journal of the source ended."""
    fresh: bool = False
    """The journal was empty: it goes on where the other ended, and so do its readers."""
    arrived: bool = False
    """Everything is here; only the opening is left."""
    done: bool = False
    version: int = 0


_to_away = from_json(SourceProgress).decode
_to_coming = from_json(TargetProgress).decode


def away(engine: Engine) -> SourceProgress | None:
    return _read(engine, _AWAY, _to_away)


def coming(engine: Engine, token: str) -> TargetProgress | None:
    return _read(engine, token, _to_coming)


def begun(engine: Engine) -> TargetProgress | None:
    """A move that was coming here and has not arrived, if there is one."""
    for document in engine.documents(KIND, _HOUSE):
        if document.name != _AWAY:
            note = _to_coming(document.value)
            if not note.arrived:
                return note
    return None


def _read(engine: Engine, name: str, read: Callable[[bytes], N]) -> N | None:
    found = engine.document(KIND, _HOUSE, name)
    if found is None:
        return None
    note = read(found.value)
    note.version = found.version
    return note


def save(engine: Engine, note: SourceProgress | TargetProgress) -> None:
    name = _AWAY if isinstance(note, SourceProgress) else note.token
    try:
        note.version = do(engine, PutDocument(KIND, _HOUSE, name, msgspec.json.encode(note), note.version))
    except VersionConflict:
        raise VersionConflict(
            "another copy of this house is at work", hint="wait until it has ended, then copy again: it goes on"
        ) from None


def forget_source_progress(engine: Engine) -> None:
    do(engine, DeleteDocument(KIND, _HOUSE, _AWAY))


def new_token() -> str:
    return secrets.token_hex(8)
