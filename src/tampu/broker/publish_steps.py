"""Publish steps: policy between the validation of a batch and the call that stores it.

A step is a small class. The steps run in a fixed order, for every publish of every path: library,
HTTP, schedules, Spark, replay. A step sees messages that are already valid, and may

- refuse a message, and with it the whole batch (`Draft.refuse`),
- change fields of a message (`Draft.change`),
- route a message to another queue (assign `Draft.queue`),
- add copies in other queues (`Batch.copy`),
- store a message as dead (`Draft.end_dead`).

What a step changed is validated again, with the settings of the queue where the message goes. All messages and copies
of a batch are stored as one unit. A publish to a queue that no step wants costs one check of the list.

Most batches are plain: tampu's own steps work on them as a whole, see `tampu.broker.plain_batch`.

A step runs in the thread or task of the caller. It may read; it must not write, and must not publish.
"""

from __future__ import annotations

import functools
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec

from tampu.broker.settings import Settings
from tampu.engines.port import Ending, Item
from tampu.model.errors import InvalidMessage
from tampu.model.message import NewMessage, State, decode, to_new

if TYPE_CHECKING:
    from tampu.broker.plain_batch import PlainBatch

SettingsOf = Callable[[str], Settings]
"""Queue name → current settings, in one tenant."""
_IDENTITY = frozenset({"id", "idempotency_key"})
_NUMBER_BYTES = 5
PAIRS = frozenset({"headers", "labels"})
STORY = PAIRS | {"correlation_id"}
_OF_BODY = PAIRS | {"payload", "content_type", "type"}
"""Fields that change the body of a message and nothing else."""


class PublishStep(Protocol):
    def wants(self, queue: str, settings: Settings) -> bool:
        """True if the step has work to do for messages of this queue. Called on each publish: keep it cheap."""
        ...

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        """Inspect and change messages. ``drafts`` are those that now go to queues which the step wants."""
        ...


class PlainStep(PublishStep, Protocol):
    """A step that can work on a plain batch as a whole."""

    def apply_plain(self, batch: PlainBatch) -> bool:
        """Do what `apply` does, for all messages of a queue that the step wants. False if that needs drafts."""
        ...


STEPS: list[PlainStep] = []
"""Tampu's own (`tampu.broker.policies.steps`), in the order they run: first those that refuse or change, then those
that route, last those that add copies. They want what `Settings.policies` says: without policies none is asked."""
ADDED: list[PublishStep] = []
"""Those that programs have registered. They run after tampu's own."""


@contextmanager
def registered(step: PublishStep) -> Iterator[None]:
    """Register the step, as the last one, for the duration of the block."""
    ADDED.append(step)
    try:
        yield
    finally:
        ADDED.remove(step)


def wanted(queue: str, settings: Settings) -> bool:
    """True if a publish to this queue goes through any step."""
    return settings.policies or (bool(ADDED) and any(step.wants(queue, settings) for step in ADDED))


_UNKNOWN = object()


class Draft:
    """One message on its way through the steps. What no step asks for is not made."""

    __slots__ = ("_message", "_new", "_value", "changes", "ends", "origin", "position", "queue")

    def __init__(self, queue: str, new: Any, origin: Item, position: int | None, value: Any = _UNKNOWN) -> None:
        self.queue = queue
        """Where it goes. Assign another name to route it."""
        self._new = new
        self._message: NewMessage | None = None
        self._value = value
        self.changes: dict[str, Any] = {}
        """The fields that steps have changed."""
        self.origin = origin
        """The original message: as it was published, or the one that this is a copy of."""
        self.position = position
        """Index of the original message in the batch; None in a batch of one."""
        self.ends: Ending | None = None
        """Set if it is stored as ended."""

    @property
    def message(self) -> NewMessage:
        """Its fields, with the payload encoded, its type and its id if it has one."""
        if self._message is None:
            body, new = self.origin.body, to_new(self._new)
            known = {"payload": body.payload, "content_type": body.content_type, "type": body.type}
            self._message = msgspec.structs.replace(new, **(known | {"id": self.origin.id} | self.changes))
        return self._message

    @property
    def changed(self) -> bool:
        """True if it is not stored as it was published."""
        return bool(self.changes) or self.ends is not None

    def field(self, name: str) -> Any:
        """A field of its body: type, payload, content_type, priority, headers, labels, key, group, …"""
        return self.changes[name] if name in self.changes else getattr(self.origin.body, name)

    @property
    def payload(self) -> Any:
        """The payload, decoded by its content type. Raises `InvalidMessage` if that fails. Do not change it."""
        if self._value is _UNKNOWN:
            try:
                self._value = self._decoded()
            except (ValueError, msgspec.MsgspecError) as error:
                self.refuse(f"the payload cannot be decoded: {error}", field="payload")
        return self._value

    def _decoded(self) -> Any:
        if "payload" not in self.changes and "content_type" not in self.changes:
            return decode(self.origin.body.payload, self.origin.body.content_type)
        return decode(self.message.payload, self.message.content_type or "")

    def change(self, **fields: Any) -> None:
        """Change these fields of `NewMessage`. A new payload is encoded as `publish` encodes it."""
        if not _IDENTITY.isdisjoint(fields):
            raise TypeError("a step cannot change id or idempotency_key: callers use them to retry")
        if "payload" in fields:
            fields.setdefault("content_type", None)
        self._set(fields)

    def add_headers(self, headers: dict[str, str]) -> None:
        """Add these to the headers of the message."""
        old = self.field("headers")
        self.changes["headers"] = {**old, **headers} if old else headers.copy()
        self._message = None

    def _set(self, fields: dict[str, Any]) -> None:
        self.changes.update(fields)
        self._message = None
        if "payload" in fields or "content_type" in fields:
            self._value = _UNKNOWN

    @property
    def has_new_body_only(self) -> bool:
        """True if steps have changed nothing but its payload, type, headers and labels."""
        return self.changes.keys() <= _OF_BODY

    def identify(self) -> None:
        """Give it an id, if it has neither id nor idempotency key, from which those of its copies derive."""
        message = self.message
        if message.id is None and message.idempotency_key is None:
            self._set({"id": str(uuid.uuid4())})

    def begin_story(self) -> None:
        """Give it a correlation id, which the messages that share its body have too."""
        self._set({"correlation_id": str(uuid.uuid4())})

    def own_id(self) -> str:
        """Its id, also if it has an idempotency key. It gets one now if it has none."""
        id = self.message.id or str(uuid.uuid4())
        if id != self.message.id:
            self._set({"id": id})
        return id

    def copy(self, queue: str, fields: dict[str, Any]) -> Draft:
        """A copy of it with these fields changed."""
        made = Draft(queue, self.message, self.origin, self.position)
        made.changes = {"payload": self.message.payload, "content_type": self.message.content_type}
        made.changes |= {"type": self.message.type, "id": self.message.id} | self.changes | fields
        return made

    def end_done(self, reason: str) -> None:
        """Store the message as done: its copies are what is delivered."""
        self.ends = Ending(State.DONE, reason)

    def end_dead(self, reason: str, error: str) -> None:
        """Store the message as dead, for this reason: it is never delivered, unless somebody replays it."""
        self.ends = Ending(State.DEAD, reason, error)

    def end_cancelled(self, reason: str) -> None:
        """Store the message as cancelled: it is never delivered, and kept as others that have ended."""
        self.ends = Ending(State.CANCELLED, reason)

    def refuse(self, why: str, *, field: str, hint: str | None = None) -> NoReturn:
        """Refuse the batch because of this message. ``field`` may be a path such as ``payload.lines[2].price``."""
        path = field if self.position is None else f"messages[{self.position}].{field}"
        raise InvalidMessage(why, field=path, hint=hint)


class Batch:
    """The messages of one publish call."""

    def __init__(
        self,
        tenant: str,
        drafts: list[Draft],
        settings_of: SettingsOf,
        *,
        plain: bool = False,
        copies_by_id: bool = False,
        now: Callable[[], int] | None = None,
        complete: bool = True,
    ) -> None:
        self.tenant = tenant
        self.complete = complete
        """False: payloads of messages that are held for results do not have all fields yet."""
        self.plain = plain
        """No message has an id or a key, a group, a delay or another thing to look up or wait for."""
        self._copies_by_id = copies_by_id
        """Copies have an id instead of an idempotency key, which a cluster takes in one queue of a unit only."""
        self.drafts = drafts
        """One per published message, in order."""
        self.copies: list[Draft] = []
        self.spreads: list[tuple[str, Sequence[Draft]]] = []
        self.timers: list[Item] = []
        """Timers that are stored in the same unit, see `tampu.broker.timers`."""
        self.settings_of = functools.cache(settings_of)
        self.now = now or (lambda: time.time_ns() // 1000)
        """The time by the clock of the engine, if that is known here."""

    def run(self) -> None:
        """Apply the steps one after the other. Later steps see the messages that a step routes or adds."""
        for step in (*STEPS, *ADDED):
            drafts = (*self.drafts, *self.copies)
            queues = {draft.queue for draft in drafts}
            wanted = {queue for queue in queues if step.wants(queue, self.settings_of(queue))}
            if wanted == queues:
                step.apply(self, drafts)
            elif wanted:
                step.apply(self, [draft for draft in drafts if draft.queue in wanted])

    def copy(self, draft: Draft, queue: str, name: str, **fields: Any) -> Draft:
        """Store the message also in ``queue``, with these fields changed. The copy has no ``key`` unless given, and
        no review: what a person decides is about the message.

        ``name`` tells the copies of a message apart. The copy's id and idempotency key derive from it and from those
        of the message, so publishing the message again finds the copy too. It has the correlation id of the message,
        or its id: a trace shows both. If that is not known yet, because it has only an idempotency key, both get one.
        """
        if not _IDENTITY.isdisjoint(fields):
            raise TypeError("a step cannot set id or idempotency_key of a copy: they derive from those of its message")
        draft.identify()
        original = draft.message
        id = None if original.id is None else derived_id(original.id, name)
        key = None if original.idempotency_key is None else _derived_key(original, name)
        if key is not None and self._copies_by_id:
            id, key = derived_id(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.tenant}/{key}")), name), None
        if original.id is None and original.correlation_id is None:
            of_both = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.tenant}/{draft.queue}/{original.idempotency_key}")
            draft.change(correlation_id=str(of_both))
            original = draft.message
        cause, story = original.id or original.causation_id, original.correlation_id or original.id
        same: dict[str, Any] = {"id": id, "idempotency_key": key, "key": None}
        same |= {"causation_id": cause, "correlation_id": story}
        if original.review is not None:
            same |= {"review": None, "hold": None}
        made = draft.copy(queue, same)
        made.change(**fields)
        self.copies.append(made)
        return made

    def spread(self, queue: str, drafts: Sequence[Draft]) -> None:
        """Store these messages also in ``queue``, with its settings but otherwise as they are, under ids that the store
        makes: much faster than `copy`. Only for messages that nobody can publish again, see `plain`.
        """
        self.spreads.append((queue, drafts))


def derived_id(id: str, name: str) -> str:
    """The id of a copy. Ids with one prefix and growing numbers, as in `port.Load`, keep that form."""
    digits = id.replace("-", "")
    start = bytes.fromhex(digits[: -2 * _NUMBER_BYTES]) + name.encode()
    prefix = bytearray(hashlib.blake2b(start, digest_size=16 - _NUMBER_BYTES).digest())
    prefix[6], prefix[8] = prefix[6] & 0x0F | 0x80, prefix[8] & 0x3F | 0x80  # UUIDv8
    made = prefix.hex() + digits[-2 * _NUMBER_BYTES :]
    return f"{made[:8]}-{made[8:12]}-{made[12:16]}-{made[16:20]}-{made[20:]}"


def _derived_key(message: NewMessage, name: str) -> str:
    """Hashed, so that it is never too long for a key."""
    return "copy:" + hashlib.blake2b(f"{name}\0{message.idempotency_key}".encode(), digest_size=24).hexdigest()
