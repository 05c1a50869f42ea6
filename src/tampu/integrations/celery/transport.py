"""A transport of kombu: queues are queues of tampu, and what a consumer has taken is leased until it is acknowledged.

Unlike with most transports, countdown and eta are delays of the broker: such a task is delivered once, when it is due.
A task that runs for long is not delivered again, because its lease is extended while the worker lives. Waiting is not
polling.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from queue import Empty
from typing import Any

from kombu.log import get_logger
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.json import dumps, loads
from kombu.utils.url import maybe_sanitize_url

import tampu
from tampu.integrations.celery import stores
from tampu.integrations.celery.bindings import Binding, Bindings
from tampu.integrations.celery.lease_keeper import LeaseKeeper
from tampu.integrations.celery.names import queue_name

log = get_logger("tampu.celery")
_LEASE = 60.0
_MAX_ATTEMPTS = 20
_MAX_PAYLOAD = 64 << 20
_MOST_CLAIMED = 100
_TURN_SECONDS = 0.25
"""How long consumers that may take nothing at the moment are waited for, before other queues are looked at."""
_BIND_SECONDS = 60.0
_LONGEST_WAIT = 3600.0
_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,199}\Z")
_REJECTED = "rejected"
_JSON = "application/json"


class QoS(virtual.QoS):  # type: ignore[misc]  # kombu has no types
    """Unacknowledged messages: their delivery tags are receipts of tampu."""

    def ack(self, delivery_tag: str) -> None:
        self._end(delivery_tag, tampu.Ack(delivery_tag))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        end = tampu.Release(delivery_tag) if requeue else tampu.Reject(delivery_tag, _REJECTED)
        self._end(delivery_tag, end)

    def _end(self, delivery_tag: str, settlement: Any) -> None:
        """Settle, and make room for another message, also if the store cannot be reached: then it comes again."""
        try:
            self.channel.settle(delivery_tag, settlement)
        finally:
            self._quick_ack(delivery_tag)
            self.channel.connection.has_room()

    def restore_unacked(self) -> list[Any]:
        """Give back what was not acknowledged, in one commit; the attempts do not count."""
        self._flush()
        tags = list(self._delivered)
        self._delivered.clear()
        self.channel.give_back(tags)
        return []


class Channel(virtual.Channel):  # type: ignore[misc]  # kombu has no types
    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.store = connection.store
        self.no_ack: set[str] = set()
        """Queues whose messages are acknowledged as they are delivered."""
        self._declared: set[str] = set()
        self._bound: set[tuple[str, Binding]] = set()

    # -- queues and exchanges

    def _new_queue(self, queue: str, arguments: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Make the queue with settings that suit Celery, unless somebody has set its own."""
        if queue in self._declared:
            return
        name = queue_name(queue)
        if self.store.queues.get(name, inherited=False).max_payload is None:
            ttl = (arguments or {}).get("x-message-ttl")
            self.store.queues.put(
                name, ordering="priority", lease=self.connection.lease, max_attempts=self.connection.max_attempts,
                max_payload=_MAX_PAYLOAD, **({} if ttl is None else {"ttl": ttl / 1000}),
            )  # fmt: skip
        self._declared.add(queue)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        try:
            self.store.stats(queue_name(queue))
        except tampu.NotFound:
            return False
        return True

    def _size(self, queue: str) -> int:
        try:
            return int(self.store.stats(queue_name(queue)).ready)
        except tampu.NotFound:
            return 0

    def _purge(self, queue: str) -> int:
        try:
            return int(self.store.purge(queue_name(queue), state=["ready", "delayed"]))
        except tampu.NotFound:
            return 0

    def _delete(self, queue: str, exchange: str = "", *args: Any, **kwargs: Any) -> None:
        if exchange:
            self.connection.bindings.remove(exchange, queue)
        self._declared.discard(queue)
        with contextlib.suppress(tampu.NotFound, tampu.InvalidState):  # the second: a message of it is being worked on
            self.store.queues.remove(queue_name(queue), force=True)

    def prepare_queue_arguments(self, arguments: dict[str, Any] | None, **kwargs: Any) -> dict[str, Any]:
        """Times to live of queues arrive as ``x-message-ttl``."""
        return to_rabbitmq_queue_arguments(arguments or {}, **kwargs)  # type: ignore[no-any-return]  # kombu has no types

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        """Queues of an exchange. If there is none, a new one may have been bound within the last second."""
        found: list[str] = super()._lookup(exchange, routing_key, default)
        if exchange and not found:
            self.connection.bindings.forget(exchange)
            found = super()._lookup(exchange, routing_key, default)
        return found

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        binding = (routing_key or "", pattern or "", queue or "")
        self.connection.bindings.add(exchange, binding)
        self._bound.add((exchange, binding))

    def bind_again(self) -> None:
        """Others may have taken its worker for dead, while it was busy."""
        for exchange, binding in self._bound:
            if binding[2] in self._active_queues:
                self.connection.bindings.add(exchange, binding)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **kwargs: Any
    ) -> None:
        self.state.binding_delete(queue, exchange, routing_key)
        self.connection.bindings.remove(exchange or "", queue)

    def get_table(self, exchange: str) -> list[Binding]:
        return self.connection.bindings.table(exchange)  # type: ignore[no-any-return]  # kombu has no types

    # -- publish

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        headers, properties = message.get("headers") or {}, message.get("properties") or {}
        task = headers.get("task")
        self.store.publish(
            queue_name(queue),
            dumps(message).encode(),
            content_type=_JSON,
            type=task if isinstance(task, str) and _TYPE.match(task) else None,
            priority=self._get_message_priority(message),
            run_at=_due(headers),
            correlation_id=_short(headers.get("root_id") or properties.get("correlation_id")),
        )

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        for _, _, queue in list(self.get_table(exchange)):
            if not self.connection.bindings.drop_abandoned(exchange, queue):
                self._put(queue, message)

    # -- consume

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[..., Any], consumer_tag: str, **kwargs: Any
    ) -> None:
        if no_ack:
            self.no_ack.add(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)

    def basic_cancel(self, consumer_tag: str) -> None:
        self.no_ack.discard(self._tag_to_queue.get(consumer_tag, ""))
        super().basic_cancel(consumer_tag)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        leases = self.store.claim(queue_name(queue), worker=self.connection.worker, lease=self.connection.lease)
        if not leases:
            return None
        try:
            message = self.Message(self.taken(leases[0], no_ack), channel=self)
        except Empty:
            return None
        if not no_ack:
            self.qos.append(message, message.delivery_tag)
        return message

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        leases = self.store.claim(queue_name(queue), worker=self.connection.worker, lease=self.connection.lease)
        if not leases:
            raise Empty
        return self.taken(leases[0], queue in self.no_ack)

    def taken(self, lease: tampu.Lease, no_ack: bool) -> dict[str, Any]:
        """The message of a lease, as kombu has it."""
        message = _read(lease.message.raw)
        if message is None:
            log.error("message %s of queue %s is not one of Celery: it is dead now", lease.id, lease.queue)
            self.store.reject(lease, "decode_failed", "not a message of Celery")
            raise Empty
        if lease.attempt > 1:
            message["redelivered"] = True
            message.setdefault("properties", {}).setdefault("delivery_info", {})["redelivered"] = True
        message["properties"]["delivery_tag"] = lease.receipt
        if no_ack:
            self.store.ack(lease)
        else:
            self.connection.keeper.add(lease.receipt)
        return message

    @property
    def consumed(self) -> list[str]:
        """The queues that its consumers read."""
        return list(self._active_queues)

    def room(self) -> int:
        """How many messages its consumers may take now."""
        if not self._active_queues or not self.qos.can_consume():
            return 0
        most = self.qos.can_consume_max_estimate()
        return _MOST_CLAIMED if most is None else min(most, _MOST_CLAIMED)

    # -- settle

    def settle(self, receipt: str, settlement: Any) -> None:
        """End a lease. One that was lost is delivered again: Celery's promise is at least once."""
        self.connection.keeper.drop(receipt)
        (outcome,) = self.store.settle([settlement])
        if outcome.error is not None and not isinstance(outcome.error, tampu.LeaseLost):
            raise outcome.error

    def give_back(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            self.connection.keeper.drop(receipt)
        if receipts:
            with contextlib.suppress(tampu.TampuError):  # their leases end by themselves
                self.store.settle([tampu.Release(receipt) for receipt in receipts])


class Transport(virtual.Transport):  # type: ignore[misc]  # kombu has no types
    Channel = Channel
    driver_type = "tampu"
    driver_name = "tampu"
    can_parse_url = True
    connection_errors = (*virtual.Transport.connection_errors, tampu.StorageError, OSError)
    channel_errors = (*virtual.Transport.channel_errors, tampu.InvalidMessage)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options = client.transport_options
        self.lease = float(options.get("lease", options.get("visibility_timeout", _LEASE)))
        self.max_attempts = int(options.get("max_attempts", _MAX_ATTEMPTS))
        self.worker = f"celery-{socket.gethostname()[:60]}"
        self.url = str(client.hostname)
        self._room = threading.Condition()
        self._turn = 0
        self._bound_at = time.monotonic()
        self._store: tampu.Store | None = None
        self._keeper: LeaseKeeper | None = None
        self._bindings: Bindings | None = None

    @property
    def store(self) -> tampu.Store:
        if self._store is None:
            self._store = stores.acquire(self.url)
        return self._store

    @property
    def keeper(self) -> LeaseKeeper:
        if self._keeper is None:
            self._keeper = LeaseKeeper(self.store, self.lease)
        return self._keeper

    @property
    def bindings(self) -> Bindings:
        if self._bindings is None:
            self._bindings = Bindings(self.store)
        return self._bindings

    def driver_version(self) -> str:
        return tampu.__version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        return uri if include_password else str(maybe_sanitize_url(uri, mask))

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        if self._store is not None:
            self._store = self._bindings = None
            stores.release(self.url)

    def has_room(self) -> None:
        """A message was acknowledged, so a consumer may take another."""
        with self._room:
            self._room.notify_all()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver messages to consumers. Waits for the first one; raises `socket.timeout` if there was none."""
        if time.monotonic() - self._bound_at > _BIND_SECONDS:
            self._bound_at = time.monotonic()
            for channel in list(self.channels):
                channel.bind_again()
        end = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_some(end):
            if end is not None and time.monotonic() >= end:
                raise TimeoutError

    def _deliver_some(self, end: float | None) -> bool:
        rooms = {channel: channel.room() for channel in self.channels if channel.consumed}
        open_channels = {channel: room for channel, room in rooms.items() if room}
        left = _LONGEST_WAIT if end is None else max(0.0, end - time.monotonic())
        full = len(open_channels) < len(rooms)
        if not open_channels:
            with self._room:
                self._room.wait(min(left, _TURN_SECONDS))
            return False
        owners = {queue_name(q): (channel, q) for channel in open_channels for q in channel.consumed}
        names = list(owners)
        self._turn = (self._turn + 1) % len(names)
        names = names[self._turn :] + names[: self._turn]  # the first one named goes first: each has its turn
        limit, wait = min(open_channels.values()), 0.0 if full else left
        leases = self.store.claim(names, limit=limit, wait=wait, lease=self.lease, worker=self.worker)
        waiting = list(leases)
        try:
            while waiting:
                lease = waiting.pop(0)
                channel, queue = owners[lease.queue]
                with contextlib.suppress(Empty):
                    self._deliver(channel.taken(lease, queue in channel.no_ack), queue)
        finally:
            if waiting:  # what a callback has raised must not keep the others
                self.store.settle([tampu.Release(lease) for lease in waiting])
        if not leases and full:
            with self._room:
                self._room.wait(min(left, _TURN_SECONDS))
        return bool(leases)


def _read(raw: bytes) -> dict[str, Any] | None:
    """A message as kombu has written it; None if somebody else has published it."""
    try:
        message = loads(raw.decode())
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("properties"), dict):
        return None
    message.setdefault("body", "")
    message["properties"].setdefault("delivery_info", {})
    return message


def _due(headers: dict[str, Any]) -> datetime | None:
    """When a task with a countdown or an eta is to be delivered."""
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return due if due.tzinfo is not None else None  # a naive one is left to the worker


def _short(text: Any) -> str | None:
    return text[:128] if isinstance(text, str) and text else None
