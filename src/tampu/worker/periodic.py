"""Scheduled tasks: ``@app.cron`` and ``@app.every``. A worker stores these schedules when it starts.

It never removes a schedule: another version of the program, or another program, may still need it. A worker logs a
warning if a schedule publishes to a task that it does not know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import msgspec

from tampu.broker import validate
from tampu.broker.schedules import times
from tampu.model.errors import InvalidConfig
from tampu.model.schedule import Schedule
from tampu.model.similar import did_you_mean
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


class ScheduleTerms(TypedDict, total=False):
    """Options of every schedule, as in `Store.schedules`."""

    start: datetime | None
    end: datetime | None
    limit: int | None
    jitter: Duration
    missed: str
    paused: bool | None


class ScheduleTimes(ScheduleTerms, total=False):
    """When a schedule fires: by ``cron`` or ``every``."""

    cron: str | None
    every: Duration | None
    tz: str


_TERMS = frozenset(ScheduleTerms.__annotations__)


class Declared(msgspec.Struct, frozen=True):
    """A schedule as a program declares it."""

    task: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    terms: Mapping[str, Any]


class Periodic:
    """The part of `App` that deals with schedules."""

    tasks: dict[str, Task[Any, Any]]

    def __init__(self) -> None:
        self.declared: dict[str, Declared] = {}
        """By schedule name."""

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
        **terms: Unpack[ScheduleTerms],
    ) -> Callable[[T], T]:
        """Run the task by a cron expression: ``@app.cron("*/5 * * * *", tz="Europe/Rome")`` above ``@app.task``.

        ``name`` is the name of the schedule; the default is the task's. The task is called with ``args`` and
        ``kwargs``. ``start end limit jitter missed`` are those of `Store.schedules`. Wrong times are refused here, not
        when a worker starts.
        """
        return self._declare(name, args, kwargs or {}, {"cron": expression, "tz": tz, **terms})

    def every(
        self,
        interval: Duration,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **terms: Unpack[ScheduleTerms],
    ) -> Callable[[T], T]:
        """Run the task at an interval: ``@app.every("5m")`` above ``@app.task``."""
        return self._declare(name, args, kwargs or {}, {"every": interval, **terms})

    def _declare(
        self, name: str | None, args: Sequence[Any], kwargs: Mapping[str, Any], terms: Mapping[str, Any]
    ) -> Callable[[T], T]:
        from tampu.worker.tasks import Task

        for unknown in terms.keys() - _TERMS - {"cron", "every", "tz"}:
            hint = f"options are {', '.join(sorted(_TERMS))}; fields of the message are for task.options"
            raise InvalidConfig(
                f"a schedule has no option {unknown}{did_you_mean(unknown, _TERMS)}", field=unknown, hint=hint
            )
        times.checked(**terms)

        def declare(task: T) -> T:
            if not isinstance(task, Task):
                raise InvalidConfig("only a task can be scheduled", field="task", hint="put it above @app.task")
            schedule_name = validate.name(name or task.name, "schedule")
            if schedule_name in self.declared:
                raise InvalidConfig(
                    f"a schedule named {schedule_name} already exists", field="name", hint="set name= for one of them"
                )
            self.declared[schedule_name] = Declared(task, args, kwargs, terms)
            return task

        return declare

    def schedule(self, name: str, message: TaskMessage[Any], **terms: Unpack[ScheduleTimes]) -> Schedule:
        """Schedule a call: ``app.schedule("nightly", report.message("sales"), cron="0 3 * * *")``."""
        new = message.new
        fields = {field: getattr(new, field) for field in _FIELDS}
        return self.store.schedules.put(name, queue=message.queue, payload=new.payload, **fields, **terms)

    def put_schedules(self) -> list[Schedule]:
        """Store all declared schedules; a worker does so when it starts. Paused schedules stay paused."""
        made = []
        for name, declared in self.declared.items():
            made.append(self.schedule(name, declared.task.message(*declared.args, **declared.kwargs), **declared.terms))
        if self.declared:
            self._warn_of_unknown_tasks()
        return made

    def _warn_of_unknown_tasks(self) -> None:
        queues = {task.settings.queue for task in self.tasks.values()}
        for found in self.store.schedules.list():
            kind = found.message.type
            if found.queue in queues and kind not in self.tasks:
                log.warning(
                    "schedule %s publishes %s, which is not a task of this app; if it is not needed any more: "
                    "tampu schedule remove %s", found.name, kind, found.name,
                )  # fmt: skip
