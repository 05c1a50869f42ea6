"""Workers' notes over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.notes import Notes, packed
from tampu.client.request import call, reader
from tampu.model.errors import NotFound
from tampu.model.times import Duration
from tampu.wire import bodies
from tampu.wire.problems import of_item

_READ_NOTE = reader(bodies.NoteView, lambda view: view.note)
_READ_NOTED = reader(bodies.Noted)
_READ_COUNT = reader(bodies.Count)


def _path(id: str) -> str:
    return f"/v1/messages/{validate.id_text(id)}/note"


class RemoteNotes(Notes):
    def read_note(self, id: str) -> Steps[Any]:
        return (yield from call("GET", _path(id), _READ_NOTE))

    def write_note(self, id: str, receipt: str, note: Any, by: Duration) -> Steps[None]:
        packed(note)  # raises the same errors as a local store
        reply = yield from call("PUT", _path(id), _READ_NOTED, bodies.Note(receipt, note, by))
        if reply.error is not None:
            raise of_item(reply.error)

    def sweep_notes(self) -> Steps[int]:
        """Does nothing: workers with direct access to the store remove old notes."""
        return 0
        yield

    def drop_notes(self, ids: Sequence[str]) -> Steps[None]:
        for id in ids:
            try:
                yield from call("DELETE", _path(id), _READ_COUNT)
            except NotFound:
                continue  # the message is gone, and its note with it
