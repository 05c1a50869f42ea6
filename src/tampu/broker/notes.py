"""Notes: what a worker keeps about a message while it works on it (a cursor, its progress), across attempts.

A note is a document, written only by who has the lease. It is removed when the message has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.core import Core, Read, Steps
from tampu.engines import port
from tampu.model.errors import InvalidMessage, PayloadTooLarge, TampuError, VersionConflict
from tampu.model.message import Message
from tampu.model.states import TERMINAL
from tampu.model.times import Duration, duration

KIND = "note"
_MOST_BYTES = 64 * 1024


def packed(value: Any) -> bytes:
    try:
        raw = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidMessage(f"a note must be JSON: {error}", field="note") from None
    if len(raw) > _MOST_BYTES:
        raise PayloadTooLarge(f"a note has at most {_MOST_BYTES} bytes, not {len(raw)}", field="note")
    return raw


class Notes:
    def __init__(self, core: Core, tenant: str) -> None:
        self.core = core
        self.tenant = tenant

    def read_note(self, id: str) -> Steps[Any]:
        """What was noted about a message; None for nothing."""
        name = validate.id_text(id)
        found: port.Document | None = yield Read(lambda engine: engine.document(KIND, self.tenant, name))
        return None if found is None else msgspec.json.decode(found.value)

    def write_note(self, id: str, receipt: str, note: Any, by: Duration) -> Steps[None]:
        """Replace the note, and let the lease run on for ``by``. Raises `LeaseLost`; then nothing changed.

        The lease is asked for between reading the version and writing. Whoever has lost it can not have both.
        """
        raw, by_us = packed(note), duration(by, "by", zero=False)
        name, queue = validate.id_text(id), validate.name(receipt.rpartition("/")[0], "receipt")
        while True:
            found: port.Document | None = yield Read(lambda engine: engine.document(KIND, self.tenant, name))
            (reply,) = yield port.Extend(self.tenant, [(queue, receipt, by_us)])
            if isinstance(reply, TampuError):
                raise reply
            try:
                yield port.PutDocument(KIND, self.tenant, name, raw, 0 if found is None else found.version)
            except VersionConflict:
                continue
            return

    def sweep_notes(self) -> Steps[int]:
        """Remove notes that a crash left behind after their messages had ended; how many."""
        notes: list[port.Document] = yield Read(lambda engine: engine.documents(KIND, self.tenant))
        over = []
        for note in notes:
            found: Message | None = yield Read(lambda engine, id=note.name: engine.get(self.tenant, id))  # type: ignore[misc]  # bound now
            if found is None or found.state in TERMINAL:
                over.append(note.name)
        yield from self.drop_notes(over)
        return len(over)

    def drop_notes(self, ids: Sequence[str]) -> Steps[None]:
        """Their messages have ended."""
        for id in ids:
            yield port.DeleteDocument(KIND, self.tenant, id)
