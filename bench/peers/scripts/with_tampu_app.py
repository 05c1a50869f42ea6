"""tampu's own tasks: calls published 1000 at a time, one worker as `tampu work` runs it, results not kept."""

from counting import PAYLOAD, URL, Timer, chunks, jobs, tell

import tampu

app = tampu.App(URL)


@app.task(queue="bench")
async def nothing(payload: str) -> None:
    jobs.one()


nothing.message(PAYLOAD)
app.store.queues.list()  # opened before the clock starts, as the others are
with Timer() as fill:
    for size in chunks(1000):
        app.publish_many([nothing.message(PAYLOAD) for _ in range(size)])
with tampu.working(app):
    jobs.done.wait()
app.close()
tell(fill)
