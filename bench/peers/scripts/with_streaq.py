"""streaq: enqueued 1000 at a time in a pipeline; one worker with 100 jobs at once, results not kept."""

import uvloop
from counting import PAYLOAD, URL, Timer, chunks, jobs, tell
from streaq import Worker

worker: Worker[None] = Worker(redis_url=URL, concurrency=100, prefetch=200, handle_signals=False)
worker.burst = True


@worker.task(ttl=0)
async def nothing(payload: str) -> None:
    jobs.one()


async def main() -> None:
    async with worker:
        with Timer() as fill:
            for size in chunks(1000):
                await worker.enqueue_many([nothing.enqueue(PAYLOAD) for _ in range(size)])
    await worker.run_async()
    tell(fill)


uvloop.run(main())
