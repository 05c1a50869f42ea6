"""Like `asyncio.run`, but ends even if tasks do not.

`asyncio.run` waits for tasks that swallow their cancellation, and for threads that they started. A worker has released
their messages by then and must exit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")
_LAST_SECONDS = 1.0


def run(main: Coroutine[Any, Any, R], factory: Callable[[], asyncio.AbstractEventLoop] | None) -> R:
    runner = asyncio.Runner(loop_factory=factory)
    loop = runner.get_loop()
    try:
        return runner.run(main)
    finally:
        try:
            loop.run_until_complete(_cancel_all(loop))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, still_running = await asyncio.wait(tasks, timeout=_LAST_SECONDS)
        for task in still_running:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # the worker has logged it already
    await loop.shutdown_asyncgens()
