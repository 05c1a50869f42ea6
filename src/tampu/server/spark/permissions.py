"""Permissions for ``/v1/spark``: the documents that Spark programs keep, and the queues they read.

- Delivery logs of a consumer need ``consume`` on its queue.
- Progress and staged rows of a job need ``publish`` on its queue; on all queues, if the job may publish to any.
- Queue settings need any permission on the queue.
- The audit trail needs a key of all tenants with ``admin``: a pipeline's that brings it to the lake. It is only read.
- Positions of readers of the whole journal need a key of all tenants with ``operate`` on all queues: a pipeline's.

No other document can be reached.
"""

from __future__ import annotations

from tampu.broker import audit, journal_readers, validate
from tampu.broker.settings import KIND
from tampu.model.config import is_pattern
from tampu.model.errors import Forbidden, InvalidMessage, PayloadTooLarge
from tampu.server.auth.grants import Caller
from tampu.spark.queue.delivery_log import HEADS, PAGES
from tampu.spark.queue.outcomes import OUTCOMES
from tampu.spark.write.publish import JOBS, STREAMS
from tampu.spark.write.staging import STAGED_NAMES, STAGED_ROWS
from tampu.stores.wire import ANY, SparkDelete, SparkPut

_CONSUMERS = frozenset({HEADS, PAGES, OUTCOMES})
_OF_THE_STORE = frozenset({journal_readers.KIND, journal_readers.OBJECTIVES, journal_readers.IDENTITY[0]})
_WRITERS = frozenset({JOBS, STREAMS, STAGED_NAMES, STAGED_ROWS})
LARGE = frozenset({STAGED_ROWS, OUTCOMES, PAGES})
"""They have rows; the size of a request bounds them."""
MAX_DOCUMENT = 1 << 20
"""Maximum bytes of any other document."""


def check_document(caller: Caller, kind: str, name: str, *, write: bool, everyone: bool) -> str:
    """Check access to a document and return its tenant. ``name`` can be a prefix that ends with a slash.

    ``everyone``: the caller may act in every tenant.
    """
    if kind in _OF_THE_STORE:
        if not everyone:
            raise Forbidden("this needs a key of all tenants", field="kind", hint="a pipeline reads the whole store")
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
    elif kind == audit.KIND and everyone and not write:
        caller.need_everywhere("admin")
    elif kind == KIND and not write:
        if not is_pattern(name):
            check_known(caller, name)
    else:
        raise Forbidden(f"Spark has no access to {kind} {name:.100}", field="kind")
    return caller.tenant


def check_prefix(kind: str, prefix: str) -> None:
    """Refuse a prefix that crosses names: ``orders`` would also begin those of ``orders-secret``."""
    if kind not in _OF_THE_STORE and kind != audit.KIND and "/" not in prefix:
        raise InvalidMessage("a prefix must be a queue and a slash, and perhaps more", field="prefix")


def check_size(change: SparkPut | SparkDelete) -> None:
    """Refuse a document that is too large."""
    if isinstance(change, SparkPut) and change.kind not in LARGE and len(change.value) > MAX_DOCUMENT:
        raise PayloadTooLarge(f"a document has at most {MAX_DOCUMENT} bytes, not {len(change.value)}", field="value")


def check_known(caller: Caller, queue: str) -> None:
    """Refuse a caller without any permission on the queue."""
    validate.name(queue, "queue")
    if not any(caller.may(permission, queue) for permission in ("view", "publish", "consume")):
        caller.need("view", queue)


def viewed(caller: Caller, named: tuple[str, ...], existing: set[str]) -> tuple[str, ...] | None:
    """The queues to read: () for all, None for none. The caller must be allowed to view each queue it names."""
    caller.need_somewhere("view")
    if named:
        caller.need("view", *named)
        return named
    if caller.everywhere("view"):
        return ()
    return tuple(sorted(queue for queue in existing if caller.may("view", queue))) or None
