"""Tasks by the clock: ``@app.cron`` and ``@app.every``, put in the store when a worker starts.

A declaration is only put, never taken away: another version of the program, or another program, may have it still. A
worker says so when a schedule publishes for a task that it does not know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tampu.broker import validate
from tampu.model.errors import InvalidConfig
from tampu.model.schedule import Schedule
from tampu.model.times import Duration

if TYPE_CHECKING:
    from tampu.broker.store import Store
    from tampu.worker.tasks import Task, TaskMessage

log = logging.getLogger("tampu.worker")
T = TypeVar("T", bound="Task[Any, Any]")
_FIELDS = (
    "type", "priority", "delay", "ttl", "deadline", "key", "labels", "headers", "max_attempts", "correlation_id",
    "causation_id", "parent_id", "group", "source", "content_type", "hold",
)  # fmt: skip


class Declared(msgspec.Struct, frozen=True):
    """A schedule as a program declares it."""

    task: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    terms: Mapping[str, Any]


class Periodic:
    """What an `App` can do by the clock."""

    tasks: dict[str, Task[Any, Any]]

    def __init__(self) -> None:
        self.declared: dict[str, Declared] = {}
        """By the names of their schedules."""

    @property
    def store(self) -> Store:
        raise NotImplementedError

    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **terms: Any,
    ) -> Callable[[T], T]:
        """Call the task below by a cron expression: ``@app.cron("*/5 * * * *", tz="Europe/Rome")`` over ``@app.task``.

        ``name`` is the schedule's, the task's if not given; ``args`` and ``kwargs`` are what the task is called with;
        ``start end limit jitter missed`` are those of `Store.schedules`.
        """
        return self._declaring(name, args, kwargs or {}, {"cron": expression, "tz": tz, **terms})

    def every(
        self,
        interval: Duration,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **terms: Any,
    ) -> Callable[[T], T]:
        """Call the task below every so often: ``@app.every(30)`` over ``@app.task``."""
        return self._declaring(name, args, kwargs or {}, {"every": interval, **terms})

    def _declaring(
        self, name: str | None, args: Sequence[Any], kwargs: Mapping[str, Any], terms: Mapping[str, Any]
    ) -> Callable[[T], T]:
        from tampu.worker.tasks import Task

        def declare(task: T) -> T:
            if not isinstance(task, Task):
                raise InvalidConfig(
                    "only a task can be called by the clock", field="task", hint="put it over @app.task"
                )
            own = validate.name(name or task.name, "schedule")
            if own in self.declared:
                raise InvalidConfig(f"there is a schedule {own} already", field="name", hint="give one a name=…")
            self.declared[own] = Declared(task, args, kwargs, terms)
            return task

        return declare

    def schedule(self, name: str, message: TaskMessage[Any], **terms: Any) -> Schedule:
        """Publish a call by the clock: ``app.schedule("nightly", report.message("sales"), cron="0 3 * * *")``."""
        new = message.new
        fields = {field: getattr(new, field) for field in _FIELDS}
        return self.store.schedules.put(name, queue=message.queue, payload=new.payload, **fields, **terms)

    def put_schedules(self) -> list[Schedule]:
        """Put all that is declared in the store; a worker does it when it starts. What is paused stays paused."""
        made = []
        for name, one in self.declared.items():
            made.append(self.schedule(name, one.task.message(*one.args, **one.kwargs), **one.terms))
        if self.declared:
            self._tell_of_strangers()
        return made

    def _tell_of_strangers(self) -> None:
        queues = {task.settings.queue for task in self.tasks.values()}
        for found in self.store.schedules.list():
            kind = found.message.type
            if found.queue in queues and kind not in self.tasks:
                log.warning(
                    "schedule %s publishes %s, which is no task of this app; if nobody needs it: "
                    "tampu schedule remove %s", found.name, kind, found.name,
                )  # fmt: skip
