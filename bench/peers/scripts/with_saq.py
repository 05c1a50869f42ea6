"""saq: enqueued by 50 callers at once (it has no bulk); one worker with 20 jobs at once, results not kept."""

import asyncio
from typing import Any

import uvloop
from counting import PAYLOAD, URL, Timer, chunks, jobs, tell
from saq import Queue, Worker


async def nothing(ctx: Any, *, payload: str) -> None:
    jobs.one()


async def main() -> None:
    queue = Queue.from_url(URL)
    await queue.connect()
    with Timer() as fill:
        for size in chunks(50):
            await asyncio.gather(*(queue.enqueue("nothing", payload=PAYLOAD, ttl=-1) for _ in range(size)))
    done = asyncio.Event()
    jobs.when_done = done.set
    worker = Worker(queue, [nothing], concurrency=20)
    working = asyncio.create_task(worker.start())
    await done.wait()
    await worker.stop()
    await asyncio.gather(working, return_exceptions=True)
    tell(fill)


uvloop.run(main())
