"""tampu as a worker of many tasks uses it: 100 callers publish one message each, handlers ack theirs alone.

One loop claims 100 at a time and starts a task for each; no other call uses batches. Calls that arrive together
share a commit.
"""

import asyncio

from counting import PAYLOAD, URL, Timer, chunks, jobs, tell

import tampu


async def handle(store: tampu.AsyncStore, lease: tampu.Lease) -> None:
    jobs.one()
    await store.ack(lease)


async def main() -> None:
    async with tampu.open_async(URL) as store:
        with Timer() as fill:
            for size in chunks(100):
                await asyncio.gather(*(store.publish("bench", PAYLOAD) for _ in range(size)))
        running: set[asyncio.Task[None]] = set()
        while leases := await store.claim("bench", limit=100):
            if len(running) >= 200:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running.update(asyncio.create_task(handle(store, lease)) for lease in leases)
        await asyncio.gather(*running)
    tell(fill)


asyncio.run(main())
