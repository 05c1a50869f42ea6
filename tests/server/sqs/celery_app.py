"""An application of Celery on its own SQS transport, as it would be on AWS."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("shop", broker_url=os.environ.get("BROKER", "sqs://"))
app.conf.update(
    task_default_queue="celery",
    task_acks_late=True,
    worker_hijack_root_logger=False,
    broker_transport_options={
        "region": "eu-west-1",
        "is_secure": False,
        "visibility_timeout": 60,
        "wait_time_seconds": 1,
        "polling_interval": 0.1,
        "queue_name_prefix": os.environ.get("QUEUE", ""),
    },
)


@app.task(bind=True, max_retries=3)
def note(self: object, path: str, text: str) -> None:
    """Writes the text to the file; fails the first time, to be retried."""
    with open(path, "a") as file:  # noqa: PTH123 - appending
        file.write(f"{text}\n")
    if text == "again" and self.request.retries == 0:  # type: ignore[attr-defined]  # bind=True
        raise self.retry(countdown=0)  # type: ignore[attr-defined]  # bind=True
