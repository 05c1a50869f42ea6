"""rq: enqueued 1000 at a time in a pipeline, results not kept; one worker that does not fork for each job."""

import logging

from counting import PAYLOAD, URL, Timer, chunks, jobs, tell
from redis import Redis
from rq import Queue, SimpleWorker


def nothing(payload: str) -> None:
    jobs.one()


logging.disable(logging.INFO)
connection = Redis.from_url(URL)
queue = Queue("bench", connection=connection)
with Timer() as fill:
    for size in chunks(1000):
        queue.enqueue_many([Queue.prepare_data(nothing, (PAYLOAD,), result_ttl=0) for _ in range(size)])
SimpleWorker([queue], connection=connection).work(burst=True, logging_level="ERROR")
tell(fill)
