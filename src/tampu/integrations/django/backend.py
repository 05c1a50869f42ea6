"""The backend: enqueues tasks as messages, and reads their results from messages.

All tasks are messages of one type, with the path of the function in the payload. `tampu.integrations.django.worker` has
the other half.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

import tampu
from tampu.integrations.django.compat import (
    BaseTaskBackend,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from tampu.integrations.django.databases import url_of

TYPE = "django.task"
"""The type of all messages."""
_OPTIONS = {"url", "database", "max_attempts", "retry"}
_MAX_ATTEMPTS = 5
_STATUS = {
    tampu.State.LEASED: TaskResultStatus.RUNNING,
    tampu.State.DONE: TaskResultStatus.SUCCESSFUL,
    tampu.State.DEAD: TaskResultStatus.FAILED,
    tampu.State.CANCELLED: TaskResultStatus.FAILED,
    tampu.State.EXPIRED: TaskResultStatus.FAILED,
}


class Shared(NamedTuple):
    app: tampu.App
    prepared: set[str]
    """Queues whose settings were looked at; empty until the store is open."""


_lock = threading.Lock()
_shared: dict[str, Shared] = {}
"""By url."""


def close_all() -> None:
    """Close the stores of all backends, as after a test."""
    with _lock:
        known = list(_shared.values())
        _shared.clear()
    for each in known:
        each.app.close()


class TampuBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """OPTIONS: ``url`` (default: the database), ``database`` (an alias), ``max_attempts``, and ``retry``.

    With ``retry`` a task that raises is tried again, ``max_attempts`` times in all. Without it, which is how Django's
    tasks are, it has failed; only a task whose worker was killed is tried again.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        unknown = self.options.keys() - _OPTIONS
        if unknown:
            hint = f"there are {', '.join(sorted(_OPTIONS))}"
            raise tampu.InvalidConfig(f"unknown option: {sorted(unknown)[0]}", field="OPTIONS", hint=hint)
        self.database: str = self.options.get("database", "default")
        self.max_attempts: int = self.options.get("max_attempts", _MAX_ATTEMPTS)
        self.retry: bool = self.options.get("retry", False)
        self.shares_database = "url" not in self.options

    @property
    def url(self) -> str:
        given = self.options.get("url")
        return url_of(connections[self.database].settings_dict) if given is None else str(given)

    @property
    def shared(self) -> Shared:
        """What the backends of all threads share: Django makes one for each thread."""
        with _lock:
            known = _shared.get(self.url)
            if known is None:
                adopt = self.shares_database and self.url.startswith("sqlite:")
                made = tampu.App(self.url, adopt=True) if adopt else tampu.App(self.url)
                known = _shared[self.url] = Shared(made, set())
            return known

    @property
    def app(self) -> tampu.App:
        """The application that publishes, and that a worker runs. Its store is opened on first use."""
        return self.shared.app

    @property
    def store(self) -> tampu.Store:
        shared = self.shared
        store = shared.app.store
        for name in self.queues - shared.prepared:
            if store.queues.get(name, inherited=False).ordering is None:
                store.queues.put(name, ordering="priority")
            shared.prepared.add(name)
        return store

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Publish the task. Inside of a transaction it is published with it, and not at all if that is rolled back."""
        self.validate_task(task)
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        message = tampu.NewMessage(
            {"task": task.module_path, "args": args, "kwargs": kwargs},
            type=TYPE,
            id=str(uuid.uuid4()),
            priority=task.priority,
            run_at=task.run_after,
            max_attempts=self.max_attempts,
            labels={"task": task.module_path[:200]},
        )
        self._publish(task.queue_name, message)
        result = TaskResult(
            task=task, id=str(message.id), status=TaskResultStatus.READY, enqueued_at=timezone.now(), started_at=None,
            last_attempted_at=None, finished_at=None, args=args, kwargs=kwargs, backend=self.alias, errors=[],
            worker_ids=[],
        )  # fmt: skip
        task_enqueued.send(type(self), task_result=result)
        return result

    def _publish(self, queue: str, message: tampu.NewMessage) -> None:
        connection = connections[self.database]
        if not connection.in_atomic_block:
            self.store.publish_many(queue, [message])
        elif self.shares_database and (self.shared.prepared or connection.vendor != "sqlite"):
            with self.store.transaction(connection.connection) as tx:
                tx.publish_many(queue, [message])
        else:  # a store that is not open yet cannot be opened while a transaction has locked the file
            transaction.on_commit(lambda: self.store.publish_many(queue, [message]), using=self.database)

    def get_result(self, result_id: str) -> TaskResult:
        try:
            message = self.store.get(result_id)
        except (tampu.NotFound, tampu.InvalidMessage):
            raise TaskResultDoesNotExist(result_id) from None
        if message.type != TYPE:
            raise TaskResultDoesNotExist(result_id)
        return self.result_of(message)

    def result_of(self, message: tampu.Message) -> TaskResult:
        """The result as Django has it. Its times and workers are those of the attempts that the message remembers."""
        payload = message.payload
        status = _STATUS.get(message.state, TaskResultStatus.READY)
        failures = message.failures
        started = failures[0].at if failures else message.started_at
        workers = [failure.worker or "" for failure in failures]
        if message.worker is not None:
            workers.append(message.worker)
        result = TaskResult(
            task=self.task(payload["task"], message), id=message.id, status=status, enqueued_at=message.created_at,
            started_at=started, last_attempted_at=message.started_at or (failures[-1].at if failures else None),
            finished_at=message.ended_at, args=payload["args"], kwargs=payload["kwargs"], backend=self.alias,
            errors=[TaskError(exception_class_path=_class_of(f.traceback), traceback=_trace_of(f)) for f in failures],
            worker_ids=workers,
        )  # fmt: skip
        if status == TaskResultStatus.SUCCESSFUL:
            object.__setattr__(result, "_return_value", message.result)
        return result

    def task(self, path: str, message: tampu.Message) -> Task:
        """The task of a message, with what it was enqueued with."""
        found = import_string(path)
        if not isinstance(found, Task):
            raise tampu.InvalidMessage(f"{path} is no task", hint="was it renamed since it was enqueued?")
        return found.using(priority=message.priority, queue_name=message.queue, backend=self.alias)


def _trace_of(failure: tampu.Failure) -> str:
    return failure.traceback or failure.error or failure.outcome


def _class_of(trace: str | None) -> str:
    """The path of the class of the exception, from the last line of its traceback."""
    lines = (trace or "").strip().splitlines()
    name = lines[-1].partition(":")[0].strip() if lines else "Exception"
    return name if "." in name else f"builtins.{name}"
