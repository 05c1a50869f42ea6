"""Removed queues. A mark, which is a document, hides a queue without messages and settings from lists of queues.

The engine keeps the name, because the journal still has it. A publish to the queue, or new settings, show it again at
once; maintenance then removes the mark.
"""

from __future__ import annotations

from collections.abc import Mapping

from tampu.broker import settings
from tampu.engines.port import DeleteDocument, Engine, PutDocument
from tampu.model.errors import InvalidState
from tampu.model.message import State
from tampu.model.states import TERMINAL

KIND = "removed_queue"
TENANT = "*"
"""All marks are under this tenant, named ``tenant/queue``, so that one read finds all of them."""


def mark(tenant: str, queue: str) -> PutDocument:
    """The call that hides a queue."""
    return PutDocument(KIND, TENANT, f"{tenant}/{queue}", b"{}")


def hidden(engine: Engine, tenant: str) -> set[str]:
    """The queues of a tenant that were removed and not used since."""
    marked = _marked(engine).get(tenant)
    return marked - _used(engine, tenant) if marked else set()


def is_hidden(engine: Engine, tenant: str, queue: str) -> bool:
    """True if a queue without messages was removed and got no settings since."""
    removed = engine.document(KIND, TENANT, f"{tenant}/{queue}") is not None
    return removed and engine.document(settings.KIND, tenant, queue) is None


def unmark_used(engine: Engine) -> list[DeleteDocument]:
    """The calls that remove the marks of queues which are used again."""
    return [
        DeleteDocument(KIND, TENANT, f"{tenant}/{queue}")
        for tenant, marked in _marked(engine).items()
        for queue in sorted(marked & _used(engine, tenant))
    ]


def _marked(engine: Engine) -> dict[str, set[str]]:
    """Names of removed queues, by tenant."""
    found: dict[str, set[str]] = {}
    for document in engine.documents(KIND, TENANT):
        tenant, _, queue = document.name.partition("/")
        found.setdefault(tenant, set()).add(queue)
    return found


def _used(engine: Engine, tenant: str) -> set[str]:
    """Queues of a tenant that have messages, or settings of their own."""
    with_messages = {row.queue for row in engine.stats(tenant, None) if any(row.counts.values())}
    return with_messages | {document.name for document in engine.documents(settings.KIND, tenant)}


def check(queue: str, counts: Mapping[State, int], *, force: bool) -> None:
    """Refuse to remove a queue with leased messages or, without ``force``, with waiting ones."""
    leased = counts.get(State.LEASED, 0)
    if leased:
        raise InvalidState(
            f"{leased} messages of {queue} are leased",
            field="queue",
            hint="wait until they are settled, or cancel them; drain the queue first if it is still in use",
        )
    waiting = sum(count for state, count in counts.items() if state not in TERMINAL)
    if waiting and not force:
        raise InvalidState(
            f"{waiting} messages of {queue} still wait", field="queue", hint="purge them first, or remove it with force"
        )
