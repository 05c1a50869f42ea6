"""Fan out, and gather by correlation id, with asyncio: a hundred concurrent calls share a few commits."""

import asyncio

import tampu


async def worker(store: tampu.AsyncStore, name: str) -> int:
    done = 0
    while leases := await store.claim("pages", limit=8, wait=0.2, worker=name):
        for lease in leases:
            await store.ack(lease, result=len(lease.payload["url"]))
            done += 1
    return done


async def main() -> None:
    async with tampu.open_async("fanout.db") as store:
        urls = [f"https://example.org/{n}" for n in range(100)]
        sent = await asyncio.gather(*(store.publish("pages", {"url": url}, correlation_id="crawl-1") for url in urls))
        shares = await asyncio.gather(*(worker(store, f"w{n}") for n in range(4)))
        print(f"{sum(shares)} pages done, by worker: {shares}")
        results = await asyncio.gather(*(store.get(message.id) for message in sent))
        print(f"longest url: {max(message.result for message in results)} characters")
        crawl = await store.messages("pages", state="done", where={"correlation_id": "crawl-1"})
        print(f"of crawl-1: {len(crawl)} done")


asyncio.run(main())
