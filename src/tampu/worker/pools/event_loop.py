"""An event loop that ends when it is told to, whatever still runs in it.

`asyncio.run` waits for tasks that swallow their cancellation, and for threads that such tasks have started. A worker
has given their messages back by then, and somebody waits for it to be gone.
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
            loop.run_until_complete(_leave(loop))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _leave(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, stubborn = await asyncio.wait(left, timeout=_LAST_SECONDS)
        for task in stubborn:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # the worker has said so already
    await loop.shutdown_asyncgens()
