"""Documents: (kind, tenant, name) → versioned bytes. What policy stores; engines do not look inside.

All are in the house's slot, so that a document and the revision of all of them change in one script.
"""

from __future__ import annotations

from tampu.engines.port import DeleteDocument, Document, PutDocument
from tampu.engines.redis.asking import Asking, ok
from tampu.engines.redis.house import House
from tampu.engines.redis.tags import plain
from tampu.engines.redis.turn import Turn
from tampu.model.errors import VersionConflict


def _end(kind: str, tenant: str) -> str:
    return f"{plain(kind)}:{plain(tenant)}"


def put(turn: Turn, call: PutDocument) -> Asking[int]:
    """Write a document. The settings of a queue make it be there, in the same script."""
    house = turn.house
    version = "" if call.version is None else call.version
    room = None
    if call.kind == "queue" and call.name != "*":
        room = yield from house.enter(call.tenant, call.name)
    listed = (room.partition, f"{room.ids.tail:014x}") if room else ("", "")
    (reply,) = yield [
        turn.write.script(
            "put_document", house.tags.house, _end(call.kind, call.tenant), call.name, version,
            call.value, *listed,
        )
    ]  # fmt: skip
    if ok(reply) < 0:
        raise VersionConflict(f"{call.kind} {call.name} was changed meanwhile", hint="read it again and try again")
    if room is not None:
        room.made = True
    return int(reply)


def delete(turn: Turn, call: DeleteDocument) -> Asking[bool]:
    (reply,) = yield [
        turn.write.script("delete_document", turn.house.tags.house, _end(call.kind, call.tenant), call.name)
    ]
    return bool(ok(reply))


def get(house: House, kind: str, tenant: str, name: str) -> Asking[Document | None]:
    (reply,) = yield [house.write.plain("HGET", house.tags.house, f"doc:{_end(kind, tenant)}", name)]
    return None if ok(reply) is None else _read(kind, tenant, name, reply)


def _read(kind: str, tenant: str, name: str, raw: bytes) -> Document:
    version, _, value = raw.partition(b":")
    return Document(kind, tenant, name, int(version), value)


def list_all(house: House, kind: str, tenant: str) -> Asking[list[Document]]:
    (reply,) = yield [house.write.plain("HGETALL", house.tags.house, f"doc:{_end(kind, tenant)}")]
    flat = ok(reply)
    return [
        _read(kind, tenant, name, value)
        for name, value in sorted((n.decode(), v) for n, v in zip(flat[::2], flat[1::2], strict=True))
    ]
