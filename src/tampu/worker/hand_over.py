"""Hand-over: ack the running message and publish the next ones as one unit, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from tampu.broker import access
from tampu.broker.atomic import Reply, Unit
from tampu.model.message import NewMessage, to_new
from tampu.worker.tasks import TaskMessage

if TYPE_CHECKING:
    from tampu.worker.current import Current


class HandOver:
    """Collects what takes effect together with the ack of the running message. Use it in a ``with`` block.

    What it publishes belongs to the story of the message: it has its correlation id, and the message as its cause.
    """

    def __init__(self, work: Current, result: Any = None) -> None:
        self._work = work
        self._unit = Unit(access.verbs(work.task.app.store))
        self._result = work.task.arguments.pack_result(result)

    @property
    def unit(self) -> Unit:
        """The unit itself, for documents and other leases."""
        return self._unit

    def publish(self, message: TaskMessage[Any] | str, payload: Any = None, **options: Any) -> Reply[Any]:
        """Publish a call of a task, ``publish(send.message(…))``, or a message, ``publish("queue", payload)``."""
        if isinstance(message, TaskMessage):
            return self._unit.publish(message.queue, self._next(message.stored))
        return self._unit.publish(message, self._next(NewMessage(payload, **options)))

    def publish_many(self, messages: Iterable[TaskMessage[Any]]) -> None:
        """Publish many calls of tasks."""
        by_queue: dict[str, list[NewMessage]] = {}
        for one in messages:
            by_queue.setdefault(one.queue, []).append(self._next(one.stored))
        for queue, news in by_queue.items():
            self._unit.publish_many(queue, news)

    def _next(self, stored: Any) -> NewMessage:
        new = to_new(stored)
        work = self._work
        return msgspec.structs.replace(
            new,
            correlation_id=new.correlation_id or work.correlation_id,
            causation_id=new.causation_id or work.id,
        )

    def _finish(self) -> None:
        self._unit.ack(self._work.lease, self._result)
        self._unit.end()
        access.run(self._work.task.app.store, self._unit.steps())

    def __enter__(self) -> HandOver:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._finish()
        self._unit.end()

    async def __aenter__(self) -> HandOver:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await asyncio.to_thread(self._finish)
        self._unit.end()
