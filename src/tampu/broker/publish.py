"""Publish: everything that is published anywhere in tampu becomes a call to the engine here.

`PublishVerbs` has the verbs of the library. `prepare` takes messages as callers pass them, `prepare_items` those that
are already checked; both run the publish steps (see `publish_steps`). `publish_call` and `load_call` are the only
places that build `port.Publish` and `port.Load`. They take all settings of the queue, so that none is forgotten.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tampu import tracing
from tampu.broker import causes, publish_steps, timers, validate
from tampu.broker.core import Core, PublishSet, Steps
from tampu.broker.plain_batch import PlainBatch
from tampu.broker.policies import steps as _own_steps  # noqa: F401 - fills the list of publish steps
from tampu.broker.publish_items import Items
from tampu.broker.publish_steps import Batch, Draft, SettingsOf
from tampu.broker.settings import Settings, resolve
from tampu.engines import load
from tampu.engines.port import Buffer, Item, Load, Publish
from tampu.model.config import BUILT_IN, SYSTEM
from tampu.model.errors import InvalidMessage
from tampu.model.message import Message, NewMessage
from tampu.model.times import SECOND, Duration, moment_or_none

_NO_PRIORITY = 0
_NO_OPTIONS = (None,) * 19
_BATCH_ID_US = 600 * SECOND
"""How long a batch id is remembered: longer than any client retries."""
_MOST_WARNED = 10_000
_OF_TIMERS = resolve(BUILT_IN)
"""The settings of the queue of timers: nobody can change them."""
log = logging.getLogger("tampu")


class PublishVerbs:
    """Publish to the queues of one tenant."""

    traced = True
    """True if the verbs begin trace spans; a server begins its own."""

    def __init__(self, core: Core, tenant: str) -> None:
        self.core = core
        self.tenant = validate.name(tenant, "tenant")

    def publish(
        self,
        queue: str,
        payload: Any,
        *,
        type: str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        ttl: Duration | None = None,
        deadline: datetime | None = None,
        key: str | None = None,
        idempotency_key: str | None = None,
        labels: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        max_attempts: int | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        parent_id: str | None = None,
        group: str | None = None,
        source: str | None = None,
        content_type: str | None = None,
        hold: str | None = None,
        id: str | None = None,
        review: str | dict[str, Any] | None = None,
    ) -> Steps[Message]:
        """Publish one message. When this returns, it is on disk.

        ``key`` replaces the payload of a waiting message with the same key. ``idempotency_key`` makes it safe to
        publish again: within the queue's window the first message is returned. With ``review``, the name of a pattern
        or a review, it is held until a person has decided (`store.reviews`). In a task, correlation, causation and
        parent id default to those of its message. Raises `QueueFull`, `QueueClosed`,
        `PayloadTooLarge`, `IdempotencyConflict`, `InvalidMessage`; then nothing was stored.
        """
        options = (
            type, delay, run_at, ttl, deadline, key, idempotency_key, labels, headers, max_attempts, correlation_id,
            causation_id, parent_id, group, source, content_type, hold, id, review,
        )  # fmt: skip
        new = payload
        if priority is not _NO_PRIORITY or options != _NO_OPTIONS or isinstance(payload, NewMessage):
            new = NewMessage(
                payload, type, priority, delay, run_at, ttl, deadline, key, idempotency_key, labels, headers,
                max_attempts, correlation_id, causation_id, parent_id, group, source, content_type, hold, id, review,
            )  # fmt: skip
        news = [new] if causes.running() is None else causes.continued([new])
        if self.traced and tracing.on():
            return (yield from self._publish_traced(queue, news))[0]
        return (yield self.publishing(queue, news))[0]  # type: ignore[no-any-return]  # typed by the call

    def publish_many(self, queue: str, messages: Iterable[NewMessage | Any]) -> Steps[list[Message]]:
        """Publish many messages in one commit, all or none. A value that is no `NewMessage` is a payload."""
        if isinstance(messages, str | bytes | dict) or not isinstance(messages, Iterable):
            raise InvalidMessage("messages must be a list", field="messages", hint="use publish for one message")
        news = list(messages)
        if len(news) > validate.MOST_MESSAGES:
            raise InvalidMessage(
                f"{len(news)} messages in one batch; {validate.MOST_MESSAGES} is the most",
                field="messages",
                hint="publish in several batches",
            )
        if not news:
            validate.name(queue, "queue")
            return []
        if causes.running() is not None:
            news = causes.continued(news)
        if self.traced and tracing.on():
            return (yield from self._publish_traced(queue, news))
        return (yield self.publishing(queue, news))  # type: ignore[no-any-return]  # typed by the call

    def _publish_traced(self, queue: str, news: Sequence[NewMessage | Any]) -> Steps[list[Message]]:
        with tracing.Publishing(self.tenant, validate.name(queue, "queue"), len(news)) as span:
            step = self.publishing(queue, tracing.carrying(news, span.context))
            messages: list[Message] = yield self._within(step, span.context)
            span.stored(messages)
            return messages

    def _within(self, step: Any, _context: dict[str, str]) -> Any:
        """The step as part of a trace. The messages carry the trace, so a local store changes nothing."""
        return step

    def publishing(
        self,
        queue: str,
        news: Sequence[NewMessage | Any],
        batch_id: str | None = None,
        *,
        one_request: bool = False,
        remember_us: int = 0,
    ) -> Any:
        """The step that stores these messages; with a ``batch_id`` at most once. Its reply is list[Message]."""
        if isinstance(queue, str) and queue.startswith(SYSTEM):
            validate.name(queue, "queue")
        keeps_batch_ids = batch_id is None or "batch_id" in self.core.engine.capabilities
        step = prepare(
            self.tenant, queue, news, self._settings, batch_id=batch_id, keeps_batch_ids=keeps_batch_ids,
            one_request=one_request, remember_us=remember_us,
            copies_by_id="atomic:eventual" in self.core.engine.capabilities, now=self.core.engine.now,
        )  # fmt: skip
        if type(step) is Publish and not step.simple:  # a message with a priority is never simple
            for item in step.items:
                if item.body.priority and item.ordering != "priority":
                    self._warn_of_priority(queue, item.ordering)
                    break
        return step

    def policy_publishing(self, queue: str, news: Sequence[NewMessage], *, complete: bool = True) -> Any:
        """Like `publishing`, for messages of policies. The queue may be one of tampu's own."""
        by_id = "atomic:eventual" in self.core.engine.capabilities
        return prepare(
            self.tenant, queue, news, self._settings, copies_by_id=by_id, now=self.core.engine.now, complete=complete
        )

    def _warn_of_priority(self, queue: str, ordering: str) -> None:
        """Log it once per queue. It is no error: the queue may get another ordering while the message waits."""
        warned = self.core.warned_of_priority
        if (self.tenant, queue) not in warned and len(warned) < _MOST_WARNED:
            warned.add((self.tenant, queue))
            log.warning(
                'priority has no effect in queue %s: its ordering is %s; set ordering="priority", or omit priority',
                queue, ordering,
            )  # fmt: skip

    def has_steps(self, queue: str) -> bool:
        """True if a publish to this queue goes through any publish step."""
        return publish_steps.wanted(queue, self._settings(queue))

    def _settings(self, queue: str) -> Settings:
        return self.core.settings.get(self.tenant, validate.any_queue(queue))


# -- the engine's calls


def publish_call(
    tenant: str,
    queue: str,
    settings: Settings,
    items: Sequence[Item],
    simple: bool = False,
    remember_us: int = 0,
    batch_id: str | None = None,
    *,
    copy: bool = False,
) -> Publish:
    """The call that stores these items, with the settings of their queue."""
    return Publish(
        tenant,
        queue,
        items,
        settings.max_depth,
        simple,
        remember_us,
        settings.slots,
        settings.group_rate,
        batch_id,
        _BATCH_ID_US,
        copy,
    )


def timers_call(tenant: str, items: Sequence[Item]) -> Publish:
    """The call that stores timers, see `tampu.broker.timers`."""
    return publish_call(tenant, timers.QUEUE, _OF_TIMERS, items)


def load_call(
    tenant: str,
    queue: str,
    settings: Settings,
    id_prefix: bytes,
    numbers: Sequence[int],
    bodies: Buffer,
    starts: Sequence[int],
    types: Sequence[str],
    *,
    remember_us: int = 0,
    position_in_same_commit: bool = False,
) -> Load:
    """The call that stores simple messages, ids made of a prefix and numbers, with the settings of their queue."""
    return Load(
        tenant, queue, id_prefix, numbers, bodies, starts, types, settings.max_attempts, settings.max_depth,
        remember_us, position_in_same_commit,
    )  # fmt: skip


def prepare(
    tenant: str,
    queue: str,
    news: Sequence[NewMessage | Any],
    settings_of: SettingsOf,
    *,
    batch_id: str | None = None,
    keeps_batch_ids: bool = True,
    one_request: bool = False,
    remember_us: int = 0,
    copies_by_id: bool = False,
    now: Callable[[], int] | None = None,
    complete: bool = True,
) -> Publish | PublishSet:
    """The step that stores these messages or payloads; its reply is a list with one `Message` for each.

    A batch with the same ``batch_id`` is stored once; ``keeps_batch_ids`` is true if the engine remembers these ids.
    ``one_request``: the idempotency keys of the messages stand for the whole batch and match no other batch.
    ``remember_us`` is as in `port.Load`, ``copies_by_id`` and ``complete`` as in `publish_steps.Batch`.
    """
    settings = settings_of(queue)
    if "@" in queue:
        raise InvalidMessage(
            f"{queue} is the queue of a subscription", field="queue", hint=f"publish to {queue.partition('@')[0]}"
        )
    if settings.status != "open":
        validate.check_open(queue, settings)
    if settings.policies and batch_id is None and (plain := validate.payloads(settings, news)) is not None:
        checked: tuple[list[Item], bool, Sequence[Any] | None]
        batch = PlainBatch(queue, settings, plain, settings_of)
        if batch.run():
            return _plain_calls(tenant, batch, remember_us)
        checked = plain.items(settings), True, plain.values
    else:
        checked = validate.items(queue, settings, news)
    items, simple, values = checked
    if one_request and len(items) > 1:
        items = [msgspec.structs.replace(item, digest=_of_batch(item.digest or b"", len(items))) for item in items]
    steps = settings.policies or (publish_steps.ADDED and publish_steps.wanted(queue, settings))
    steps = steps or (not simple and any(item.body.review for item in items))
    if batch_id is not None and (steps or not keeps_batch_ids):
        items, simple, batch_id = load.named(items, f"{tenant}/{queue}/{batch_id}"), False, None
    if steps:
        return _through_steps(
            tenant, queue, news, items, settings_of, remember_us, simple, values, copies_by_id=copies_by_id, now=now,
            complete=complete,
        )  # fmt: skip
    return publish_call(tenant, queue, settings, items, simple, remember_us, batch_id)


def prepare_items(
    tenant: str, queue: str, items: Sequence[Item], settings_of: SettingsOf, *, remember_us: int = 0
) -> PublishSet:
    """Like `prepare`, for messages that are already checked and packed with the settings of this queue."""
    settings = settings_of(queue)
    validate.check_open(queue, settings)
    messages = [_unpacked(item, settings) for item in items]
    made = _through_steps(tenant, queue, messages, items, settings_of, remember_us)
    return made if isinstance(made, PublishSet) else PublishSet([made], [], [(0, at) for at in range(len(items))])


def _of_batch(digest: bytes, count: int) -> bytes:
    """The digest of a message in a batch under one Idempotency-Key: it differs if the batch has another length."""
    return hashlib.sha256(b"%d:%s" % (count, digest)).digest()[: len(digest)]


# -- publish steps


def _unpacked(item: Item, settings: Settings) -> NewMessage:
    """The message of an item, without what it got from the settings of its queue: steps may route it to another."""

    def span(us: int | None) -> timedelta | None:
        return None if us is None else timedelta(microseconds=us)

    return validate.from_body(
        item.body,
        run_at=moment_or_none(item.run_us),
        delay=span(item.delay_us),
        ttl=None if item.ttl_us == settings.ttl_us else span(item.ttl_us),
        max_attempts=None if item.max_attempts == settings.max_attempts else item.max_attempts,
        id=item.id,
    )


def _plain_calls(tenant: str, batch: PlainBatch, remember_us: int) -> Publish | PublishSet:
    """The calls of a plain batch that went through the steps."""
    queue, items = batch.queue, batch.items()
    stored = publish_call(tenant, queue, batch.settings, items, batch.ends is None, remember_us)
    if not batch.copies:
        return stored
    copies = [
        publish_call(tenant, name, batch.settings_of(name), batch.copied_items(name, chosen), simple=True, copy=True)
        for name, chosen in batch.copies
    ]
    return PublishSet([stored], copies, [(0, at) for at in range(len(items))])


def _through_steps(
    tenant: str,
    queue: str,
    news: Sequence[Any],
    items: Sequence[Item],
    settings_of: SettingsOf,
    remember_us: int,
    simple: bool = False,
    values: Sequence[Any] | None = None,
    *,
    copies_by_id: bool = False,
    now: Callable[[], int] | None = None,
    complete: bool = True,
) -> Publish | PublishSet:
    positions: Iterable[int | None] = [None] if len(items) == 1 else range(len(items))
    if values is None:
        drafts = [Draft(queue, *each) for each in zip(news, items, positions, strict=True)]
    else:
        drafts = [Draft(queue, *each) for each in zip(news, items, positions, values, strict=True)]
    batch = Batch(tenant, drafts, settings_of, plain=simple, copies_by_id=copies_by_id, now=now, complete=complete)
    batch.run()
    made = Items(queue, batch.settings_of)
    by_queue: dict[str, list[Item]] = {}
    for draft in drafts:
        by_queue.setdefault(draft.queue, []).append(made.of(draft))
    copies: dict[str, list[Item]] = {}
    for draft in batch.copies:
        copies.setdefault(draft.queue, []).append(made.of(draft))

    def calls(by_queue: dict[str, list[Item]]) -> list[Publish]:
        return [
            publish_call(tenant, name, batch.settings_of(name), queued, made.simple and simple, remember_us)
            for name, queued in by_queue.items()
        ]

    stored = calls(by_queue)
    if len(stored) == 1 and not (copies or batch.spreads or batch.timers):
        return stored[0]
    spread = []
    for name, some in batch.spreads:
        shared = made.spread(name, some)
        simple = validate.is_simple(shared[0])  # else they have a story
        spread.append(publish_call(tenant, name, batch.settings_of(name), shared, simple=simple, copy=simple))
    numbers = {name: (number, itertools.count()) for number, name in enumerate(by_queue)}
    order = [(number, next(at)) for number, at in (numbers[draft.queue] for draft in drafts)]
    due = [timers_call(tenant, batch.timers)] if batch.timers else []
    return PublishSet(stored, calls(copies) + spread + due, order)
