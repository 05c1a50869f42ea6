"""Units over HTTP: one request, under a name of its own, so that it can be sent again without harm."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tampu.broker.atomic import Atomic, checked_document
from tampu.broker.core import Steps
from tampu.client.request import Ask, asked, quoted, reader
from tampu.client.verbs import RemoteVerbs, is_found, outcome, said
from tampu.model.document import Document
from tampu.model.errors import NotFound
from tampu.model.message import Message, NewMessage
from tampu.model.outcome import Settlement
from tampu.wire import atomic

_read_replies = reader(atomic.AtomicReplies)
_READ_DOCUMENT = reader(atomic.DocumentView, lambda told: Document(told.kind, told.name, told.version, told.value))
Read = Callable[[atomic.AtomicReply, str], Any]
"""What the library answers with, by a reply to the unit of a name."""
Member = tuple[dict[str, Any], Read]
"""An operation, and how its reply is read."""


def _outcomes(told: atomic.AtomicReply, _name: str) -> Any:
    return [outcome(one) for one in told.outcomes or ()]


class RemoteAtomic(RemoteVerbs, Atomic):
    def publish_member(self, queue: str, news: Sequence[NewMessage | Any]) -> Member:
        sent, given = self.outgoing(queue, news)

        def read(told: atomic.AtomicReply, name: str) -> list[Message]:
            return [
                self._message(queue, one, item, new, None if is_found(item) else name)
                for one, item, new in zip(told.messages or (), sent, given, strict=True)
            ]

        return {"op": "publish", "queue": queue, "messages": given}, read

    def settle_member(self, settlement: Settlement) -> Member:
        return {"op": "settle", **said(self._ending(settlement))}, _outcomes

    def ids_member(self, verb: str, ids: Sequence[str]) -> Member:
        return {"op": verb, "ids": list(ids)}, _outcomes

    def document_member(self, kind: str, name: str, value: bytes | None, version: int | None) -> Member:
        if value is None:
            return {"op": "delete_document", "kind": kind, "name": name}, lambda told, _name: told.deleted
        put = {"op": "put_document", "kind": kind, "name": name, "value": msgspec.json.decode(value)}
        return put | ({} if version is None else {"version": version}), lambda told, _name: told.version

    def together(self, members: Sequence[Member], name: str | None = None) -> Steps[list[Any]]:
        drawn = name or secrets.token_urlsafe(16)

        def read(raw: bytes) -> list[Any]:
            told = _read_replies(raw).replies
            return [read_one(one, drawn) for (_, read_one), one in zip(members, told, strict=True)]

        body = {"operations": [operation for operation, _ in members], "name": drawn}
        step: Any = Ask("POST", "/v1/atomic", read, body)
        return (yield step)  # type: ignore[no-any-return]  # by `read`

    def get_document(self, kind: str, name: str) -> Steps[Document | None]:
        checked_document(kind, name)
        try:
            return (yield from asked("GET", f"/v1/documents/{quoted(kind)}/{quoted(name)}", _READ_DOCUMENT))
        except NotFound:
            return None
