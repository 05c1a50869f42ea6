"""Documents: (kind, tenant, name) → versioned bytes. Policy code stores them; engines do not look inside.

All are in the slot of the store's tag, so that a document and the common revision change in one script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeGuard

from tampu.engines.port import DeleteDocument, Document, PutDocument
from tampu.engines.redis import rows
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall, ok
from tampu.engines.redis.queue_registry import QueueRegistry, RunContext
from tampu.engines.redis.tags import escape, unescape
from tampu.model.errors import VersionConflict

_KEYS_PER_SCAN = 1000
"""Keys that one script looks at."""


def _key_ending(kind: str, tenant: str) -> str:
    return f"{escape(kind)}:{escape(tenant)}"


def put(context: RunContext, call: PutDocument) -> Operation[int]:
    """Write a document. The settings of a queue also create the queue, in the same script."""
    registry = context.registry
    version = "" if call.version is None else call.version
    entry = None
    if creates_queue(call):
        entry = yield from registry.register(call.tenant, call.name)
    listed = (entry.partition, f"{entry.ids.tail:014x}") if entry else ("", "")
    (reply,) = yield [
        context.write.script(
            "put_document", registry.tags.registry, _key_ending(call.kind, call.tenant), call.name, version,
            call.value, *listed,
        )
    ]  # fmt: skip
    if ok(reply) < 0:
        raise version_conflict(call)
    if entry is not None:
        entry.exists = True
    return int(reply)


def creates_queue(call: object) -> TypeGuard[PutDocument]:
    """True for settings of a queue; those of several queues, such as ``shop.*``, create none."""
    return isinstance(call, PutDocument) and call.kind == "queue" and not call.name.endswith("*")


def delete(context: RunContext, call: DeleteDocument) -> Operation[bool]:
    if call.version is not None:
        (gone,) = yield from change(context, [call])
        return bool(gone)
    (reply,) = yield [
        context.write.script(
            "delete_document", context.registry.tags.registry, _key_ending(call.kind, call.tenant), call.name
        )
    ]
    return bool(ok(reply))


def change(context: RunContext, calls: Sequence[PutDocument | DeleteDocument]) -> Operation[list[Any]]:
    """Change several documents, all or none. Settings of queues create the queue only if it was registered before."""
    (reply,) = yield [change_call(context, calls)]
    answers = ok(reply)
    if answers and answers[0] == -1:
        _, which = answers
        raise version_conflict(calls[which - 1])
    return replies_of(calls, answers)


def items_of(registry: QueueRegistry, calls: Sequence[PutDocument | DeleteDocument]) -> list[tuple[Any, ...]]:
    """The calls as scripts take them."""
    items: list[tuple[Any, ...]] = []
    for call in calls:
        ending = _key_ending(call.kind, call.tenant)
        if isinstance(call, DeleteDocument):
            items.append((ending, call.name, "" if call.version is None else call.version, 0))
            continue
        entry = registry.known(call.tenant, call.name) if creates_queue(call) else None
        listed = () if entry is None else (entry.partition, f"{entry.ids.tail:014x}")
        items.append((ending, call.name, "" if call.version is None else call.version, 1, *listed))
    return items


def change_call(context: RunContext, calls: Sequence[PutDocument | DeleteDocument]) -> ScriptCall:
    values = [call.value for call in calls if isinstance(call, PutDocument)]
    return context.write.script(
        "change_documents", context.registry.tags.registry, rows.encode(items_of(context.registry, calls)), *values
    )


def version_conflict(call: PutDocument | DeleteDocument) -> VersionConflict:
    return VersionConflict(f"{call.kind} {call.name} was changed meanwhile", hint="read it and try again")


def replies_of(calls: Sequence[PutDocument | DeleteDocument], answers: Sequence[Any]) -> list[Any]:
    """The replies of the port, from the script's answers."""
    return [
        answer if isinstance(call, PutDocument) else bool(answer) for call, answer in zip(calls, answers, strict=True)
    ]


def get(registry: QueueRegistry, kind: str, tenant: str, name: str) -> Operation[Document | None]:
    (reply,) = yield [registry.write.plain("HGET", registry.tags.registry, f"doc:{_key_ending(kind, tenant)}", name)]
    return None if ok(reply) is None else _read(kind, tenant, name, reply)


def _read(kind: str, tenant: str, name: str, raw: bytes) -> Document:
    version, _, value = raw.partition(b":")
    return Document(kind, tenant, name, int(version), value)


def count(registry: QueueRegistry, kind: str, tenant: str) -> Operation[int]:
    (reply,) = yield [registry.write.plain("HLEN", registry.tags.registry, f"doc:{_key_ending(kind, tenant)}")]
    return int(ok(reply))


def of_kind(
    registry: QueueRegistry, kind: str, tenant: str, prefix: str = "", after: str = "", limit: int | None = None
) -> Operation[list[Document]]:
    tag, end = registry.tags.registry, _key_ending(kind, tenant)
    if prefix or after or limit is not None:
        first, begin = after.encode(), prefix.encode()
        least = b"(" + first if first and first >= begin else b"[" + begin
        last = b"[" + begin + b"\xff" if begin else b"+"
        most = -1 if limit is None else limit
        (reply,) = yield [registry.write.script("list_documents", tag, end, least, last, most)]
    else:
        (reply,) = yield [registry.write.plain("HGETALL", tag, f"doc:{end}")]
    flat = ok(reply)
    return [
        _read(kind, tenant, name, value)
        for name, value in sorted((n.decode(), v) for n, v in zip(flat[::2], flat[1::2], strict=True))
    ]


def list_everything(registry: QueueRegistry) -> Operation[list[Document]]:
    """All documents of all tenants. Scans all keys of one server: slow, for maintenance only."""
    documents: list[Document] = []
    for end in sorted((yield from _key_endings(registry))):
        kind, tenant = map(unescape, end.split(":"))
        documents += yield from of_kind(registry, kind, tenant)
    return documents


def _key_endings(registry: QueueRegistry) -> Operation[set[str]]:
    """How the keys of documents end. By a script: a server answers a plain SCAN even after the slot has moved."""
    begin = f"{registry.tags.registry}:doc:"
    pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", begin) + "*"
    ends, cursor, run = set[str](), b"0", None
    while True:
        (reply,) = yield [
            registry.write.script("scan_documents", registry.tags.registry, pattern, cursor, _KEYS_PER_SCAN)
        ]
        server_run, following, *keys = ok(reply)
        ends.update(key.decode()[len(begin) :] for key in keys)
        if run not in (None, server_run):
            cursor, run = b"0", server_run  # the slot has moved: a cursor is only valid on its own server
        elif following == b"0":
            return ends
        else:
            cursor, run = following, server_run
