"""huey: one job at a time (it has no bulk); one worker thread (more are slower), results not kept."""

from counting import COUNT, PAYLOAD, URL, Timer, jobs, tell
from huey import RedisHuey

app = RedisHuey("bench", url=URL, results=False)


@app.task()
def nothing(payload: str) -> None:
    jobs.one()


with Timer() as fill:
    for _ in range(COUNT):
        nothing(PAYLOAD)
consumer = app.create_consumer(workers=1, worker_type="thread", periodic=False)
consumer.start()
jobs.done.wait()
consumer.stop()
tell(fill)
