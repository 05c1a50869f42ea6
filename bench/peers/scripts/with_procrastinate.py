"""procrastinate: jobs deferred 1000 at a time; one worker with 20 jobs at once over a pool of connections."""

import procrastinate
import uvloop
from counting import PAYLOAD, URL, Timer, chunks, jobs, tell

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=10, max_size=20))


@app.task
async def nothing(payload: str) -> None:
    jobs.one()


async def main() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        with Timer() as fill:
            for size in chunks(1000):
                await nothing.batch_defer_async(*[{"payload": PAYLOAD}] * size)
        await app.run_worker_async(wait=False, concurrency=20, install_signal_handlers=False)
    tell(fill)


uvloop.run(main())
