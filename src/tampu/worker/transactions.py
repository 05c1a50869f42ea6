"""Transactions of tasks: publish other tasks, and ack the running one, in one commit with the task's own writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tampu.broker.async_store import AsyncTransaction
from tampu.broker.store import Transaction
from tampu.model.message import Message
from tampu.worker.current import current
from tampu.worker.published import Published
from tampu.worker.tasks import TaskMessage

R = TypeVar("R")


def by_queue(messages: Sequence[TaskMessage[Any]]) -> dict[str, list[Any]]:
    news: dict[str, list[Any]] = {}
    for one in messages:
        news.setdefault(one.queue, []).append(one.stored)
    return news


def published(given: Sequence[TaskMessage[R]], stored: Mapping[str, Sequence[Message]]) -> list[Published[R]]:
    """Each given call with its message, from the messages that were stored by queue."""
    left = {queue: iter(messages) for queue, messages in stored.items()}
    return [Published(one.task, next(left[one.queue])) for one in given]


class TaskTransaction:
    """Its calls take effect when the block commits."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.execute = tx.execute

    @property
    def connection(self) -> Any:
        """The connection your own writes go through. Do not commit it yourself."""
        return self._tx.connection

    def publish(self, message: TaskMessage[R]) -> Published[R]:
        return self.publish_many([message])[0]

    def publish_many(self, messages: Iterable[TaskMessage[R]]) -> list[Published[R]]:
        given = list(messages)
        return published(given, {queue: self._tx.publish_many(queue, news) for queue, news in by_queue(given).items()})

    def ack(self, result: Any = None) -> None:
        """Ack the running task's message with this commit. The task must return the same result.

        Raises `LeaseLost` if another worker has the message now; then the block must not commit.
        """
        self._tx.ack(current().lease, current().task.arguments.pack_result(result))


class AsyncTaskTransaction:
    """`TaskTransaction` for async tasks."""

    def __init__(self, tx: AsyncTransaction) -> None:
        self._tx = tx

    async def execute(self, sql: str, parameters: Any = ()) -> Any:
        """Run your own SQL in this transaction."""
        return await self._tx.execute(sql, parameters)

    async def publish(self, message: TaskMessage[R]) -> Published[R]:
        return (await self.publish_many([message]))[0]

    async def publish_many(self, messages: Iterable[TaskMessage[R]]) -> list[Published[R]]:
        given = list(messages)
        news = by_queue(given)
        return published(given, {queue: await self._tx.publish_many(queue, part) for queue, part in news.items()})

    async def ack(self, result: Any = None) -> None:
        """As `TaskTransaction.ack`."""
        await self._tx.ack(current().lease, current().task.arguments.pack_result(result))
