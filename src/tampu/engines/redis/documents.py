"""Documents: (kind, tenant, name) → versioned bytes. What policy stores; engines do not look inside.

All are in the house's slot, so that a document and the revision of all of them change in one script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tampu.engines.port import DeleteDocument, Document, PutDocument
from tampu.engines.redis import rows
from tampu.engines.redis.queue_registry import QueueRegistry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ScriptCall, ok
from tampu.engines.redis.tags import named, plain
from tampu.model.errors import VersionConflict

_LOOKED_AT = 1000
"""Keys, in one script."""


def _end(kind: str, tenant: str) -> str:
    return f"{plain(kind)}:{plain(tenant)}"


def put(context: RunContext, call: PutDocument) -> Asking[int]:
    """Write a document. The settings of a queue make it be there, in the same script."""
    registry = context.registry
    version = "" if call.version is None else call.version
    room = None
    if call.kind == "queue" and call.name != "*":
        room = yield from registry.enter(call.tenant, call.name)
    listed = (room.partition, f"{room.ids.tail:014x}") if room else ("", "")
    (reply,) = yield [
        context.write.script(
            "put_document", registry.tags.registry, _end(call.kind, call.tenant), call.name, version,
            call.value, *listed,
        )
    ]  # fmt: skip
    if ok(reply) < 0:
        raise changed(call)
    if room is not None:
        room.made = True
    return int(reply)


def delete(context: RunContext, call: DeleteDocument) -> Asking[bool]:
    (reply,) = yield [
        context.write.script("delete_document", context.registry.tags.registry, _end(call.kind, call.tenant), call.name)
    ]
    return bool(ok(reply))


def change(context: RunContext, calls: Sequence[PutDocument | DeleteDocument]) -> Asking[list[Any]]:
    """Several documents at once, all or none; not the settings of queues, which also make the queue be there."""
    (reply,) = yield [ask(context, calls)]
    answers = ok(reply)
    if answers and answers[0] == -1:
        raise changed(calls[answers[1] - 1])
    return told(calls, answers)


def items_of(calls: Sequence[PutDocument | DeleteDocument]) -> list[tuple[Any, ...]]:
    """As scripts take them."""
    return [
        (_end(call.kind, call.tenant), call.name, "" if call.version is None else call.version, 1)
        if isinstance(call, PutDocument)
        else (_end(call.kind, call.tenant), call.name, "", 0)
        for call in calls
    ]


def ask(context: RunContext, calls: Sequence[PutDocument | DeleteDocument]) -> ScriptCall:
    values = [call.value for call in calls if isinstance(call, PutDocument)]
    return context.write.script(
        "change_documents", context.registry.tags.registry, rows.encode(items_of(calls)), *values
    )


def changed(call: PutDocument | DeleteDocument) -> VersionConflict:
    return VersionConflict(f"{call.kind} {call.name} was changed meanwhile", hint="read it again and try again")


def told(calls: Sequence[PutDocument | DeleteDocument], answers: Sequence[Any]) -> list[Any]:
    """The replies, by what the script said."""
    return [
        answer if isinstance(call, PutDocument) else bool(answer) for call, answer in zip(calls, answers, strict=True)
    ]


def get(registry: QueueRegistry, kind: str, tenant: str, name: str) -> Asking[Document | None]:
    (reply,) = yield [registry.write.plain("HGET", registry.tags.registry, f"doc:{_end(kind, tenant)}", name)]
    return None if ok(reply) is None else _read(kind, tenant, name, reply)


def _read(kind: str, tenant: str, name: str, raw: bytes) -> Document:
    version, _, value = raw.partition(b":")
    return Document(kind, tenant, name, int(version), value)


def list_all(registry: QueueRegistry, kind: str, tenant: str) -> Asking[list[Document]]:
    (reply,) = yield [registry.write.plain("HGETALL", registry.tags.registry, f"doc:{_end(kind, tenant)}")]
    flat = ok(reply)
    return [
        _read(kind, tenant, name, value)
        for name, value in sorted((n.decode(), v) for n, v in zip(flat[::2], flat[1::2], strict=True))
    ]


def every(registry: QueueRegistry) -> Asking[list[Document]]:
    """By looking through the names of all keys of the server that has the house's slot: rare, and not for workers."""
    documents: list[Document] = []
    for end in sorted((yield from _ends(registry))):
        kind, tenant = map(named, end.split(":"))
        documents += yield from list_all(registry, kind, tenant)
    return documents


def _ends(registry: QueueRegistry) -> Asking[set[str]]:
    """How the keys of documents end. By a script: a plain SCAN is answered also by a server that the slot has left."""
    begin = f"{registry.tags.registry}:doc:"
    pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", begin) + "*"
    ends, cursor, run = set[str](), b"0", None
    while True:
        (reply,) = yield [registry.write.script("scan_documents", registry.tags.registry, pattern, cursor, _LOOKED_AT)]
        told, following, *keys = ok(reply)
        ends.update(key.decode()[len(begin) :] for key in keys)
        if run not in (None, told):
            cursor, run = b"0", told  # the slot has moved: cursors of one server mean nothing to another
        elif following == b"0":
            return ends
        else:
            cursor, run = following, told
