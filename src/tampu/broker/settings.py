"""The current settings of queues: inherited values filled in, durations in microseconds, cached until they change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tampu.engines.groups import ANY, ORDERED, GroupRate, group_rate
from tampu.engines.port import Document, Engine, QueueClaim
from tampu.model.config import BUILT_IN, SYSTEM, SYSTEM_SETTINGS, Backoff, QueueConfig, inherit, parents, read_config
from tampu.model.decoders import from_json
from tampu.model.definitions import Definition, Hold, Rule, Schema, Subscription
from tampu.model.reviews import ReviewPattern
from tampu.model.times import SECOND

KIND = "queue"
DEFINITION = "definition"
"""Kind of the documents with definitions, see `tampu.broker.policies.definitions`."""
_CHECK_SECONDS = 0.1
_MOST = 10_000
Read = Callable[[str, str, str], Document | None]
"""Reads a document by kind, tenant and name."""
_OF_PUBLISH: dict[str, Callable[[bytes], Definition]] = {
    "schema": from_json(Schema).decode,
    "rule": from_json(Rule).decode,
    "subscription": from_json(Subscription).decode,
    "pattern": from_json(ReviewPattern).decode,
    "hold": from_json(Hold).decode,
}
"""Definitions that publish steps and reads use, by the beginning of their document's name."""


class Documents(Protocol):
    """A store, as far as settings are concerned."""

    def document(self, kind: str, tenant: str, name: str) -> Document | None: ...

    def documents(self, kind: str, tenant: str) -> list[Document]: ...


class Settings(msgspec.Struct, frozen=True):
    """The settings of one queue, resolved."""

    status: str
    ordering: str
    ageing_us: int
    group_by: str
    slots: int | None
    """How many messages of a group may be leased at once; None: no limit, no order. See `tampu.engines.groups`."""
    group_rate: GroupRate | None
    """How often a message of one group may be delivered."""
    max_attempts: int
    lease_us: int
    backoff: Backoff
    delays: tuple[int, ...]
    ttl_us: int
    on_deadline: str
    on_invalid: str
    result_ttl_us: int
    retention_us: int
    dead_letter_to: str
    idempotency_us: int
    max_depth: int
    max_in_flight: int
    rate: float
    burst: int
    max_payload: int
    schemas: tuple[Schema, ...] = ()
    """Those that messages of this queue may have to match, by their type."""
    rules: tuple[Rule, ...] = ()
    """Those with the trigger ``published`` that are for this queue, in the order in which they run."""
    broadcast: bool = False
    subscriptions: tuple[Subscription, ...] = ()
    """Of a broadcast queue."""
    patterns: Mapping[str, ReviewPattern] = {}
    """All patterns of the tenant, by name: messages say which review they need."""
    under_hold: bool = False
    """True if a legal hold is for the queue: its results are shown past their time."""
    policies: bool = False
    """True if publish steps have something to do in this queue."""
    kept: dict[Any, Any] = msgspec.field(default_factory=dict)
    """What publish steps have computed from these settings, such as compiled rules."""
    simple: bool = False
    """True if a message without options is ready at once at rank 0 and never expires; see `validate.is_simple`."""

    def __post_init__(self) -> None:
        rank_is_0 = self.ordering == "fifo" or (self.ordering == "priority" and not self.ageing_us)
        simple = rank_is_0 and self.group_by == "group" and not self.ttl_us
        msgspec.structs.force_setattr(self, "simple", simple)  # computed once: every publish reads it

    def want(self, queue: str, lease_us: int | None) -> QueueClaim:
        """The part of a claim that is for this queue."""
        return QueueClaim(
            queue, lease_us or self.lease_us, self.max_in_flight, self.rate, self.burst, self.group_rate is not None
        )


def resolve(config: QueueConfig) -> Settings:
    """The settings of a config in which no field is None."""

    def micros(seconds: float | None) -> int:
        return round((seconds or 0) * SECOND)

    backoff = config.backoff or Backoff()
    has_group_rate = group_rate(config.group_rate or 0, config.group_burst or 0)
    slots = ORDERED if config.group_order else config.group_concurrency or None
    return Settings(
        status=config.status or "open",
        ordering=config.ordering or "fifo",
        ageing_us=micros(config.ageing),
        group_by=config.group_by or "group",
        slots=ANY if slots is None and has_group_rate is not None else slots,
        group_rate=has_group_rate,
        max_attempts=config.max_attempts or 1,
        lease_us=micros(config.lease),
        backoff=backoff,
        delays=backoff.table(64),
        ttl_us=micros(config.ttl),
        on_deadline=config.on_deadline or "keep",
        on_invalid=config.on_invalid or "refuse",
        broadcast=config.consumer_mode == "broadcast",
        result_ttl_us=micros(config.result_ttl),
        retention_us=micros(config.retention),
        dead_letter_to=config.dead_letter_to or "",
        idempotency_us=micros(config.idempotency_window),
        max_depth=config.max_depth or 0,
        max_in_flight=config.max_in_flight or 0,
        rate=config.rate or 0.0,
        burst=config.burst or 0,
        max_payload=config.max_payload or 1,
    )


def own(document: Read, tenant: str, queue: str) -> QueueConfig | None:
    """The settings of the queue itself, without inherited ones; None if it has none."""
    found = document(KIND, tenant, queue)
    return None if found is None else read_config(found.value)


def read(document: Read, tenant: str, queue: str) -> Settings:
    """Read the settings of a queue from its documents."""
    if queue.startswith(SYSTEM):
        return resolve(inherit(own(document, tenant, queue), SYSTEM_SETTINGS.get(queue), BUILT_IN))
    return resolve(inherit(*(own(document, tenant, name) for name in (queue, *parents(queue))), BUILT_IN))


def read_with_policies(source: Documents, tenant: str, queue: str) -> Settings:
    """Read the settings of a queue, with the definitions that its publish steps need."""
    return _with(read(source.document, tenant, queue), queue, definitions(source, tenant))


def definitions(source: Documents, tenant: str) -> list[Definition]:
    """All definitions of a tenant that publish steps and reads use."""
    found = []
    for document in source.documents(DEFINITION, tenant):
        decode = _OF_PUBLISH.get(document.name.partition(":")[0])
        if decode is not None:
            found.append(decode(document.value))
    return found


def _with(settings: Settings, queue: str, found: Sequence[Definition]) -> Settings:
    if queue.startswith(SYSTEM):
        return settings
    if any(isinstance(one, Hold) and one.applies_to(queue) for one in found):
        settings = msgspec.structs.replace(settings, under_hold=True)
    if "@" in queue:  # the queue of a subscription: its messages were checked on their way to the broadcast queue
        return msgspec.structs.replace(settings, broadcast=False, kept={})
    if not (found or settings.broadcast):
        return settings
    schemas = tuple(one for one in found if isinstance(one, Schema) and one.applies_to(queue))
    rules = [one for one in found if isinstance(one, Rule) and one.trigger == "published" and one.applies_to(queue)]
    rules.sort(key=lambda rule: (rule.order, rule.name))
    subscriptions = tuple(one for one in found if isinstance(one, Subscription) and one.applies_to(queue))
    patterns = {one.name: one for one in found if isinstance(one, ReviewPattern)}
    return msgspec.structs.replace(
        settings, schemas=schemas, rules=tuple(rules), subscriptions=subscriptions, patterns=patterns,
        policies=bool(schemas or rules or settings.broadcast), kept={},
    )  # fmt: skip


class SettingsCache:
    """Caches settings. It checks at most ten times a second whether any document has changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Settings] = {}
        self._definitions: dict[str, list[Definition]] = {}
        """By tenant."""
        self._revision = -1
        self._checked_at = 0.0
        self.watched = False
        """True if `refresh` is called regularly; then `get` does not check for changes itself."""

    def knows(self, tenant: str, queue: str) -> bool:
        """True if `get` needs no read of the engine."""
        return self.watched and (tenant, queue) in self._known

    def get(self, tenant: str, queue: str) -> Settings:
        if not self.watched and time.monotonic() - self._checked_at > _CHECK_SECONDS:
            self.refresh()
        found = self._known.get((tenant, queue))
        if found is None:
            revision = self._revision
            of_tenant = self._definitions.get(tenant)
            if of_tenant is None:
                of_tenant = definitions(self._engine, tenant)
            found = _with(read(self._engine.document, tenant, queue), queue, of_tenant)
            with self._lock:
                if len(self._known) >= _MOST:
                    self._clear()
                if revision == self._revision:  # else it may be from before a change
                    self._known[tenant, queue] = found
                    self._definitions[tenant] = of_tenant
        return found

    def _clear(self) -> None:
        self._known.clear()
        self._definitions.clear()

    def own(self, tenant: str, queue: str) -> QueueConfig | None:
        """The settings of the queue itself, without inherited ones; None if it has none."""
        return own(self._engine.document, tenant, queue)

    def forget(self) -> None:
        """Empty the cache, after a change by this process."""
        with self._lock:
            self._clear()
            self._checked_at = 0.0

    def refresh(self) -> None:
        """Empty the cache if any process has changed a document."""
        self._checked_at = time.monotonic()
        revision = self._engine.revision()
        if revision != self._revision:
            with self._lock:
                self._clear()
                self._revision = revision
