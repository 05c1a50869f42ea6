"""Changes the status of queues: `pause resume drain close`."""

from __future__ import annotations

from collections.abc import Callable

import tampu
from tampu.cli.app import QueueNames, command
from tampu.cli.output import STYLES
from tampu.cli.session import Session


def _set(session: Session, queues: list[str], act: Callable[[tampu.Store, str], None]) -> None:
    with session.open() as store:
        for queue in queues:
            store.stats(queue)  # all must exist before one is changed
        for queue in queues:
            act(store, queue)
        found = [(queue, store.stats(queue).status) for queue in queues]
    if session.json:
        session.out.document({"queues": [{"queue": queue, "status": status} for queue, status in found]})
    else:
        for queue, status in found:
            session.out.line(f"{queue} is {status}", STYLES.get(status, ""))


@command("pause", "Manage")
def pause(session: Session, queues: QueueNames) -> None:
    """Stop delivery until resume. Publishing still works."""
    _set(session, queues, tampu.Store.pause)


@command("resume", "Manage")
def resume(session: Session, queues: QueueNames) -> None:
    """Resume delivery and publishing."""
    _set(session, queues, tampu.Store.resume)


@command("drain", "Manage")
def drain(session: Session, queues: QueueNames) -> None:
    """Refuse new messages; deliver the existing ones."""
    _set(session, queues, tampu.Store.drain)


@command("close", "Manage")
def close(session: Session, queues: QueueNames) -> None:
    """Stop both delivery and publishing until resume."""
    _set(session, queues, tampu.Store.close_queue)
