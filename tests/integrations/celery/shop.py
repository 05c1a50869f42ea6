"""An ordinary application of Celery: nothing in it knows of tampu but the two urls."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery("shop", broker_url=os.environ["BROKER"], result_backend=os.environ["BACKEND"])
app.conf.update(
    task_acks_late=True,
    task_track_started=True,
    worker_prefetch_multiplier=2,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"lease": 3},
    result_expires=3600,
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def flaky(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@app.task
def fail() -> None:
    raise ValueError("no such order")


@app.task(acks_on_failure_or_timeout=True)
def note(path: str, text: str, until: str | None = None) -> int:
    """Writes that it began; then waits until a file is there."""
    with Path(path).open("a") as file:
        file.write(f"{text} {os.getpid()}\n")
    while until is not None and not Path(until).exists():
        time.sleep(0.05)  # noqa: TID251 - a task of another process
    return os.getpid()
