"""The app of the workers that `bench.worker` starts as processes."""

from __future__ import annotations

import os
import time

import tampu

app = tampu.App(os.environ.get("TAMPU_URL", "memory://"))


@app.task
async def late(published: float) -> float:
    """Seconds from just before the publish to the start of the task."""
    return time.time() - published


@app.task
async def nothing(payload: str) -> None:
    del payload
