"""dramatiq: one message at a time (it has no bulk); one worker process of 64 threads, no middleware."""

import dramatiq
from counting import COUNT, PAYLOAD, URL, Timer, jobs, tell
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=URL, middleware=[])
dramatiq.set_broker(broker)


@dramatiq.actor
def nothing(payload: str) -> None:
    jobs.one()


with Timer() as fill:
    for _ in range(COUNT):
        nothing.send(PAYLOAD)
worker = dramatiq.Worker(broker, worker_threads=64)
worker.start()
jobs.done.wait()
worker.stop()
tell(fill)
