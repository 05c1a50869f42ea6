"""PGQueuer: jobs enqueued 1000 at a time by arrays; asyncpg, uvloop; batches of 500 in its drain mode."""

import asyncpg
import uvloop
from counting import PAYLOAD, URL, Timer, chunks, jobs, tell
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode


async def main() -> None:
    connection = await asyncpg.connect(URL)
    driver = AsyncpgDriver(connection)
    queuer = PgQueuer(driver)
    await queuer.qm.queries.install()

    @queuer.entrypoint("nothing")
    async def nothing(job: Job) -> None:
        jobs.one()

    payload = PAYLOAD.encode()
    with Timer() as fill:
        for size in chunks(1000):
            await queuer.qm.queries.enqueue(["nothing"] * size, [payload] * size, [0] * size)
    await queuer.qm.run(batch_size=500, mode=QueueExecutionMode.drain)
    tell(fill)


uvloop.run(main())
