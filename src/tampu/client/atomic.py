"""Atomic units over HTTP: one request under a random name, so that it can be repeated safely."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tampu.broker.atomic import Atomic, Document, checked_document
from tampu.broker.core import Steps
from tampu.client.request import Request, call, quoted, reader
from tampu.client.verbs import RemoteVerbs, may_exist, outcome, settlement_body
from tampu.model.errors import NotFound
from tampu.model.message import Message, NewMessage
from tampu.model.outcome import Settlement
from tampu.wire import atomic

_read_replies = reader(atomic.AtomicReplies)
_READ_DOCUMENT = reader(atomic.DocumentView, lambda view: Document(view.kind, view.name, view.version, view.value))
Read = Callable[[atomic.AtomicReply, str], Any]
"""(reply, name of the unit) → the library's return value."""
Member = tuple[dict[str, Any], Read]
"""An operation, and the function that reads its reply."""


def _outcomes(reply: atomic.AtomicReply, _name: str) -> Any:
    return [outcome(view) for view in reply.outcomes or ()]


class RemoteAtomic(RemoteVerbs, Atomic):
    def publish_member(self, queue: str, news: Sequence[NewMessage | Any]) -> Member:
        sent, given = self.outgoing(queue, news)

        def read(reply: atomic.AtomicReply, name: str) -> list[Message]:
            return [
                self._message(queue, published, item, new, None if may_exist(item) else name)
                for published, item, new in zip(reply.messages or (), sent, given, strict=True)
            ]

        return {"op": "publish", "queue": queue, "messages": given}, read

    def settle_member(self, settlement: Settlement) -> Member:
        return {"op": "settle", **settlement_body(self._ending(settlement))}, _outcomes

    def ids_member(self, verb: str, ids: Sequence[str]) -> Member:
        return {"op": verb, "ids": list(ids)}, _outcomes

    def document_member(self, kind: str, name: str, value: bytes | None, version: int | None) -> Member:
        if value is None:
            return {"op": "delete_document", "kind": kind, "name": name}, lambda reply, _name: reply.deleted
        put = {"op": "put_document", "kind": kind, "name": name, "value": msgspec.json.decode(value)}
        return put | ({} if version is None else {"version": version}), lambda reply, _name: reply.version

    def together(self, members: Sequence[Member], name: str | None = None) -> Steps[list[Any]]:
        unit_name = name or secrets.token_urlsafe(16)

        def read(raw: bytes) -> list[Any]:
            replies = _read_replies(raw).replies
            return [read_reply(reply, unit_name) for (_, read_reply), reply in zip(members, replies, strict=True)]

        body = {"operations": [operation for operation, _ in members], "name": unit_name}
        step: Any = Request("POST", "/v1/atomic", read, body)
        return (yield step)  # type: ignore[no-any-return]  # by `read`

    def get_document(self, kind: str, name: str) -> Steps[Document | None]:
        checked_document(kind, name)
        try:
            return (yield from call("GET", f"/v1/documents/{quoted(kind)}/{quoted(name)}", _READ_DOCUMENT))
        except NotFound:
            return None
