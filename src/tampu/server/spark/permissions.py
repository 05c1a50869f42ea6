"""Who may do what over ``/v1/spark``: the documents that Spark programs keep, and the queues they read.

What a consumer has delivered is for those who may consume its queue. Ledgers and staged rows of a job are for those who
may publish to the queue of the job; of a job that may publish to any, for those who may too. The settings of a queue
can be read by whoever has to do with it. Where the readers of the whole journal are is for keys of all tenants that may
operate everywhere: a pipeline's. No other document is reached.
"""

from __future__ import annotations

from tampu.broker import journal_readers, validate
from tampu.broker.settings import DEFAULTS, KIND
from tampu.model.errors import Forbidden
from tampu.server.auth.grants import Caller
from tampu.spark.queue.delivery_log import HEADS, PAGES
from tampu.spark.queue.outcomes import OUTCOMES
from tampu.spark.write.publish import JOBS, STREAMS
from tampu.spark.write.staging import STAGED_NAMES, STAGED_ROWS
from tampu.stores.wire import ANY

_CONSUMERS = frozenset({HEADS, PAGES, OUTCOMES})
_OF_THE_STORE = frozenset({journal_readers.KIND, journal_readers.OBJECTIVES, journal_readers.IDENTITY[0]})
_WRITERS = frozenset({JOBS, STREAMS, STAGED_NAMES, STAGED_ROWS})


def check_document(caller: Caller, kind: str, name: str, *, write: bool, everyone: bool) -> str:
    """The tenant whose document it is. ``name`` may also be a prefix, with its slash.

    ``everyone``: may the caller act in any tenant?
    """
    if kind in _OF_THE_STORE:
        if not everyone:
            raise Forbidden("this is for keys of all tenants", field="kind", hint="a pipeline reads the whole store")
        caller.need_everywhere("operate")
        return journal_readers.TENANT
    queue = name.partition("/")[0]
    if kind in _CONSUMERS and "/" in name:
        caller.need("consume", validate.name(queue, "name"))
    elif kind in _WRITERS and "/" in name:
        if queue == ANY:
            caller.need_everywhere("publish")
        else:
            caller.need("publish", validate.name(queue, "name"))
    elif kind == KIND and not write:
        if name != DEFAULTS:
            check_known(caller, name)
    else:
        raise Forbidden(f"Spark has nothing to do with {kind} {name:.100}", field="kind")
    return caller.tenant


def check_known(caller: Caller, queue: str) -> None:
    """Has the caller anything to do with the queue?"""
    validate.name(queue, "queue")
    if not any(caller.may(permission, queue) for permission in ("view", "publish", "consume")):
        caller.need("view", queue)


def viewed(caller: Caller, asked: tuple[str, ...], there: set[str]) -> tuple[str, ...] | None:
    """The queues that are read: () for all, None for none. Who names one must be allowed to view it."""
    caller.need_somewhere("view")
    if asked:
        caller.need("view", *asked)
        return asked
    if caller.everywhere("view"):
        return ()
    return tuple(sorted(queue for queue in there if caller.may("view", queue))) or None
