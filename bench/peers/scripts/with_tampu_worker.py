"""tampu as a worker of many tasks uses it: 100 callers publish one message each, handlers ack theirs alone.

One loop claims 100 at a time and starts a task for each; nobody else asks for a batch. What comes together by itself
shares a commit.
"""

import asyncio

from counting import PAYLOAD, URL, Timer, chunks, jobs, tell

import tampu


async def handle(q: tampu.AsyncQueue, lease: tampu.Lease) -> None:
    jobs.one()
    await q.ack(lease)


async def main() -> None:
    async with tampu.open_async(URL) as q:
        with Timer() as fill:
            for size in chunks(100):
                await asyncio.gather(*(q.publish("bench", PAYLOAD) for _ in range(size)))
        running: set[asyncio.Task[None]] = set()
        while leases := await q.claim("bench", limit=100):
            if len(running) >= 200:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running.update(asyncio.create_task(handle(q, lease)) for lease in leases)
        await asyncio.gather(*running)
    tell(fill)


asyncio.run(main())
