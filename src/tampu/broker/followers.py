"""Followers: policy that acts on what has happened, behind the journal.

A handler is a small class in `FOLLOWERS`. The maintenance of one process, the leader, hands each handler the
transitions of all tenants, page by page, in the order of the journal (see `tampu.maintenance.follower`). The handler
says what is to be done; that and the position behind the page are stored as one unit. So a crash repeats nothing: what
was not stored with its position did not happen, and the page is handed over again.

The position is a document of `journal_readers`: retention removes nothing that a handler has not seen. A new handler
begins at the end of the journal. With no handler registered nothing is read or written.

A handler runs in a maintenance thread that all handlers share: it may read, and must not wait for anything.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from tampu.broker import publish, settings, validate
from tampu.broker.core import Core, PublishSet
from tampu.broker.journal_readers import FOLLOWER, Intent
from tampu.engines.port import Cancel, DeleteDocument, Document, Free, Publish, PutDocument
from tampu.model.definitions import Definition
from tampu.model.errors import InvalidMessage, InvalidState, NotFound, PayloadTooLarge, QueueClosed
from tampu.model.journal import Transition
from tampu.model.message import Message, NewMessage

_MOST_COUNTED = 10_000
"""Queues whose attempts are counted."""
_MOST_IDS = 500
"""Messages that one call cancels or frees."""


class Handler(Protocol):
    name: str
    """Its position is stored under this name: it must not change."""

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        """Say in ``effects`` what follows from these transitions.

        The same transitions may come again, in pages cut differently, when the effects could not be stored. If it
        raises, it is tried again later; after some attempts it is parked until somebody resumes it
        (`store.followers.resume`).
        """
        ...


@runtime_checkable
class Acts(Protocol):
    """A handler with acts of its own, see `Effects.act`."""

    def act(self, core: Core, tenant: str, ids: Sequence[str]) -> None:
        """Do what was decided about these messages. It may be called again: look at what they are now."""
        ...


FOLLOWERS: list[Handler] = []
"""Every process that runs maintenance on a store needs the same list: the leader may be any of them."""


@contextmanager
def registered(handler: Handler) -> Iterator[None]:
    """The handler follows the journal of every store that this process leads, while the block lasts."""
    FOLLOWERS.append(handler)
    try:
        yield
    finally:
        FOLLOWERS.remove(handler)


class Effects:
    """What a handler wants done. All of it takes effect with the new position, or nothing does.

    Cancels, frees and acts are stored with the position and carried out right after it, by the next leader if this
    one dies.
    """

    def __init__(self, handler: str, core: Core) -> None:
        self._handler = handler
        self._core = core
        self._messages: dict[tuple[str, str], list[NewMessage]] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._documents: dict[tuple[str, str, str], PutDocument | DeleteDocument] = {}
        self._intents: dict[tuple[Literal["cancel", "free", "act"], str], dict[str, None]] = {}
        self.soon = False
        """What comes next is waited for: the follower looks again after a few milliseconds."""

    def publish(self, cause: Transition, queue: str, payload: Any, **options: Any) -> str:
        """Publish to a queue of the tenant of ``cause``, with the options of `Store.publish`; the id of the message.
        The queue may be one of tampu's own.

        The id is derived from the transition, the handler, and how many messages it has published for the transition.
        """
        if "id" in options or "idempotency_key" in options:
            raise TypeError("a handler cannot set id or idempotency_key: the id is derived from the transition")
        place = (cause.partition, cause.offset)
        n = self._counts[place] = self._counts.get(place, 0) + 1
        id = derived_id(cause, self._handler, n)
        message = NewMessage(payload, **{"causation_id": cause.id, **options, "id": id})
        self._messages.setdefault((cause.tenant, queue), []).append(message)
        return id

    def refusal(self, cause: Transition, queue: str, payload: Any, **options: Any) -> str | None:
        """Why the queue would not take such a message for what it is; None if it would.

        A queue that is full or closed takes it later: then the follower waits.
        """
        try:
            publish.PublishVerbs(self._core, cause.tenant).publishing(queue, [NewMessage(payload, **options)])
        except QueueClosed:
            pass
        except (InvalidMessage, PayloadTooLarge) as error:
            return str(error)
        return None

    def put_document(self, kind: str, tenant: str, name: str, value: Any, version: int | None = None) -> None:
        """Write a JSON document; with ``version`` only if that is still its version (0: it must be new)."""
        self._documents[kind, tenant, name] = PutDocument(kind, tenant, name, msgspec.json.encode(value), version)

    def delete_document(self, kind: str, tenant: str, name: str) -> None:
        self._documents[kind, tenant, name] = DeleteDocument(kind, tenant, name)

    def cancel(self, cause: Transition, *ids: str) -> None:
        """Cancel messages of the tenant of ``cause``, as `Store.cancel` does. One that has ended stays so."""
        self._intend("cancel", cause.tenant, ids)

    def free(self, cause: Transition, *ids: str) -> None:
        """Free messages of the tenant of ``cause``, as `Store.free` does. One that is not held stays as it is."""
        self._intend("free", cause.tenant, ids)

    def act(self, cause: Transition, *ids: str) -> None:
        """Have the handler's own ``act(core, tenant, ids)`` called, which may be called again after a crash."""
        self._intend("act", cause.tenant, ids)

    def look_again_soon(self) -> None:
        """Somebody waits for what follows from the next transitions."""
        self.soon = True

    def _intend(self, verb: Literal["cancel", "free", "act"], tenant: str, ids: Sequence[str]) -> None:
        self._intents.setdefault((verb, tenant), {}).update((validate.id_text(id), None) for id in ids)

    # -- what a handler may want to know

    def message(self, cause: Transition) -> Message | None:
        """The message of a transition as it is now; None if it was removed."""
        return self._core.engine.get(cause.tenant, cause.id)

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        """A document as it is stored, without what is in these effects."""
        return self._core.engine.document(kind, tenant, name)

    def documents(self, kind: str, tenant: str, prefix: str, limit: int | None = None) -> list[Document]:
        """The documents whose names begin with ``prefix``, as they are stored, by name."""
        return self._core.engine.documents(kind, tenant, prefix, limit=limit)

    def definitions(self, tenant: str) -> list[Definition]:
        """The schemas, rules and subscriptions of a tenant."""
        return settings.definitions(self._core.engine, tenant)

    def count_attempt(self, tenant: str, queue: str, *, failed: bool) -> None:
        """Count an attempt in memory, for alerts."""
        attempts = self._core.attempts
        if (tenant, queue) in attempts or len(attempts) < _MOST_COUNTED:
            good, bad = attempts.get((tenant, queue), (0, 0))
            attempts[tenant, queue] = (good, bad + 1) if failed else (good + 1, bad)

    def settings(self, cause: Transition) -> settings.Settings:
        """The settings of the queue of a transition, read now: the cached ones may be from before it."""
        return settings.read(self._core.engine.document, cause.tenant, cause.queue)

    # -- for who stores them

    def calls(self) -> list[Publish | PutDocument | DeleteDocument]:
        """The calls of the unit. Raises if a message is not valid."""
        calls: list[Publish | PutDocument | DeleteDocument] = [*self._documents.values()]
        for (tenant, queue), news in self._messages.items():
            step = publish.PublishVerbs(self._core, tenant).policy_publishing(queue, news)
            made = step.calls if isinstance(step, PublishSet) else [step]
            calls += [msgspec.structs.replace(call, simple=False) for call in made]
        return calls

    def intents(self) -> list[Intent]:
        """What is done right after the unit; it is stored with the position, so that a crash does not lose it."""
        return [
            Intent(verb, tenant, list(names)[start : start + _MOST_IDS])
            for (verb, tenant), names in self._intents.items()
            for start in range(0, len(names), _MOST_IDS)
        ]


def do_named(core: Core, call: Cancel | Free) -> None:
    """Cancel or free messages that are there and wait. Raises if one server of several did not answer."""
    for outcome in core.do(call):
        if outcome.error is not None and not isinstance(outcome.error, InvalidState | NotFound):
            raise outcome.error


def derived_id(cause: Transition, handler: str, n: int) -> str:
    """The id of the nth message that a handler publishes because of a transition: always the same."""
    text = f"{handler}\0{n}\0{cause.partition}\0{cause.offset}\0{cause.at_us}\0{cause.verb}\0{cause.id}"
    raw = bytearray(hashlib.blake2b(text.encode(), digest_size=16).digest())
    raw[6], raw[8] = raw[6] & 0x0F | 0x80, raw[8] & 0x3F | 0x80  # UUIDv8
    return str(uuid.UUID(bytes=bytes(raw)))


def reader_name(handler: str) -> str:
    """The name of a handler among the readers of the journal."""
    return FOLLOWER + handler
