"""arq: enqueued by 50 callers at once (it has no bulk); one worker with 100 jobs at once, results not kept."""

import asyncio
from typing import Any

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker
from counting import PAYLOAD, URL, Timer, chunks, jobs, tell


async def nothing(ctx: dict[Any, Any], payload: str) -> None:
    jobs.one()


async def main() -> None:
    pool = await create_pool(RedisSettings.from_dsn(URL))
    with Timer() as fill:
        for size in chunks(50):
            await asyncio.gather(*(pool.enqueue_job("nothing", PAYLOAD) for _ in range(size)))
    worker = Worker([nothing], redis_pool=pool, burst=True, max_jobs=100, keep_result=0, poll_delay=0.01,
                    handle_signals=False)  # fmt: skip
    await worker.async_run()
    tell(fill)


uvloop.run(main())
