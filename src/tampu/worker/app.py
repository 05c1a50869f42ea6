"""`tampu.App`: the tasks of a program, and the store their messages are published to."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from tampu import store_factory as opening
from tampu.broker import access
from tampu.broker.async_store import AsyncStore
from tampu.broker.store import Store
from tampu.model.config import Backoff
from tampu.model.errors import InvalidConfig, InvalidState, NotFound
from tampu.model.message import Message
from tampu.model.similar import did_you_mean
from tampu.model.times import Duration
from tampu.worker.periodic import Periodic
from tampu.worker.published import Published
from tampu.worker.retry_policy import Decide, Errors
from tampu.worker.tasks import AsyncTask, Middleware, SyncTask, Task, TaskMessage, TaskOptions, overriding
from tampu.worker.transactions import AsyncTaskTransaction, TaskTransaction, by_queue, published

P = ParamSpec("P")
R = TypeVar("R")
_INTERNAL = frozenset(
    (
        "add",
        "declared",
        "open",
        "opening",
        "private",
        "publishing",
        "receiving",
        "running",
        "token",
        "use",
        "use_store_at",
    )
)
"""Names for the other modules of tampu. Those of a user are in docs/reference/library.md."""


class App(Periodic):
    """Register functions with `task`, publish calls to them, and run a worker: ``tampu work module:app``.

    ``url`` is a url for `tampu.open`, or an open `Store`. The store is opened on first use, once per process.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store | None = None,
        *,
        tenant: str = "default",
        token: str | None = None,
        middleware: Sequence[Middleware] = (),
        **options: Any,
    ) -> None:
        self._given = url if isinstance(url, Store) else None
        self.url = None if isinstance(url, Store) else url
        self.tenant = url.tenant if isinstance(url, Store) else tenant
        self.token = token
        self._options = options
        self.middleware = list(middleware)
        self.publishing = overriding(self.middleware, "publish")
        self.receiving = overriding(self.middleware, "receive")[::-1]  # undo in reverse order
        self.running = overriding(self.middleware, "run")
        super().__init__()
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._lock = threading.Lock()
        self._opened: tuple[int, Store] | None = None
        self._async: tuple[Store, AsyncStore] | None = None
        self._store_unreachable = False

    # -- the store

    def open(self, **more: Any) -> Store:
        """Open the app's store once more; the caller closes it."""
        if self._given is not None:
            raise InvalidConfig("this app was created with an open store", field="url", hint="create it with a url")
        if self._store_unreachable:
            raise InvalidState(
                "the store is in the memory of the worker; a child process cannot open it",
                hint="use a file or a server as store, or run the task without execution='process'",
            )
        given = {**self._options, **more}
        if self.token is not None:
            given["token"] = self.token
        return opening.open(self.url, tenant=self.tenant, **given)

    def opening(self) -> dict[str, Any]:
        """The url and options with which another process opens the same store."""
        options = {**self._options, "tenant": self.tenant}
        if self.token is not None:
            options["token"] = self.token
        return {"url": None if self.url is None else os.fspath(self.url), "options": options}

    def use_store_at(self, url: str | None, tenant: str, token: str | None = None) -> None:
        """In a child process: use the store of the worker."""
        self._store_unreachable = str(url).startswith("memory:")
        self.url, self.tenant, self.token = url, tenant, token

    @property
    def private(self) -> bool:
        """True if no other process can open this app's store."""
        return self._given is not None or str(self.url).startswith("memory:") or bool(self._options.get("clock"))

    @property
    def store(self) -> Store:
        """The store; opened on first use, and again after a fork."""
        if self._given is not None:
            return self._given
        opened = self._opened
        if opened is not None and opened[0] == os.getpid():
            return opened[1]
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = (os.getpid(), self.open())
            return self._opened[1]

    @property
    def store_async(self) -> AsyncStore:
        """The same store, for async code."""
        store, made = self.store, self._async
        if made is None or made[0] is not store:
            # One object for all callers, so that it knows which asyncio tasks are inside a transaction.
            made = self._async = (store, access.awaitable(store))
        return made[1]

    def use(self, store: Store | None) -> Store | None:
        """For tests: use this open store, or the app's own if None. Returns the store given before."""
        before, self._given = self._given, store
        return before

    def close(self) -> None:
        """Close the store, if it was opened here."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- tasks

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]  # the narrower one is first
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        backoff: Backoff | Sequence[Duration] | str | Duration | None = None,
        execution: str = "auto",
        retry_on: Errors | Decide | None = None,
        dead_on: Errors | None = None,
    ) -> Decorator: ...
    def task(  # type: ignore[misc]  # signature 3 is called without a function
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        backoff: Any = None,
        execution: str = "auto",
        retry_on: Errors | Decide | None = None,
        dead_on: Errors | None = None,
    ) -> Any:
        """Make a function a task. ``name`` is the type of its messages; the default is the name of the function.

        ``max_attempts`` and ``backoff`` default to the queue's settings. ``timeout`` limits one attempt. ``execution``
        is ``auto`` (async functions on the event loop, others in threads) or ``process`` (a child that can be killed).

        Every exception is retried, or only those of the classes ``retry_on``, or all but those of ``dead_on``: with
        another one the message is dead at once. ``retry_on`` may be a function of (exception, number of the attempt):
        True retries, a duration retries after it, False or None does not.
        """
        options = TaskOptions.of(queue, max_attempts, timeout, backoff, execution, retry_on, dead_on)
        known = sys._getframe(1).f_locals  # annotations may use names that are local to the caller

        def register(function: Any) -> Any:
            kind: Any = AsyncTask if _is_async(function) else SyncTask
            made = kind(self, function, name or function.__name__, options, known)
            return self.add(made)

        return register if function is None else register(function)

    def add(self, task: Task[P, R]) -> Task[P, R]:
        """Register a task that was not made by `task`."""
        if task.name in self.tasks:
            raise InvalidConfig(
                f"a task named {task.name} already exists", field="name", hint="set name= for one of them"
            )
        self.tasks[task.name] = task
        return task

    @property
    def queues(self) -> list[str]:
        """The queues of the tasks, without repeats."""
        return list(dict.fromkeys(task.settings.queue for task in self.tasks.values())) or ["default"]

    def find(self, id: str) -> Published[Any]:
        """A published task by the id of its message. Raises `NotFound`, also if it is not of a task of this app."""
        return self._found(self.store.get(id))

    async def find_async(self, id: str) -> Published[Any]:
        return self._found(await self.store_async.get(id))

    def _found(self, message: Message) -> Published[Any]:
        task = self.tasks.get(message.type)
        if task is None:
            like = did_you_mean(message.type, self.tasks)
            raise NotFound(
                f"this app has no task named {message.type}{like}", field="type", hint="read it with app.store.get"
            )
        return Published(task, message)

    def __dir__(self) -> list[str]:
        return sorted(name for name in super().__dir__() if not name.startswith("_") and name not in _INTERNAL)

    # -- publishing

    def publish(self, message: TaskMessage[R]) -> Published[R]:
        return self.publish_many([message])[0]

    def publish_many(self, messages: Iterable[TaskMessage[R]]) -> list[Published[R]]:
        """Publish many calls. All calls to one queue are one commit, all or none."""
        given = list(messages)
        return published(
            given, {queue: self.store.publish_many(queue, news) for queue, news in by_queue(given).items()}
        )

    async def publish_async(self, message: TaskMessage[R]) -> Published[R]:
        return (await self.publish_many_async([message]))[0]

    async def publish_many_async(self, messages: Iterable[TaskMessage[R]]) -> list[Published[R]]:
        given, store = list(messages), self.store_async
        return published(
            given, {queue: await store.publish_many(queue, news) for queue, news in by_queue(given).items()}
        )

    # -- in one transaction with other writes

    @contextlib.contextmanager
    def transaction(self, connection: Any = None) -> Iterator[TaskTransaction]:
        """Publish tasks, and ack the running one, in one transaction with your own writes: all or nothing.

        Like `Store.transaction`, it needs a SQL store.
        """
        with self.store.transaction(connection) as tx:
            yield TaskTransaction(tx)

    @contextlib.asynccontextmanager
    async def transaction_async(self, connection: Any = None) -> AsyncIterator[AsyncTaskTransaction]:
        """`transaction` for async tasks. Its calls are awaited and run in a thread of their own."""
        async with self.store_async.transaction(connection) as tx:
            yield AsyncTaskTransaction(tx)


class Decorator:
    """Return type of `App.task` when it is called with options; only for type checkers."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]  # the narrower one is first
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        raise NotImplementedError


def _is_async(function: Any) -> bool:
    import inspect

    if not callable(function):
        raise InvalidConfig("a task must be a function", field="task", hint="use @app.task or @app.task(queue=…)")
    return inspect.iscoroutinefunction(function)
