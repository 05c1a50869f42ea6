"""The application of `bench.celery_broker`: a task that does nothing."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("bench", broker_url=os.environ.get("BROKER", "memory://"))
app.conf.update(task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=16, task_default_queue="bench")


@app.task
def nothing(_number: int) -> None:
    pass
