"""celery: sent over one producer, JSON, no results; one worker with the solo pool (the fastest here)."""

import os

import celery
from counting import COUNT, PAYLOAD, URL, Timer, jobs, tell

app = celery.Celery("bench", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=False,
    worker_prefetch_multiplier=1000,
    broker_connection_retry_on_startup=True,
    worker_send_task_events=False,
    worker_redirect_stdouts=False,
)


@app.task
def nothing(payload: str) -> None:
    jobs.one()


with app.producer_pool.acquire(block=True) as producer, Timer() as fill:
    for _ in range(COUNT):
        nothing.apply_async((PAYLOAD,), producer=producer)
worker = app.Worker(
    pool="solo", concurrency=1, loglevel="ERROR", without_gossip=True, without_mingle=True, without_heartbeat=True
)


def finish() -> None:
    """A stopping worker ends the process, so print the result first."""
    tell(fill)
    os._exit(0)


jobs.when_done = finish
worker.start()
