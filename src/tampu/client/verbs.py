"""The verbs of messages over HTTP: checked here as everywhere, then one request each."""

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
from tampu.broker.verbs import Verbs
from tampu.client import ids
from tampu.client.request import Ask, asked, nap, reader, told
from tampu.engines import port
from tampu.model.errors import TampuError, Unavailable
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Body, Lease, Message, NewMessage, to_new
from tampu.model.outcome import Outcome, Settlement
from tampu.model.times import SECOND, Duration, duration, instant
from tampu.wire import bodies
from tampu.wire.messages import MessageView, to_lease, to_message
from tampu.wire.problems import of_item

_POLL_SECONDS = 50.0
_SOON = 0.05


def _plain(body: Body) -> NewMessage:
    return NewMessage(body.payload, type=body.type, content_type=body.content_type)


def is_found(item: port.Item) -> bool:
    """May it be there already, by what its publisher says of it?"""
    return bool(item.id or item.body.key or item.body.idempotency_key)


def _micros(value: datetime | None, field: str) -> int | None:
    return None if value is None else instant(value, field)


def outcome(told: bodies.OutcomeView) -> Outcome:
    return Outcome(told.id, told.state, of_item(told.error))


def _extended(told: bodies.ExtendedView) -> port.Extended | TampuError:
    if told.until is None:
        error: TampuError = of_item(told.error)
        return error
    return port.Extended(instant(told.until, "until"), told.cancel_requested)


READ_OUTCOMES = reader(bodies.Outcomes, lambda found: [outcome(one) for one in found.outcomes])
_READ_LEASES = reader(bodies.Claimed, lambda found: [to_lease(one) for one in found.leases])
_READ_EXTENDED = reader(bodies.Extended, lambda found: [_extended(one) for one in found.leases])
_READ_MESSAGE = reader(MessageView, to_message)
_READ_JOURNAL = reader(JournalPage)
_READ_RESULT = reader(bodies.ResultView)
_read_published = reader(bodies.PublishedMany)


def claiming(queues: Sequence[str], limit: int, lease_us: int | None, wait: float, worker: str | None) -> Ask:
    seconds = None if lease_us is None else lease_us / SECOND
    return Ask("POST", "/v1/claim", _READ_LEASES, bodies.Claim(list(queues), limit, seconds, wait, worker), wait=wait)


def settling(endings: Sequence[port.SettleItem]) -> Ask:
    return Ask("POST", "/v1/settle", READ_OUTCOMES, {"settlements": [said(ending) for ending in endings]})


def said(ending: port.SettleItem) -> dict[str, Any]:
    """How the end of a lease is written in a request."""
    told: dict[str, Any] = {"verb": ending.verb, "receipt": ending.receipt}
    if ending.result is not None:
        told["result"] = msgspec.Raw(ending.result)
    for name in ("error", "traceback", "reason", "max_attempts"):
        if getattr(ending, name) is not None:
            told[name] = getattr(ending, name)
    if ending.delay_us is not None:
        told["delay"] = ending.delay_us / SECOND
    return told


def extending(leases: Sequence[tuple[str, int | None]]) -> Ask:
    """By receipt, each for so many microseconds from now."""
    items = [bodies.ExtendItem(receipt, None if by_us is None else by_us / SECOND) for receipt, by_us in leases]
    return Ask("POST", "/v1/extend", _READ_EXTENDED, bodies.Extend(items))


class RemoteVerbs(Verbs):
    # -- publish

    def outgoing(self, queue: str, news: Sequence[NewMessage | Any]) -> tuple[list[port.Item], list[NewMessage]]:
        """Messages, checked, and as they are written in a request."""
        settings = self._settings(queue)
        if not any(type(new) is NewMessage for new in news):
            plain = validate.payload_items(settings, news)
            return plain, [_plain(item.body) for item in plain]
        sent, given = [], []
        for new in news:
            whole = to_new(new)
            item = validate.item(queue, settings, whole)
            body = item.body
            sent.append(item)
            given.append(
                msgspec.structs.replace(
                    whole, payload=body.payload, content_type=body.content_type, id=item.id, type=body.type
                )
            )
        return sent, given

    def publishing(
        self,
        queue: str,
        news: Sequence[NewMessage | Any],
        once: str | None = None,
        *,
        one_request: bool = False,  # noqa: ARG002 - the server's business
        remember_us: int = 0,  # noqa: ARG002 - the server's business
    ) -> Ask:
        sent, given = self.outgoing(queue, news)
        # What makes it safe to ask again: a name for the batch; an id for a message, which costs no more and is kept
        # no longer than the message; an id for each where some may be there already.
        if once is None and len(sent) > 1 and not any(is_found(item) for item in sent):
            once = secrets.token_urlsafe(16)
        if once is None:
            minted = ids.mint(len(sent))
            given = [
                new if new.id else msgspec.structs.replace(new, id=id) for new, id in zip(given, minted, strict=True)
            ]
        # A key replaces what waits now: later, that may be another message.
        repeat = not any(item.body.key and not item.body.idempotency_key for item in sent)

        def read(raw: bytes) -> list[Message]:
            told: list[bodies.Published] = _read_published(raw).messages
            return [self._message(queue, *one, once) for one in zip(told, sent, given, strict=True)]

        return Ask("POST", f"/v1/queues/{queue}/publish", read, bodies.Publish(given, once), repeat=repeat)

    def _within(self, step: Any, context: dict[str, str]) -> Any:
        step.trace = context
        return step

    def _message(
        self, queue: str, told: bodies.Published, item: port.Item, asked: NewMessage, once: str | None
    ) -> Message:
        if told.message is not None:
            found = to_message(told.message)
            # Found under the name or the id that this very publish gave it: an earlier try had stored it.
            ours = once is not None or (item.id is None and found.id == asked.id)
            return msgspec.structs.replace(found, duplicate=False) if ours else found
        return Message(
            told.id,
            self.tenant,
            queue,
            told.state,
            item.body,
            0,
            told.max_attempts,
            instant(told.created_at, "created_at"),
            _micros(told.run_at, "run_at"),
            _micros(told.expires_at, "expires_at"),
            reason=told.reason,
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
        waited = not self.core.closed
        asked_ns = tracing.now_ns()
        while True:
            began = time.monotonic()
            left = min(_POLL_SECONDS, max(0.0, until - began))
            try:
                leases: list[Lease] = yield from told(claiming(names, limit, lease_us, left, worker))
            except Unavailable:
                if self.core.closed and waited and left:  # closed meanwhile
                    return []
                raise
            if leases and tracing.on():
                tracing.claimed(self.tenant, names, leases, asked_ns, worker)
            if leases or time.monotonic() >= until or self.core.closed:
                return leases
            if time.monotonic() - began < left - _SOON:  # the server ended it early, as when it stops
                yield from nap(_SOON)

    def checked(self, settlement: Settlement) -> port.SettleItem:
        """A settlement as it goes to the server; raises what is wrong with it."""
        return self._ending(settlement)

    def _settling(self, settlements: Sequence[Settlement]) -> Ask:
        return settling([self._ending(settlement) for settlement in settlements])

    def extend_many(
        self, leases: Iterable[tuple[Lease | str, Duration | None]]
    ) -> Steps[list[port.Extended | TampuError]]:
        items = [
            (self._receipt(lease)[1], None if by is None else duration(by, "by", zero=False)) for lease, by in leases
        ]
        replies: list[port.Extended | TampuError] = yield from told(extending(items))
        return replies

    # -- one message

    def get(self, id: str) -> Steps[Message]:
        return (yield from asked("GET", f"/v1/messages/{validate.id_text(id)}", _READ_MESSAGE))

    def result(self, id: str, *, wait: Duration = 0) -> Steps[Message]:
        until = time.monotonic() + duration(wait, "wait") / SECOND
        while True:
            left = min(_POLL_SECONDS, max(0.0, until - time.monotonic()))
            told = yield from asked(
                "GET", f"/v1/messages/{validate.id_text(id)}/result", _READ_RESULT, query=[("wait", left)], wait=left
            )
            if told.ended or time.monotonic() >= until or self.core.closed:
                return (yield from self.get(id))
            yield from nap(_SOON)  # the server may have ended it early, as when it stops

    def cancel(self, *ids: str) -> Steps[list[Outcome]]:
        return (yield from self._by_ids("cancel", ids))

    def free(self, *ids: str) -> Steps[list[Outcome]]:
        return (yield from self._by_ids("free", ids))

    @staticmethod
    def _by_ids(verb: str, ids: Sequence[str]) -> Steps[list[Outcome]]:
        return asked("POST", f"/v1/messages/{verb}", READ_OUTCOMES, bodies.Ids([validate.id_text(id) for id in ids]))

    # -- the journal

    def journal(self, *, after: Position | int | None = None, limit: int = 1000) -> Steps[JournalPage]:
        validate.whole(limit, "limit", 1, 100_000)
        position = validate.position(after) or {}
        query = [("limit", limit), *(("after", f"{name}={offset}") for name, offset in position.items())]
        return (yield from asked("GET", "/v1/journal", _READ_JOURNAL, query=query))
