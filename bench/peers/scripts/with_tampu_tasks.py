"""tampu with single messages only: 100 callers publish one each, 100 tasks claim one each and ack it."""

import asyncio

from counting import PAYLOAD, URL, Timer, chunks, jobs, tell

import tampu


async def work(store: tampu.AsyncStore) -> None:
    while leases := await store.claim("bench"):
        jobs.one()
        await store.ack(leases[0])


async def main() -> None:
    async with tampu.open_async(URL) as store:
        with Timer() as fill:
            for size in chunks(100):
                await asyncio.gather(*(store.publish("bench", PAYLOAD) for _ in range(size)))
        await asyncio.gather(*(work(store) for _ in range(100)))
    tell(fill)


asyncio.run(main())
