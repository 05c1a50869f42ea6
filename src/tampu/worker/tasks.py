"""A task: a function that handles the messages of one type, and the ways to publish such messages. And middleware:
code that runs around publishing and running of every task, such as metrics, tracing or compression."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast

import msgspec

from tampu.broker import validate
from tampu.model.config import Backoff, checked_backoff
from tampu.model.errors import InvalidConfig
from tampu.model.message import JSON, Encoded, Message, NewMessage
from tampu.model.similar import did_you_mean
from tampu.model.times import SECOND, Duration, duration
from tampu.worker.arguments import Arguments
from tampu.worker.published import Published
from tampu.worker.retry_policy import Errors, RetryPolicy

if TYPE_CHECKING:
    from tampu.worker.app import App
    from tampu.worker.current import Current

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Execution = Literal["auto", "process"]
_NOTHING = contextlib.nullcontext()


class PublishOptions(TypedDict, total=False):
    """What `Task.options` takes: another queue, and fields of the message."""

    queue: str
    priority: int
    delay: Duration | None
    run_at: datetime | None
    ttl: Duration | None
    deadline: datetime | None
    key: str | None
    idempotency_key: str | None
    labels: dict[str, str] | None
    headers: dict[str, str] | None
    max_attempts: int | None
    correlation_id: str | None
    causation_id: str | None
    parent_id: str | None
    group: str | None
    source: str | None
    hold: str | None
    id: str | None
    review: str | dict[str, Any] | None


_FIELDS = frozenset(PublishOptions.__annotations__)
_ELSEWHERE = {
    "delay": "publish(…)",
    "apply_async": "options(delay=60, queue=…).publish(…)",
    "apply": "publish(…)",
    "send": "publish(…)",
    "send_with_options": "options(delay=60, queue=…).publish(…)",
    "enqueue": "publish(…)",
    "kiq": "publish(…)",
    "defer": "publish(…)",
    "schedule": "options(run_at=…).publish(…), or @app.cron",
    "s": "message(…)",
    "si": "message(…)",
    "signature": "message(…)",
}
"""What other task queues call it."""


class TaskOptions(msgspec.Struct, frozen=True):
    """How a task is published and run."""

    queue: str = "default"
    max_attempts: int | None = None
    timeout: float | None = None
    """Seconds."""
    backoff: Backoff | None = None
    execution: Execution = "auto"
    retry: RetryPolicy | None = None
    """None: every error is retried."""

    @classmethod
    def of(
        cls,
        queue: str,
        max_attempts: int | None,
        timeout: Duration | None,
        backoff: Any,
        execution: str,
        retry_on: Any,
        dead_on: Errors | None,
    ) -> TaskOptions:
        if execution not in ("auto", "process"):
            raise InvalidConfig(
                f"execution must be auto or process, not {execution!r}", field="execution",
                hint="auto runs async functions on the event loop, and others in threads",
            )  # fmt: skip
        return cls(
            validate.name(queue, "queue"),
            None if max_attempts is None else validate.whole(max_attempts, "max_attempts", 1, 1000),
            None if timeout is None else duration(timeout, "timeout", zero=False, error=InvalidConfig) / SECOND,
            None if backoff is None else checked_backoff(backoff),
            cast(Execution, execution),
            RetryPolicy.of(retry_on, dead_on),
        )


class TaskMessage(msgspec.Struct, Generic[R_co], frozen=True, gc=False):
    """A call of a task that is not published yet: for `App.publish_many`, a transaction or a schedule."""

    task: Any
    queue: str
    new: NewMessage
    simple: bool = False
    """True if only the task and its arguments are set."""

    @property
    def stored(self) -> NewMessage | Encoded:
        """As it is published. Most are simple, which costs a third."""
        return Encoded(self.new.payload, self.new.content_type or JSON, self.task.name) if self.simple else self.new


class Task(Generic[P, R]):
    """A function and the type name of its messages. Calling it calls the function directly."""

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        name: str,
        options: TaskOptions,
        known: Mapping[str, Any],
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self.app = app
        self.function = function
        self.name = validate.type_name(name)
        self.settings = options
        self.module: str = function.__module__
        self.is_async = inspect.iscoroutinefunction(function)
        self._known = known
        self._fields = dict(fields or {})
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # P is the function's, as it should be

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    @functools.cached_property
    def arguments(self) -> Arguments:
        # Read when first needed: annotations may name what is defined further down.
        return Arguments(self.function, self._known)

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> NoReturn:
            instead = _ELSEWHERE.get(name)
            if instead is not None:
                raise AttributeError(f"a task has no {name}; use .{instead}", name=name, obj=self)
            raise AttributeError(f"a task has no attribute {name}", name=name, obj=self)

    def options(self, **options: Unpack[PublishOptions]) -> Self:
        """The same task, published with other message fields (`delay`, `priority`, `key` …) or to another queue."""
        fields: dict[str, Any] = dict(options)
        for unknown in fields.keys() - _FIELDS:
            raise InvalidConfig(
                f"unknown option: {unknown}{did_you_mean(unknown, _FIELDS)}", field=unknown,
                hint=f"options are {', '.join(sorted(_FIELDS))}",
            )  # fmt: skip
        settings = self.settings
        if "queue" in fields:
            settings = msgspec.structs.replace(settings, queue=validate.name(fields.pop("queue"), "queue"))
        changed = type(self)(self.app, self.function, self.name, settings, self._known, {**self._fields, **fields})
        if "arguments" in self.__dict__:
            changed.__dict__["arguments"] = self.arguments
        return changed

    def message(self, *args: P.args, **kwargs: P.kwargs) -> TaskMessage[R]:
        """A call to publish later or with others. Raises `InvalidMessage` if the arguments do not fit."""
        fields = self._fields
        if self.settings.max_attempts is not None and "max_attempts" not in fields:
            fields = {**fields, "max_attempts": self.settings.max_attempts}
        payload, content_type = self.arguments.pack(args, kwargs)
        new = NewMessage(payload, type=self.name, content_type=content_type, **fields)
        for one in self.app.publishing:
            new = one.publish(new, self)
        return TaskMessage(self, self.settings.queue, new, not fields and not self.app.publishing)

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> Published[R]:
        """Have a worker call the function with these arguments. Returns when the message is stored."""
        return self.app.publish(self.message(*args, **kwargs))

    async def publish_async(self, *args: P.args, **kwargs: P.kwargs) -> Published[R]:
        return await self.app.publish_async(self.message(*args, **kwargs))


class SyncTask(Task[P, R]):
    """A task of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.function(*args, **kwargs))


class AsyncTask(Task[P, R]):
    """A task of an async function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return cast(Coroutine[Any, Any, R], self.function(*args, **kwargs))


class Middleware:
    """Override the methods you need. The first in an app's list is the outermost."""

    def publish(self, new: NewMessage, task: Task[Any, Any]) -> NewMessage:  # noqa: ARG002 - for those who override it
        """Return the message to store. Exceptions go to the publisher."""
        return new

    def receive(self, message: Message) -> Message:
        """Return the message for the task: undo what `publish` did. An exception dead-letters the message."""
        return message

    def run(self, current: Current) -> contextlib.AbstractContextManager[Any]:  # noqa: ARG002 - for those who override it
        """A context manager around the task; it sees what the task raises. Runs in the same thread or child process."""
        return _NOTHING


def overriding(middleware: list[Middleware], name: str) -> list[Middleware]:
    """The middleware that overrides this method, so that a task pays only for these."""
    return [one for one in middleware if getattr(type(one), name) is not getattr(Middleware, name)]
