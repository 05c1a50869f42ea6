"""Notes: what a worker stores about a message while it works on it, such as a cursor. They survive failed attempts.

A note is a document. Only the holder of the lease can write it. It is removed when the message has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.core import Core, Read, Steps
from tampu.engines import port
from tampu.model.errors import InvalidMessage, PayloadTooLarge
from tampu.model.message import Message, Progress
from tampu.model.states import TERMINAL
from tampu.model.times import Duration, duration

KIND = "note"
CURSOR, PROGRESS, TEXT = "cursor", "progress", "note"
"""Keys of the notes that workers write."""
_MOST_BYTES = 64 * 1024


def packed(value: Any) -> bytes:
    try:
        raw = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidMessage(f"a note must be JSON: {error}", field="note") from None
    if len(raw) > _MOST_BYTES:
        raise PayloadTooLarge(f"a note has at most {_MOST_BYTES} bytes, not {len(raw)}", field="note")
    return raw


def progress(note: port.Document) -> Progress | None:
    """What a task has reported, if the note has it."""
    value = msgspec.json.decode(note.value)
    done = value.get(PROGRESS) if isinstance(value, dict) else None
    if not isinstance(done, int | float):
        return None
    text = value.get(TEXT)
    return Progress(float(done), text if isinstance(text, str) else None)


class Notes:
    """Notes about the messages of one tenant."""

    def __init__(self, core: Core, tenant: str) -> None:
        self.core = core
        self.tenant = tenant

    def read_note(self, id: str) -> Steps[Any]:
        """The note about a message; None if there is none."""
        name = validate.id_text(id)
        found: port.Document | None = yield Read(lambda engine: engine.document(KIND, self.tenant, name))
        return None if found is None else msgspec.json.decode(found.value)

    def write_note(self, id: str, receipt: str, note: Any, by: Duration) -> Steps[None]:
        """Replace the note, and extend the lease to ``by`` from now. Raises `LeaseLost`; then nothing changed."""
        raw, by_us = packed(note), duration(by, "by", zero=False)
        name, queue = validate.id_text(id), validate.name(receipt.rpartition("/")[0], "receipt")
        extend = port.Extend(self.tenant, [(queue, receipt, by_us)], [name])
        yield port.Together(self.tenant, [extend, port.PutDocument(KIND, self.tenant, name, raw)])

    def sweep_notes(self) -> Steps[int]:
        """Remove notes that a crash left behind after their messages ended. Returns how many."""
        notes: list[port.Document] = yield Read(lambda engine: engine.documents(KIND, self.tenant))
        left_behind = []
        for note in notes:
            found: Message | None = yield Read(lambda engine, id=note.name: engine.get(self.tenant, id))  # type: ignore[misc]  # bound now
            if found is None or found.state in TERMINAL:
                left_behind.append(note.name)
        yield from self.drop_notes(left_behind)
        return len(left_behind)

    def drop_notes(self, ids: Sequence[str]) -> Steps[None]:
        """Remove the notes of messages that have ended."""
        for id in ids:
            yield port.DeleteDocument(KIND, self.tenant, id)
