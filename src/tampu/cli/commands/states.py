"""Opening and shutting queues: `pause resume drain close`."""

from __future__ import annotations

from collections.abc import Callable

import tampu
from tampu.cli.app import QueueNames, command
from tampu.cli.output import STYLES
from tampu.cli.session import Session


def _set(session: Session, queues: list[str], act: Callable[[tampu.Store, str], None]) -> None:
    with session.open() as store:
        for queue in queues:
            store.stats(queue)  # all must be there before one is changed
        for queue in queues:
            act(store, queue)
        found = [(queue, store.stats(queue).status) for queue in queues]
    if session.json:
        session.out.document({"queues": [{"queue": queue, "status": status} for queue, status in found]})
    else:
        for queue, status in found:
            session.out.say(f"{queue} is {status}", STYLES.get(status, ""))


@command("pause", "Steer")
def pause(session: Session, queues: QueueNames) -> None:
    """No delivery until resume; messages are still taken in."""
    _set(session, queues, tampu.Store.pause)


@command("resume", "Steer")
def resume(session: Session, queues: QueueNames) -> None:
    """Deliver and take in again."""
    _set(session, queues, tampu.Store.resume)


@command("drain", "Steer")
def drain(session: Session, queues: QueueNames) -> None:
    """Take in nothing new; what is there is still delivered."""
    _set(session, queues, tampu.Store.drain)


@command("close", "Steer")
def close(session: Session, queues: QueueNames) -> None:
    """Neither delivery nor intake, until resume."""
    _set(session, queues, tampu.Store.close_queue)
