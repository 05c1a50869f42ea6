"""Close the queues of a store for a migration, and open them again with the statuses they had."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import msgspec

from tampu.broker.schedules import stored
from tampu.broker.settings import KIND
from tampu.broker.transfer.progress import SourceProgress, do, save
from tampu.engines.port import DeleteDocument, Engine, PutDocument, Sweep
from tampu.model.config import DEFAULTS, SYSTEM, QueueConfig, is_pattern, read_config
from tampu.model.errors import InvalidState, VersionConflict
from tampu.model.message import State

_TRIES = 20
_LOOK_SECONDS = 0.1
NOTICED_SECONDS = 1.0
"""After this time every process has noticed a change of settings."""
_STEP = 1000
CLOSED = "closed"


def split(name: str) -> tuple[str, str]:
    """(tenant, queue) of ``tenant/queue``; neither has a slash in its name."""
    tenant, _, queue = name.partition("/")
    return tenant, queue


def own_config(engine: Engine, tenant: str, queue: str) -> tuple[QueueConfig, int]:
    """The settings of a queue itself, and the version of their document."""
    found = engine.document(KIND, tenant, queue)
    if found is None:
        return QueueConfig(), 0
    return read_config(found.value), found.version


def put_status(engine: Engine, name: str, status: str | None) -> bool:
    """Set the status of a queue; settings that become empty are removed. True if it had another status."""
    tenant, queue = split(name)
    for _ in range(_TRIES):
        config, version = own_config(engine, tenant, queue)
        if config.status == status:
            return False
        changed = msgspec.structs.replace(config, status=status)
        if changed == QueueConfig():
            do(engine, DeleteDocument(KIND, tenant, queue))
            return True
        try:
            do(engine, PutDocument(KIND, tenant, queue, msgspec.json.encode(changed), version))
        except VersionConflict:
            continue
        return True
    raise VersionConflict(f"the settings of {name} keep changing", hint="try again")


def names(engine: Engine) -> list[str]:
    """All queues, scopes with settings, and the defaults of all tenants, as ``tenant/queue``."""
    queues = [(tenant, queue) for tenant, queue in engine.queues() if not queue.startswith(SYSTEM)]
    tenants = {tenant for tenant, _ in queues}
    tenants |= {tenant.name for tenant in engine.documents(*stored.TENANTS)}  # their first tick creates a queue
    scopes = [
        f"{tenant}/{document.name}"
        for tenant in sorted(tenants)
        for document in engine.documents(KIND, tenant)
        if is_pattern(document.name) and document.name != DEFAULTS
    ]
    defaults = [f"{tenant}/{DEFAULTS}" for tenant in sorted(tenants)]
    return [*(f"{tenant}/{queue}" for tenant, queue in queues), *scopes, *defaults]


def close(engine: Engine, note: SourceProgress) -> bool:
    """Record the status of every queue, then close it. True if one was not closed before."""
    closed = False
    for _ in range(_TRIES):
        new = {name: own_config(engine, *split(name))[0].status for name in names(engine) if name not in note.statuses}
        if new:
            note.statuses.update(new)
            save(engine, note)
        for name in note.statuses:
            closed = put_status(engine, name, CLOSED) or closed
        if not new:
            return closed
    raise InvalidState("new queues keep appearing in the source", hint="stop all publishers of the source")


def wait_until_noticed() -> None:
    """Wait until no process publishes to queues that are closed, or claims from them."""
    threading.Event().wait(NOTICED_SECONDS)


def open_again(engine: Engine, statuses: Iterable[tuple[str, str | None]]) -> None:
    for name, status in statuses:
        put_status(engine, name, status)


def leased(engine: Engine) -> dict[str, int]:
    """How many messages are leased, by queue."""
    found = {}
    for tenant in sorted({tenant for tenant, _ in engine.queues()}):
        for stats in engine.stats(tenant, None):
            if stats.counts.get(State.LEASED):
                found[f"{tenant}/{stats.queue}"] = stats.counts[State.LEASED]
    return found


def sweep(engine: Engine) -> None:
    """Promote, reap and expire all that is due."""
    while do(engine, Sweep(_STEP)).moved:
        pass


def wait_for_leases(engine: Engine, seconds: float) -> dict[str, int]:
    """Wait until no message is leased, at most ``seconds``. Returns what is leased then."""
    give_up, pause = time.monotonic() + seconds, threading.Event()
    while (found := leased(engine)) and time.monotonic() < give_up:
        sweep(engine)  # leases may have expired, and no maintenance may run
        pause.wait(_LOOK_SECONDS)
    return found
