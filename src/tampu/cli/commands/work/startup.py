"""What a worker logs when it starts: its version, store, queues and tasks, and what looks like a mistake."""

from __future__ import annotations

import contextlib
import logging

import tampu
from tampu.broker import access
from tampu.cli.session import Session
from tampu.model.similar import did_you_mean

log = logging.getLogger("tampu.worker")
_MOST_NAMES = 20


def report(runner: tampu.Runner, session: Session, *, is_new: bool) -> None:
    """Log the lines. Opens the store of the app, as the worker would."""
    app, store = runner.app, runner.app.store
    path = session.path
    url = session.shown if path is None else str(path.absolute())
    durability = f", durability {access.engine(store).durability}" if access.is_local(store) else ""
    queues = runner.order.names
    log.info("tampu %s, store %s%s", tampu.__version__, url, durability)
    log.info(
        "queues: %s; tasks: %s; at most %d at once",
        _names(queues),
        _names(sorted(app.tasks)),
        runner.options.concurrency,
    )
    if is_new:
        log.warning("%s did not exist and was created; if it is not the store you publish to, use --url", url)
    if not app.tasks:
        log.warning("the app has no tasks; register them with @app.task in a module that it imports")
    _check_queues(runner, store)


def _check_queues(runner: tampu.Runner, store: tampu.Store) -> None:
    """Warn of queues that no task uses, and of names that are probably misspelt."""
    used = set(runner.app.queues)
    idle = [name for name in runner.order.names if name not in used]
    if not idle or not runner.app.tasks:
        return
    there: set[str] = set()
    with contextlib.suppress(tampu.TampuError):  # a key that may not list queues
        there = set(store.queues.list())
    for name in idle:
        meant = did_you_mean(name, used | there)
        if there and name not in there:
            log.warning("queue %s does not exist yet, and no task uses it%s", name, meant)
        else:
            log.warning("no task uses queue %s%s", name, meant)
    for name in sorted(used - set(runner.order.names)):
        log.warning("queue %s has tasks, but this worker does not take from it; add it to --queues", name)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "none") + more
