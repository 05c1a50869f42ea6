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

A step runs in the thread or task of the caller. It may read; it must not write, and must not publish.
"""

from __future__ import annotations

import functools
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import msgspec

from tampu.broker.settings import Settings
from tampu.engines.port import Ending, Item
from tampu.model.errors import InvalidMessage
from tampu.model.message import NewMessage, State, decode

SettingsOf = Callable[[str], Settings]
"""Queue name → current settings, in one tenant."""
_IDENTITY = frozenset({"id", "idempotency_key"})
_NUMBER_BYTES = 5


class PublishStep(Protocol):
    def wants(self, queue: str, settings: Settings) -> bool:
        """True if the step has work to do for messages of this queue. Called on each publish: keep it cheap."""
        ...

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        """Inspect and change messages. ``drafts`` are those that now go to queues which the step wants."""
        ...


STEPS: list[PublishStep] = []
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


class Draft:
    """One message on its way through the steps."""

    __slots__ = ("ends", "message", "origin", "position", "queue")

    def __init__(self, queue: str, message: NewMessage, origin: Item, position: int | None) -> None:
        self.queue = queue
        """Where it goes. Assign another name to route it."""
        self.message = message
        """Its fields, with the payload encoded."""
        self.origin = origin
        """The original message: as it was published, or the one that this is a copy of."""
        self.position = position
        """Index of the original message in the batch; None in a batch of one."""
        self.ends: Ending | None = None
        """Set if it is stored as ended."""

    @property
    def payload(self) -> Any:
        """The payload, decoded by its content type. Raises `InvalidMessage` if that fails."""
        try:
            return decode(self.message.payload, self.message.content_type or "")
        except (ValueError, msgspec.MsgspecError) as error:
            self.refuse(f"the payload cannot be decoded: {error}", field="payload")

    def change(self, **fields: Any) -> None:
        """Change these fields of `NewMessage`. A new payload is encoded as `publish` encodes it."""
        if not _IDENTITY.isdisjoint(fields):
            raise TypeError("a step cannot change id or idempotency_key: callers use them to retry")
        if "payload" in fields:
            fields.setdefault("content_type", None)
        self.message = msgspec.structs.replace(self.message, **fields)

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
        copies_by_id: bool = False,
        now: Callable[[], int] | None = None,
    ) -> None:
        self.tenant = tenant
        self._copies_by_id = copies_by_id
        """Copies have an id instead of an idempotency key, which a cluster takes in one queue of a unit only."""
        self.drafts = drafts
        """One per published message, in order."""
        self.copies: list[Draft] = []
        self.settings_of = functools.cache(settings_of)
        self.now = now or (lambda: time.time_ns() // 1000)
        """The time by the clock of the engine, if that is known here."""

    def run(self) -> None:
        """Apply the steps one after the other. Later steps see the messages that a step routes or adds."""
        for step in (*STEPS, *ADDED):
            drafts = (*self.drafts, *self.copies)
            wanted = {
                queue for queue in {draft.queue for draft in drafts} if step.wants(queue, self.settings_of(queue))
            }
            chosen = [draft for draft in drafts if draft.queue in wanted]
            if chosen:
                step.apply(self, chosen)

    def copy(self, draft: Draft, queue: str, name: str, **fields: Any) -> Draft:
        """Store the message also in ``queue``, with these fields changed. The copy has no ``key`` unless given.

        ``name`` tells the copies of a message apart. The copy's id and idempotency key derive from it and from those
        of the message, so publishing the message again finds the copy too.
        """
        if not _IDENTITY.isdisjoint(fields):
            raise TypeError("a step cannot set id or idempotency_key of a copy: they derive from those of its message")
        original = draft.message
        if original.id is None and original.idempotency_key is None:
            original = draft.message = msgspec.structs.replace(original, id=str(uuid.uuid4()))
        id = None if original.id is None else derived_id(original.id, name)
        key = None if original.idempotency_key is None else _derived_key(original, name)
        if key is not None and self._copies_by_id:
            id, key = derived_id(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.tenant}/{key}")), name), None
        same = {"id": id, "idempotency_key": key, "key": None}
        made = Draft(queue, msgspec.structs.replace(original, **same), draft.origin, draft.position)
        made.change(**fields)
        self.copies.append(made)
        return made


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
