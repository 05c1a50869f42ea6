"""Units: several calls that take effect together, or not at all (`Store.atomic`).

A `Unit` only collects calls, and checks each one at once. At the end of its block they are sent as one call,
`port.Together`. Documents of applications are here too, because only units write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tampu import tracing
from tampu.broker import causes, validate
from tampu.broker.core import PublishSet, Read, Steps
from tampu.broker.verbs import Verbs
from tampu.engines import port
from tampu.model.errors import InvalidMessage, InvalidState, PayloadTooLarge
from tampu.model.message import Lease, Message, NewMessage
from tampu.model.outcome import Ack, Nack, Outcome, Reject, Release, Settlement
from tampu.model.times import SECOND, Duration

T = TypeVar("T")
MOST_CALLS = 1000
MOST_DOCUMENT = 64 * 1024
_OWN = "app:"
"""Prefix of the kinds of an application's documents; other kinds are tampu's own."""
_NAME_US = 600 * SECOND
"""How long the name of a unit is remembered: longer than any client retries."""


_ACTS: dict[type, str] = {port.Cancel: "message.cancel", port.Free: "message.free"}
"""Calls on messages that leave a record, and its action."""


class Document(msgspec.Struct, frozen=True):
    """A small JSON value of an application: what `Store.get_document` returns. ``version`` grows with every change."""

    kind: str
    name: str
    version: int
    value: Any


class Atomic(Verbs):
    """Builds the calls of a unit, and carries it out."""

    def publish_member(self, queue: str, news: Sequence[NewMessage | Any]) -> Any:
        step = self.publishing(queue, news)
        return step.looked_up() if isinstance(step, PublishSet) else msgspec.structs.replace(step, simple=False)

    def settle_member(self, settlement: Settlement) -> Any:
        return msgspec.structs.replace(self._settling([settlement]), strict=True)

    def ids_member(self, verb: str, ids: Sequence[str]) -> Any:
        return (port.Cancel if verb == "cancel" else port.Free)(self.tenant, ids, actor=self.actor.name)

    def document_member(self, kind: str, name: str, value: bytes | None, version: int | None) -> Any:
        if value is None:
            return port.DeleteDocument(_OWN + kind, self.tenant, name)
        return port.PutDocument(_OWN + kind, self.tenant, name, value, version)

    def together(self, members: Sequence[Any], name: str | None = None) -> Steps[list[Any]]:
        """Carry out a unit; returns the replies of its members. A publish with publish steps may be several calls."""
        calls_of = [member.calls if isinstance(member, PublishSet) else [member] for member in members]
        calls = [call for own in calls_of for call in own]
        for call in calls:
            if isinstance(call, port.Cancel | port.Free):
                yield from self.record_ids(_ACTS[type(call)], call.ids)
        replies = iter((yield port.Together(self.tenant, calls, name, _NAME_US if name else 0)))
        replies_of = [[next(replies) for _ in own] for own in calls_of]
        return [
            member.messages(own) if isinstance(member, PublishSet) else own[0]
            for member, own in zip(members, replies_of, strict=True)
        ]

    def get_document(self, kind: str, name: str) -> Steps[Document | None]:
        """A document that a unit has written; None if there is none."""
        checked_document(kind, name)
        found: port.Document | None = yield Read(lambda engine: engine.document(_OWN + kind, self.tenant, name))
        return None if found is None else Document(kind, name, found.version, msgspec.json.decode(found.value))


def checked_document(kind: str, name: str) -> None:
    validate.name(kind, "kind")
    validate.name(name, "name")


class Reply(Generic[T]):
    """The reply to a call of a unit. Read ``value`` after the block."""

    def __init__(self) -> None:
        self._value: T | None = None
        self.ready = False

    @property
    def value(self) -> T:
        if not self.ready:
            raise InvalidState("the unit has not taken effect", hint="read the reply after the block of the unit")
        return self._value  # type: ignore[return-value]  # T, when it is ready

    def set(self, value: T) -> None:
        self._value, self.ready = value, True


class Unit:
    """Collects calls. Each is checked at once; all take effect together at the end of the block."""

    def __init__(self, verbs: Atomic) -> None:
        self._verbs = verbs
        self._members: list[tuple[Any, Reply[Any], Callable[[Any], Any]]] = []
        self._names: set[str] = set()
        self._messages = 0
        self._ended = False

    # -- messages

    def publish(self, queue: str, payload: Any, **options: Any) -> Reply[Message]:
        """Like `Store.publish`, with the same options."""
        news: list[Any] = [payload]
        if options:
            try:
                news = [NewMessage(payload, **options)]
            except TypeError as error:
                raise InvalidMessage(f"publish takes no such option: {error}") from None
        return self._add(self._publishing(queue, news), lambda reply: reply[0])

    def publish_many(self, queue: str, messages: Iterable[NewMessage | Any]) -> Reply[list[Message]]:
        """Like `Store.publish_many`."""
        if isinstance(messages, str | bytes | dict) or not isinstance(messages, Iterable):
            raise InvalidMessage("messages must be a list", field="messages", hint="use publish for one message")
        news = list(messages)
        if not news:
            raise InvalidMessage("messages is empty", field="messages", hint="omit the call")
        return self._add(self._publishing(queue, news))

    def _publishing(self, queue: str, news: list[Any]) -> Any:
        if self._messages + len(news) > validate.MOST_MESSAGES:
            raise InvalidMessage(
                f"a unit can have at most {validate.MOST_MESSAGES} messages", field="messages", hint="use several units"
            )
        if causes.running() is not None:
            news = causes.continued(news)
        if self._verbs.traced and tracing.on():
            with tracing.Publishing(self._verbs.tenant, validate.name(queue, "queue"), len(news)) as span:
                news = tracing.carrying(news, span.context)
        member = self._verbs.publish_member(queue, news)
        self._messages += len(news)
        return member

    def cancel(self, *ids: str) -> Reply[list[Outcome]]:
        """Like `Store.cancel`; a message that cannot be cancelled refuses the unit."""
        return self._ids("cancel", ids)

    def free(self, *ids: str) -> Reply[list[Outcome]]:
        """Like `Store.free`; a message that is not held refuses the unit."""
        return self._ids("free", ids)

    def _ids(self, verb: str, ids: Sequence[str]) -> Reply[list[Outcome]]:
        checked = [validate.id_text(id) for id in ids]
        if not checked:
            raise InvalidMessage("ids is empty", field="ids", hint="omit the call")
        if len(checked) > validate.MOST_MESSAGES:
            raise InvalidMessage(f"a call of a unit can have at most {validate.MOST_MESSAGES} ids", field="ids")
        for id in checked:
            self._name_once(id)
        return self._add(self._verbs.ids_member(verb, checked))

    # -- leases

    def ack(self, lease: Lease | str, result: Any = None) -> Reply[Outcome]:
        """Like `Store.ack`. A lease that is no longer yours refuses the unit, also if you acked it before."""
        return self.settle(Ack(lease, result))

    def nack(
        self,
        lease: Lease | str,
        error: str | BaseException | None = None,
        delay: Duration | None = None,
        traceback: str | None = None,
    ) -> Reply[Outcome]:
        """Like `Store.nack`."""
        return self.settle(Nack(lease, error, delay, traceback))  # type: ignore[arg-type]  # checked there

    def reject(
        self,
        lease: Lease | str,
        reason: str = "unrecoverable",
        error: str | BaseException | None = None,
        traceback: str | None = None,
    ) -> Reply[Outcome]:
        """Like `Store.reject`."""
        return self.settle(Reject(lease, reason, error, traceback))  # type: ignore[arg-type]  # checked there

    def release(self, lease: Lease | str, delay: Duration | None = None) -> Reply[Outcome]:
        """Like `Store.release`."""
        return self.settle(Release(lease, delay))

    def settle(self, settlement: Settlement) -> Reply[Outcome]:
        """End a lease with `Ack`, `Nack`, `Reject` or `Release`."""
        member = self._verbs.settle_member(settlement)
        lease = settlement.lease
        if isinstance(lease, Lease):
            self._name_once(lease.id)
        self._name_once(lease.receipt if isinstance(lease, Lease) else lease)
        return self._add(member, lambda reply: reply[0])

    # -- documents

    def put_document(self, kind: str, name: str, value: Any, *, version: int | None = None) -> Reply[int]:
        """Write a small JSON value; with ``version`` only if the document has that version (0: it must be new).

        Any other version refuses the unit with `VersionConflict`. The reply is the new version.
        """
        checked_document(kind, name)
        if version is not None:
            validate.whole(version, "version", 0, 1 << 53)
        try:
            raw = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidMessage(f"a document must be JSON: {error}", field="value") from None
        if len(raw) > MOST_DOCUMENT:
            raise PayloadTooLarge(f"a document has at most {MOST_DOCUMENT} bytes, not {len(raw)}", field="value")
        self._name_once(f"{kind} {name}")
        return self._add(self._verbs.document_member(kind, name, raw, version))

    def delete_document(self, kind: str, name: str) -> Reply[bool]:
        """Remove a document; the reply says whether it was there."""
        checked_document(kind, name)
        self._name_once(f"{kind} {name}")
        return self._add(self._verbs.document_member(kind, name, None, None))

    # -- the unit

    def _name_once(self, name: str) -> None:
        if name in self._names:
            raise InvalidMessage(f"{name:.150} is already in this unit", hint="use each message and document only once")
        self._names.add(name)

    def _add(self, member: Any, pick: Callable[[Any], Any] = lambda reply: reply) -> Reply[Any]:
        if self._ended:
            raise InvalidState("the block of this unit has ended", hint="begin another unit")
        if len(self._members) >= MOST_CALLS:
            raise InvalidMessage(f"a unit can have at most {MOST_CALLS} calls", hint="use several units")
        reply: Reply[Any] = Reply()
        self._members.append((member, reply, pick))
        return reply

    def end(self) -> None:
        """Refuse further calls."""
        self._ended = True

    def steps(self, name: str | None = None) -> Steps[None]:
        """Send the calls, and set their replies."""
        if self._members:
            replies = yield from self._verbs.together([member for member, _, _ in self._members], name)
            for (_, reply, pick), value in zip(self._members, replies, strict=True):
                reply.set(pick(value))
