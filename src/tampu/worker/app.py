"""`tampu.App`: the tasks of a program, and the store they travel through."""

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
from tampu.model.errors import InvalidConfig, InvalidState
from tampu.model.times import Duration
from tampu.worker.middleware import Middleware, overriding
from tampu.worker.periodic import Periodic
from tampu.worker.tasks import AsyncTask, Published, SyncTask, Task, TaskMessage, TaskOptions
from tampu.worker.transactions import AsyncTaskTransaction, TaskTransaction, by_queue

P = ParamSpec("P")
R = TypeVar("R")


class App(Periodic):
    """Register functions with `task`, publish calls of them, and run a worker: ``tampu work module:app``.

    ``url`` is what `tampu.open` takes, or an open `Store`. The store is opened when it is first needed, once in each
    process.
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
        self._token = token
        self._options = options
        self.middleware = list(middleware)
        self.publishing = overriding(self.middleware, "publish")
        self.receiving = overriding(self.middleware, "receive")[::-1]  # what was done last is undone first
        self.running = overriding(self.middleware, "run")
        super().__init__()
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._lock = threading.Lock()
        self._opened: tuple[int, Store] | None = None
        self._async: tuple[Store, AsyncStore] | None = None
        self._out_of_reach = False

    # -- the store

    def open(self, **more: Any) -> Store:
        """A queue of its own on the app's store."""
        if self._given is not None:
            raise InvalidConfig("this app was given an open queue", field="url", hint="give it a url")
        if self._out_of_reach:
            raise InvalidState(
                "a child process can not open the store of its worker, which is in its memory",
                hint="give the app a file or a server, or run the task without execution='process'",
            )
        given = {**self._options, **more}
        if self._token is not None:
            given["token"] = self._token
        return opening.open(self.url, tenant=self.tenant, **given)

    def opening(self) -> dict[str, Any]:
        """What another process needs to open the same store."""
        options = {**self._options, "tenant": self.tenant}
        if self._token is not None:
            options["token"] = self._token
        return {"url": None if self.url is None else os.fspath(self.url), "options": options}

    def live_at(self, url: str | None, tenant: str) -> None:
        """In a child process: the store is the one that its worker was told to work on."""
        self._out_of_reach = str(url).startswith("memory:")
        self.url, self.tenant = url, tenant

    @property
    def private(self) -> bool:
        """No other process can open the store as this app does."""
        return self._given is not None or str(self.url).startswith("memory:") or bool(self._options.get("clock"))

    @property
    def store(self) -> Store:
        """The store; opened by the first who asks, and again after a fork."""
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
    def queue_async(self) -> AsyncStore:
        """The same store, for tasks of an event loop."""
        store, made = self.store, self._async
        if made is None or made[0] is not store:
            # One for all, so that it knows which tasks are inside a transaction.
            made = self._async = (store, access.awaitable(store))
        return made[1]

    def use(self, store: Store | None) -> Store | None:
        """For tests: work on this open store, or with None on the app's own; answers with what was used before."""
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
    ) -> Any:
        """Make a function a task. Its name, which messages carry as their type, is the function's if not given.

        ``max_attempts`` and ``backoff`` are the queue's if not given. ``timeout`` ends an attempt. ``execution`` is
        ``auto`` (async functions on the event loop, others in threads) or ``process``, in a child that can be killed.
        """
        options = TaskOptions.of(queue, max_attempts, timeout, backoff, execution)
        known = sys._getframe(1).f_locals  # annotations may name what is local where the task is made

        def register(function: Any) -> Any:
            kind: Any = AsyncTask if _is_async(function) else SyncTask
            made = kind(self, function, name or function.__name__, options, known)
            return self.add(made)

        return register if function is None else register(function)

    def add(self, task: Task[P, R]) -> Task[P, R]:
        """Register a task that was made otherwise."""
        if task.name in self.tasks:
            raise InvalidConfig(f"there is a task named {task.name} already", field="name", hint="give one a name=…")
        self.tasks[task.name] = task
        return task

    @property
    def queues(self) -> list[str]:
        """The queues of the tasks, each once."""
        return list(dict.fromkeys(task.settings.queue for task in self.tasks.values())) or ["default"]

    # -- publishing

    def publish(self, message: TaskMessage[R]) -> Published[R]:
        return self.publish_many([message])[0]

    def publish_many(self, messages: Iterable[TaskMessage[R]]) -> list[Published[R]]:
        """Publish many calls; those of one queue in one commit, all or none."""
        given = list(messages)
        found = {queue: iter(self.store.publish_many(queue, news)) for queue, news in by_queue(given).items()}
        return [Published(one.task, next(found[one.queue])) for one in given]

    async def publish_async(self, message: TaskMessage[R]) -> Published[R]:
        return (await self.publish_many_async([message]))[0]

    async def publish_many_async(self, messages: Iterable[TaskMessage[R]]) -> list[Published[R]]:
        given, store = list(messages), self.queue_async
        found = {queue: iter(await store.publish_many(queue, news)) for queue, news in by_queue(given).items()}
        return [Published(one.task, next(found[one.queue])) for one in given]

    # -- in one transaction with other writes

    @contextlib.contextmanager
    def transaction(self, connection: Any = None) -> Iterator[TaskTransaction]:
        """Publish tasks, and ack the running one, together with your own writes: all of it, or nothing.

        As `Store.transaction`; for SQL stores.
        """
        with self.store.transaction(connection) as tx:
            yield TaskTransaction(tx)

    @contextlib.asynccontextmanager
    async def transaction_async(self, connection: Any = None) -> AsyncIterator[AsyncTaskTransaction]:
        """As `transaction`, for async tasks: what is done inside is awaited, and runs in a thread of its own."""
        async with self.queue_async.transaction(connection) as tx:
            yield AsyncTaskTransaction(tx)


class Decorator:
    """What `App.task` answers with when it is given options; only for types."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]  # the narrower one is first
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        raise NotImplementedError


def _is_async(function: Any) -> bool:
    import inspect

    if not callable(function):
        raise InvalidConfig("a task is made of a function", field="task", hint="@app.task, or @app.task(queue=…)")
    return inspect.iscoroutinefunction(function)
