"""Verbs on messages, and workers' notes, over HTTP: arguments are checked as in a local store, then it is sent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tampu import tracing
from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.notes import Notes, packed
from tampu.broker.verbs import Verbs
from tampu.client.request import Request, call, nap, new_ids, reader, send
from tampu.engines import port
from tampu.model.errors import NotFound, TampuError, Unavailable
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Body, Lease, Message, NewMessage, to_new
from tampu.model.outcome import Outcome, Settlement
from tampu.model.times import SECOND, Duration, duration, instant, numeric
from tampu.wire import bodies
from tampu.wire.messages import MessageView, to_lease, to_message
from tampu.wire.problems import of_item

_POLL_SECONDS = 50.0
_SOON = 0.05


def _simple(body: Body) -> NewMessage:
    return NewMessage(body.payload, type=body.type, content_type=body.content_type)


def may_exist(item: port.Item) -> bool:
    """True if the store may have the message already: its publisher gave an id, a key or an idempotency key."""
    return bool(item.id or item.body.key or item.body.idempotency_key)


def _micros(value: datetime | None, field: str) -> int | None:
    return None if value is None else instant(value, field)


def outcome(view: bodies.OutcomeView) -> Outcome:
    return Outcome(view.id, view.state, of_item(view.error))


def _extended(view: bodies.ExtendedView) -> port.Extended | TampuError:
    if view.until is None:
        error: TampuError = of_item(view.error)
        return error
    return port.Extended(instant(view.until, "until"), view.cancel_requested)


READ_OUTCOMES = reader(bodies.Outcomes, lambda reply: [outcome(view) for view in reply.outcomes])
_READ_LEASES = reader(bodies.Claimed, lambda reply: [to_lease(view) for view in reply.leases])
_READ_EXTENDED = reader(bodies.Extended, lambda reply: [_extended(view) for view in reply.leases])
_READ_MESSAGE = reader(MessageView, to_message)
_READ_JOURNAL = reader(JournalPage)
_READ_RESULT = reader(bodies.ResultView)
_read_published = reader(bodies.PublishedMany)


def claim_request(queues: Sequence[str], limit: int, lease_us: int | None, wait: float, worker: str | None) -> Request:
    seconds = None if lease_us is None else lease_us / SECOND
    return Request(
        "POST", "/v1/claim", _READ_LEASES, bodies.Claim(list(queues), limit, seconds, wait, worker), wait=wait
    )


def settle_request(items: Sequence[port.SettleItem]) -> Request:
    return Request("POST", "/v1/settle", READ_OUTCOMES, {"settlements": [settlement_body(item) for item in items]})


def settlement_body(item: port.SettleItem) -> dict[str, Any]:
    """A settlement as it is written in a request; unset fields are left out."""
    body: dict[str, Any] = {"verb": item.verb, "receipt": item.receipt}
    if item.result is not None:
        body["result"] = msgspec.Raw(item.result)
    for name in ("error", "traceback", "reason", "max_attempts"):
        if getattr(item, name) is not None:
            body[name] = getattr(item, name)
    if item.delay_us is not None:
        body["delay"] = item.delay_us / SECOND
    return body


def extend_request(leases: Sequence[tuple[str, int | None]]) -> Request:
    """Extend leases, given as (receipt, microseconds from now)."""
    items = [bodies.ExtendItem(receipt, None if by_us is None else by_us / SECOND) for receipt, by_us in leases]
    return Request("POST", "/v1/extend", _READ_EXTENDED, bodies.Extend(items))


class RemoteVerbs(Verbs):
    # -- publish

    def outgoing(self, queue: str, news: Sequence[NewMessage | Any]) -> tuple[list[port.Item], list[NewMessage]]:
        """(checked items, the same messages as they are written in a request)"""
        settings = self._settings(queue)
        if not any(type(new) is NewMessage for new in news):
            plain, _ = validate.payload_items(settings, news)
            return plain, [_simple(item.body) for item in plain]
        sent, given = [], []
        for new in news:
            whole = to_new(new)
            item = validate.item(queue, settings, whole)
            body = item.body
            sent.append(item)
            fields = {"payload": body.payload, "content_type": body.content_type, "id": item.id, "type": body.type}
            times = {"delay": numeric(whole.delay, "delay"), "ttl": numeric(whole.ttl, "ttl")}
            given.append(msgspec.structs.replace(whole, **fields, **times))
        return sent, given

    def publishing(
        self,
        queue: str,
        news: Sequence[NewMessage | Any],
        once: str | None = None,
        *,
        one_request: bool = False,  # noqa: ARG002 - the server handles it
        remember_us: int = 0,  # noqa: ARG002 - the server handles it
    ) -> Request:
        sent, given = self.outgoing(queue, news)
        # A name for the batch makes a repeat safe. A single message gets an id instead, which costs nothing and is
        # stored no longer than the message. If some messages may exist already, each of the others gets an id.
        if once is None and len(sent) > 1 and not any(may_exist(item) for item in sent):
            once = secrets.token_urlsafe(16)
        if once is None:
            minted = new_ids(len(sent))
            given = [
                new if new.id else msgspec.structs.replace(new, id=id) for new, id in zip(given, minted, strict=True)
            ]
        # A key replaces the message that waits now. A repeat might replace a later one.
        repeat = not any(item.body.key and not item.body.idempotency_key for item in sent)

        def read(raw: bytes) -> list[Message]:
            replies: list[bodies.Published] = _read_published(raw).messages
            return [self._message(queue, *each, once) for each in zip(replies, sent, given, strict=True)]

        body = {"messages": given} if once is None else {"messages": given, "once": once}
        return Request("POST", f"/v1/queues/{queue}/publish", read, body, repeat=repeat)

    def _within(self, step: Any, context: dict[str, str]) -> Any:
        step.trace = context
        return step

    def _message(
        self, queue: str, reply: bodies.Published, item: port.Item, new: NewMessage, once: str | None
    ) -> Message:
        # A duplicate of a name or id that this call made was stored by an earlier try of the same call.
        ours = once is not None or (item.id is None and reply.id == new.id)
        if reply.message is not None:
            found = to_message(reply.message)
            return msgspec.structs.replace(found, duplicate=False) if ours else found
        return Message(
            reply.id,
            self.tenant,
            queue,
            reply.state,
            item.body,
            0,
            reply.max_attempts,
            instant(reply.created_at, "created_at"),
            _micros(reply.run_at, "run_at"),
            _micros(reply.expires_at, "expires_at"),
            reason=reply.reason,
            duplicate=reply.duplicate and not ours,
        )

    # -- claim, settle, extend

    def claim(
        self,
        queues: str | Sequence[str],
        *,
        limit: int = 1,
        lease: Duration | None = None,
        wait: Duration = 0,
        worker: str | None = None,
    ) -> Steps[list[Lease]]:
        names, lease_us = validate.claim(queues, limit, lease, worker)
        until = time.monotonic() + duration(wait, "wait") / SECOND
        was_open = not self.core.closed
        started_ns = tracing.now_ns()
        while True:
            began = time.monotonic()
            left = min(_POLL_SECONDS, max(0.0, until - began))
            try:
                leases: list[Lease] = yield from send(claim_request(names, limit, lease_us, left, worker))
            except Unavailable:
                if self.core.closed and was_open and left:  # closed during the wait
                    return []
                raise
            if leases and tracing.on():
                tracing.claimed(self.tenant, names, leases, started_ns, worker)
            if leases or time.monotonic() >= until or self.core.closed:
                return leases
            if time.monotonic() - began < left - _SOON:  # the server ended the poll early, for example at shutdown
                yield from nap(_SOON)

    def checked(self, settlement: Settlement) -> port.SettleItem:
        """Validate a settlement and convert it for the request."""
        return self._ending(settlement)

    def _settling(self, settlements: Sequence[Settlement]) -> Request:
        return settle_request([self._ending(settlement) for settlement in settlements])

    def extend_many(
        self, leases: Iterable[tuple[Lease | str, Duration | None]]
    ) -> Steps[list[port.Extended | TampuError]]:
        items = [
            (self._receipt(lease)[1], None if by is None else duration(by, "by", zero=False)) for lease, by in leases
        ]
        replies: list[port.Extended | TampuError] = yield from send(extend_request(items))
        return replies

    # -- one message

    def get(self, id: str) -> Steps[Message]:
        return (yield from call("GET", f"/v1/messages/{validate.id_text(id)}", _READ_MESSAGE))

    def result(self, id: str, *, wait: Duration = 0) -> Steps[Message]:
        until = time.monotonic() + duration(wait, "wait") / SECOND
        while True:
            left = min(_POLL_SECONDS, max(0.0, until - time.monotonic()))
            reply = yield from call(
                "GET", f"/v1/messages/{validate.id_text(id)}/result", _READ_RESULT, query=[("wait", left)], wait=left
            )
            if reply.ended or time.monotonic() >= until or self.core.closed:
                return (yield from self.get(id))
            yield from nap(_SOON)  # the server may have ended the poll early, for example at shutdown

    def cancel(self, *ids: str) -> Steps[list[Outcome]]:
        return (yield from self._by_ids("cancel", ids))

    def free(self, *ids: str) -> Steps[list[Outcome]]:
        return (yield from self._by_ids("free", ids))

    @staticmethod
    def _by_ids(verb: str, ids: Sequence[str]) -> Steps[list[Outcome]]:
        return call("POST", f"/v1/messages/{verb}", READ_OUTCOMES, bodies.Ids([validate.id_text(id) for id in ids]))

    # -- the journal

    def journal(
        self, *, after: Position | int | None = None, limit: int = 1000, details: bool = False
    ) -> Steps[JournalPage]:
        validate.whole(limit, "limit", 1, 100_000)
        position = validate.position(after) or {}
        asked = [("details", "true")] if details else []
        query = [("limit", limit), *asked, *(("after", f"{name}={offset}") for name, offset in position.items())]
        return (yield from call("GET", "/v1/journal", _READ_JOURNAL, query=query))


_READ_NOTE = reader(bodies.NoteView, lambda view: view.note)
_READ_NOTED = reader(bodies.Noted)
_READ_COUNT = reader(bodies.Count)


def _note_path(id: str) -> str:
    return f"/v1/messages/{validate.id_text(id)}/note"


class RemoteNotes(Notes):
    def read_note(self, id: str) -> Steps[Any]:
        return (yield from call("GET", _note_path(id), _READ_NOTE))

    def write_note(self, id: str, receipt: str, note: Any, by: Duration) -> Steps[None]:
        packed(note)  # raises the same errors as a local store
        body = bodies.Note(receipt, note, duration(by, "by", zero=False) / SECOND)
        reply = yield from call("PUT", _note_path(id), _READ_NOTED, body)
        if reply.error is not None:
            raise of_item(reply.error)

    def sweep_notes(self) -> Steps[int]:
        """Does nothing: workers with direct access to the store remove old notes."""
        return 0
        yield

    def drop_notes(self, ids: Sequence[str]) -> Steps[None]:
        for id in ids:
            try:
                yield from call("DELETE", _note_path(id), _READ_COUNT)
            except NotFound:
                continue  # the message is gone, and its note with it
