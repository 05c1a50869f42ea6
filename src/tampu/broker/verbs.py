"""The verbs of the library, each defined once, as steps that a thread or a task carries out."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tampu.broker import incoming
from tampu.broker.core import Core, Look, Pause, Steps
from tampu.broker.settings import Settings
from tampu.engines import port
from tampu.model.errors import InvalidMessage, NotFound, TampuError
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Lease, Message, NewMessage
from tampu.model.outcome import Ack, Nack, Outcome, Reject, Release, Settlement
from tampu.model.times import SECOND, Duration, duration

_NO_PRIORITY = 0
_NO_OPTIONS = (None,) * 18
_LIMITED_LOOK = 0.25
_UNWATCHED_LOOK = 1.0


class Verbs:
    """What may be done with the queues of one tenant."""

    def __init__(self, core: Core, tenant: str) -> None:
        self.core = core
        self.tenant = incoming.name(tenant, "tenant")

    # -- publish

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
    ) -> Steps[Message]:
        """Hand in one message. When this returns, it is on disk.

        ``key`` replaces the payload of the message with that key that still waits. ``idempotency_key`` makes it safe
        to publish again: within the queue's window the first message is answered. Raises `QueueFull`,
        `QueueClosed`, `PayloadTooLarge`, `IdempotencyConflict`, `InvalidMessage`; then nothing was stored.
        """
        options = (
            type, delay, run_at, ttl, deadline, key, idempotency_key, labels, headers, max_attempts, correlation_id,
            causation_id, parent_id, group, source, content_type, hold, id,
        )  # fmt: skip
        if priority is _NO_PRIORITY and options == _NO_OPTIONS and not isinstance(payload, NewMessage):
            return (yield self._publishing(queue, [payload]))[0]  # type: ignore[no-any-return]  # typed by the call
        new = NewMessage(
            payload, type, priority, delay, run_at, ttl, deadline, key, idempotency_key, labels, headers,
            max_attempts, correlation_id, causation_id, parent_id, group, source, content_type, hold, id,
        )  # fmt: skip
        call = self._publishing(queue, [new])
        return (yield call)[0]  # type: ignore[no-any-return]  # replies are typed by their call

    def publish_many(self, queue: str, messages: Iterable[NewMessage | Any]) -> Steps[list[Message]]:
        """Hand in many messages in one commit: all of them, or none. A plain value is a payload."""
        if isinstance(messages, str | bytes | dict) or not isinstance(messages, Iterable):
            raise InvalidMessage("messages must be a list", field="messages", hint="use publish for one message")
        news = list(messages)
        if len(news) > incoming.MOST_MESSAGES:
            raise InvalidMessage(
                f"{len(news)} messages in one batch; {incoming.MOST_MESSAGES} is the most",
                field="messages",
                hint="publish in several batches",
            )
        if not news:
            incoming.name(queue, "queue")
            return []
        call = self._publishing(queue, news)
        return (yield call)  # type: ignore[no-any-return]  # replies are typed by their call

    def _publishing(self, queue: str, news: Sequence[NewMessage | Any]) -> port.Publish:
        settings = self._settings(queue)
        incoming.check_open(queue, settings)
        bare = not any(type(new) is NewMessage for new in news)
        if bare:
            items = incoming.plain_items(settings, news)
            bare = settings.ordering == "fifo" and not settings.ttl_us
        else:
            items = [
                incoming.item(queue, settings, new if type(new) is NewMessage else NewMessage(new)) for new in news
            ]
        return port.Publish(self.tenant, queue, items, settings.max_depth, bare)

    def _settings(self, queue: str) -> Settings:
        return self.core.settings.get(self.tenant, incoming.name(queue, "queue"))

    # -- claim and settle

    def claim(
        self,
        queues: str | Sequence[str],
        *,
        limit: int = 1,
        lease: Duration | None = None,
        wait: Duration = 0,
        worker: str | None = None,
    ) -> Steps[list[Lease]]:
        """Take up to ``limit`` messages, from one queue or several (the first named goes first).

        With ``wait`` it waits up to that long for the first message, without polling. An empty list means there was
        nothing. ``lease`` is how long the messages are yours; settle or extend before it runs out.
        """
        names = [queues] if isinstance(queues, str) else list(queues) if isinstance(queues, Iterable) else []
        if not 0 < len(names) <= 1000:
            raise InvalidMessage("name 1 to 1000 queues", field="queues")
        for queue in names:
            incoming.name(queue, "queue")
        incoming.whole(limit, "limit", 1, incoming.MOST_CLAIM)
        lease_us = None if lease is None else duration(lease, "lease", zero=False)
        if worker is not None:
            incoming.text(worker, "worker", 256)
        until = time.monotonic() + duration(wait, "wait") / SECOND
        while True:
            settings = [(name, self._settings(name)) for name in names]
            wants = [s.want(name, lease_us) for name, s in settings if s.status not in ("paused", "closed")]
            if wants:
                leases: list[Lease] | port.Again = port.AGAIN
                while isinstance(leases, port.Again):
                    leases = yield port.Claim(self.tenant, wants, limit, worker)
                if leases:
                    return leases
            left = until - time.monotonic()
            if left <= 0 or self.core.closed:
                return []
            empty = [(self.tenant, w.queue) for w in wants if not w.rate and not w.max_in_flight]
            look = _LIMITED_LOOK if len(empty) < len(names) else None if self.core.watched else _UNWATCHED_LOOK
            yield Pause([(self.tenant, name) for name in names], left if look is None else min(left, look), empty)
            if self.core.closed:
                return []

    def settle(self, settlements: Iterable[Settlement]) -> Steps[list[Outcome]]:
        """End many leases in one commit. Each item has its own outcome; a lost lease does not stop the rest."""
        if not isinstance(settlements, Iterable):
            raise InvalidMessage("settlements must be a list", field="settlements", hint="use ack for one lease")
        items = [self._ending(settlement) for settlement in settlements]
        if not items:
            return []
        return (yield port.Settle(self.tenant, items))  # type: ignore[no-any-return]  # typed by the call

    def ack(self, lease: Lease | str, result: Any = None) -> Steps[Message | None]:
        """The work is done. Raises `LeaseLost` if the lease is no longer yours; then nothing changed."""
        yield from self._settle_one(Ack(lease, result))
        return None

    def nack(
        self,
        lease: Lease | str,
        error: str | BaseException | None = None,
        delay: Duration | None = None,
        traceback: str | None = None,
    ) -> Steps[Outcome]:
        """The work failed: again after the queue's backoff (or ``delay``), or dead when attempts are used up."""
        return (yield from self._settle_one(Nack(lease, error, delay, traceback)))  # type: ignore[arg-type]  # checked there

    def reject(
        self,
        lease: Lease | str,
        reason: str = "unrecoverable",
        error: str | BaseException | None = None,
        traceback: str | None = None,
    ) -> Steps[Outcome]:
        """The work can never succeed: dead now, for ``reason``."""
        return (yield from self._settle_one(Reject(lease, reason, error, traceback)))  # type: ignore[arg-type]  # checked there

    def release(self, lease: Lease | str) -> Steps[Outcome]:
        """Give the message back unworked; the attempt does not count."""
        return (yield from self._settle_one(Release(lease)))

    def _settle_one(self, settlement: Settlement) -> Steps[Outcome]:
        outcomes: list[Outcome] = yield port.Settle(self.tenant, [self._ending(settlement)])
        if outcomes[0].error is not None:
            raise outcomes[0].error
        return outcomes[0]

    def _ending(self, settlement: Settlement) -> port.Ending:
        if type(settlement) is Ack and settlement.result is None and type(settlement.lease) is Lease:  # most are
            lease = settlement.lease
            return port.Ending("ack", lease.message.queue, lease.receipt, id=lease.message.id)
        if not isinstance(settlement, Ack | Nack | Reject | Release):
            raise InvalidMessage("settle takes Ack, Nack, Reject and Release", field="settlements")
        queue, receipt = self._receipt(settlement.lease)
        if isinstance(settlement, Ack):
            settings = self._settings(queue)
            packed = incoming.result(settlement.result, settings.max_payload)
            return port.Ending("ack", queue, receipt, packed, settings.result_ttl_us)
        if isinstance(settlement, Release):
            return port.Ending("release", queue, receipt)
        return self._failed(settlement, queue, receipt)

    def _failed(self, settlement: Nack | Reject, queue: str, receipt: str) -> port.Ending:
        error, trace = incoming.error_text(settlement.error)
        trace = incoming.traceback_text(settlement.traceback) or trace
        if isinstance(settlement, Reject):
            reason = incoming.text(settlement.reason, "reason", 128)
            return port.Ending("reject", queue, receipt, reason=reason, error=error, traceback=trace)
        if settlement.delay is not None:
            delay_us = duration(settlement.delay, "delay")
            return port.Ending("nack", queue, receipt, error=error, traceback=trace, delay_us=delay_us)
        settings = self._settings(queue)
        return port.Ending(
            "nack",
            queue,
            receipt,
            error=error,
            traceback=trace,
            delays=settings.delays,
            spread=settings.backoff.spread(random.random()),
        )

    def _receipt(self, lease: Lease | str) -> tuple[str, str]:
        """(queue, receipt)"""
        receipt = lease.receipt if type(lease) is Lease else lease
        if not isinstance(receipt, str) or not 0 < len(receipt) <= 512:
            raise InvalidMessage("pass the lease, or its receipt", field="lease")
        return incoming.name(receipt.rpartition("/")[0], "receipt"), receipt

    def extend(self, lease: Lease | str, by: Duration | None = None) -> Steps[Lease | None]:
        """Keep a lease for ``by`` from now (the queue's lease time if not given).

        Answers with the lease as it is now when it was given a `Lease`; its message says if a cancel was asked for.
        Raises `LeaseLost`.
        """
        queue, receipt = self._receipt(lease)
        lease_us = self._settings(queue).lease_us if by is None else duration(by, "by", zero=False)
        replies: list[port.Extended | TampuError] = yield port.Extend(self.tenant, [(queue, receipt, lease_us)])
        reply = replies[0]
        if isinstance(reply, TampuError):
            raise reply
        if not isinstance(lease, Lease):
            return None
        message = msgspec.structs.replace(lease.message, cancel_requested=reply.cancel_requested)
        return msgspec.structs.replace(lease, message=message, until_us=reply.until_us)

    # -- one message

    def get(self, id: str) -> Steps[Message]:
        """One message as it is now, with its failed attempts and its result. Raises `NotFound`."""
        wanted = incoming.id_text(id)
        found: Message | None = yield Look(lambda engine: engine.get(self.tenant, wanted))
        if found is None:
            raise NotFound(f"no message {wanted}", field="id")
        return found

    def cancel(self, *ids: str) -> Steps[list[Outcome]]:
        """End messages that wait; a leased one is only asked to stop, and ends when its worker lets go."""
        return (yield port.Cancel(self.tenant, [incoming.id_text(id) for id in ids]))  # type: ignore[no-any-return]  # typed by the call

    def free(self, *ids: str) -> Steps[list[Outcome]]:
        """Let held messages go on."""
        return (yield port.Free(self.tenant, [incoming.id_text(id) for id in ids]))  # type: ignore[no-any-return]  # typed by the call

    # -- the journal

    def journal(self, *, after: Position | int | None = None, limit: int = 1000) -> Steps[JournalPage]:
        """What happened, in order, after a position; the page's own position continues."""
        incoming.whole(limit, "limit", 1, 100_000)
        position = {"0": after} if isinstance(after, int) and not isinstance(after, bool) else after
        if position is not None and not (
            isinstance(position, dict)
            and all(isinstance(k, str) and isinstance(v, int) and 0 <= v < 1 << 62 for k, v in position.items())
        ):
            raise InvalidMessage("after must be a position that journal gave", field="after")
        return (  # type: ignore[no-any-return]  # typed by the read
            yield Look(lambda engine: engine.journal(position, limit, self.tenant))
        )
