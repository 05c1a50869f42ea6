"""taskiq with its list broker (the fastest of the three): sent by 50 callers at once; 100 jobs at once, no results."""

import asyncio

import uvloop
from counting import PAYLOAD, URL, Timer, chunks, jobs, tell
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker

broker = ListQueueBroker(URL, max_connection_pool_size=60)


@broker.task
async def nothing(payload: str) -> None:
    jobs.one()


async def main() -> None:
    await broker.startup()
    with Timer() as fill:
        for size in chunks(50):
            await asyncio.gather(*(nothing.kiq(PAYLOAD) for _ in range(size)))
    done = asyncio.Event()
    jobs.when_done = done.set
    receiving = asyncio.create_task(run_receiver_task(broker, max_async_tasks=100, max_prefetch=100))
    await done.wait()
    receiving.cancel()
    tell(fill)


uvloop.run(main())
