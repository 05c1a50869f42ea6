"""Calls the function of a message, with its arguments decoded and the middleware around it."""

from __future__ import annotations

import contextlib
import contextvars
from typing import Any

from tampu import tracing
from tampu.model.outcome import Settlement
from tampu.worker import endings
from tampu.worker.arguments import WrongArguments
from tampu.worker.current import LOST, Current, enter


def arguments(work: Current) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) of the function; raises `WrongArguments` and `AttemptsUsed`."""
    endings.check_attempts(work)
    task = work.task
    if task.app.receiving:
        try:
            for one in task.app.receiving:
                work.message = one.receive(work.message)
        except Exception as error:
            raise WrongArguments(f"{type(error).__name__}: {error}", field="payload") from error
    return task.arguments.unpack(work.message.body.payload, work.message.body.content_type)


def enter_middleware(work: Current) -> contextlib.ExitStack:
    """Enter the middleware, inside a span if tracing is on."""
    with contextlib.ExitStack() as stack:
        if tracing.on():
            stack.enter_context(tracing.process(work.lease))
        for one in work.task.app.running:
            stack.enter_context(one.run(work))
        return stack.pop_all()


def call(work: Current, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function in this thread; an async one in a new event loop."""
    function = work.task.function
    if work.task.is_async:
        import asyncio

        return asyncio.run(function(*args, **kwargs))
    return function(*args, **kwargs)


def _call_with_middleware(work: Current, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if work.task.app.running or tracing.on():
        with enter_middleware(work):
            return call(work, args, kwargs)
    return call(work, args, kwargs)


def run(work: Current) -> Settlement | None:
    """Run the task of one message in this thread."""
    context = contextvars.copy_context()
    context.run(enter, work)
    try:
        args, kwargs = context.run(arguments, work)
    except BaseException as error:
        return endings.not_begun(work, error)
    try:
        value = context.run(_call_with_middleware, work, args, kwargs)
    except BaseException as error:  # also SystemExit: a task that exits must not end the thread
        return endings.raised(work, error)
    return None if work._stop == LOST else endings.returned(work, value)
