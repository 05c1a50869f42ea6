"""The store as Spark uses it over HTTP: signed parts of snapshots, and changes in one commit.

Everything here runs in threads, not on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tampu.broker.core import Core
from tampu.engines.port import Call, DeleteDocument, Document, PutDocument
from tampu.model.decoders import from_json, from_msgpack
from tampu.model.errors import InvalidConfig, InvalidMessage, StorageFull, VersionConflict
from tampu.model.extras import install
from tampu.server.auth.keys import TENANT

if TYPE_CHECKING:
    from tampu.stores.port import ArrowStore

_SIGNATURE_BYTES = 32
STREAMS = 16
"""Arrow streams at once on a node; each holds a batch in memory. More have to wait."""
MAX_DOCUMENTS = 100_000
"""Documents of one kind in one tenant. Nodes that write at the same time may exceed it by `_COUNTED` each."""
_COUNTED = 1000
"""Puts after which the documents are counted again: other nodes write too."""
_PAGE_DOCUMENTS = 1000
_PAGE_BYTES = 8 << 20


class Planned(msgspec.Struct, array_like=True, frozen=True):
    """A part of a snapshot plan, with the tenant and queues it may read."""

    tenant: str | None
    queues: tuple[str, ...]
    """() means all queues."""
    columns: tuple[str, ...]
    piece: bytes


_to_planned = from_msgpack(Planned).decode


class _Secret(msgspec.Struct):
    value: bytes


_to_secret = from_json(_Secret).decode


def _signing_secret(core: Core) -> bytes:
    """The secret that signs pieces, shared by all nodes; the first node makes it. It opens nothing without a key."""
    found = core.engine.document("secret", TENANT, "pieces")
    if found is None:
        made = msgspec.json.encode(_Secret(secrets.token_bytes(32)))
        with contextlib.suppress(VersionConflict):  # another node was first
            core.coalescer.submit(PutDocument("secret", TENANT, "pieces", made, 0))
        found = core.engine.document("secret", TENANT, "pieces")
        assert found is not None
    return _to_secret(found.value).value


class SparkStore:
    def __init__(self, core: Core) -> None:
        try:
            from tampu.stores.open_store import store_of
        except ImportError as error:
            raise InvalidConfig(
                f"this server cannot serve Spark without {error.name}",
                hint=f"run {install('server', 'spark')} on the server",
            ) from error
        self._core = core
        self.store: ArrowStore = store_of(core.engine)
        self.slots = asyncio.Semaphore(STREAMS)
        self._secret = _signing_secret(core)
        self._room: dict[tuple[str, str], int] = {}
        """How many puts are allowed before the documents are counted again, by (kind, tenant)."""

    # -- pieces

    def sign(self, planned: Planned) -> bytes:
        raw = msgspec.msgpack.encode(planned)
        return hmac.digest(self._secret, raw, "sha256") + raw

    def read(self, signed: bytes) -> Planned:
        """Decode a part after checking its signature: a server of this store must have planned it."""
        signature, raw = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, hmac.digest(self._secret, raw, "sha256")):
            raise InvalidMessage(
                "this piece was not planned on this store", field="piece", hint="plan and read on servers of one store"
            )
        return _to_planned(raw)

    # -- queues

    def queues(self, tenant: str | None) -> set[str]:
        return {name for owner, name in self._core.engine.queues() if tenant is None or owner == tenant}

    # -- documents

    def page(self, kind: str, tenant: str, prefix: str, after: str, step: int) -> tuple[list[Document], str | None]:
        """Documents whose names begin with ``prefix``, and the cursor of the next page. Read ``step`` at a time."""
        found: list[Document] = []
        size = 0
        while size < _PAGE_BYTES and len(found) < _PAGE_DOCUMENTS:
            some = self._core.engine.documents(kind, tenant, prefix, found[-1].name if found else after, step)
            found += some
            size += sum(len(document.value) for document in some)
            if len(some) < step:
                return found, None
        return found, found[-1].name

    def check_room(self, puts: Sequence[PutDocument]) -> None:
        """Refuse new documents beyond the number that a tenant may have of a kind."""
        for (kind, tenant), count in Counter((put.kind, put.tenant) for put in puts).items():
            if self._room.get((kind, tenant), 0) < count:  # not every put was a new document: count them again
                room = MAX_DOCUMENTS - self._core.engine.count_documents(kind, tenant)
                if room < count and any(self._core.engine.document(kind, tenant, put.name) is None for put in puts):
                    raise StorageFull(
                        f"a tenant has at most {MAX_DOCUMENTS} documents of kind {kind}",
                        hint="remove those of programs that are gone",
                    )
                self._room[kind, tenant] = max(min(room, _COUNTED), count)
            self._room[kind, tenant] -= count

    # -- changes

    def change(self, calls: Sequence[Call], *, again: bool) -> list[Any]:
        try:
            if self.store.joint or all(isinstance(request, PutDocument | DeleteDocument) for request in calls):
                return self.store.together(calls) if self.store.joint else self.store.run(calls)
            return [self._core.coalescer.submit(request) for request in calls]
        except VersionConflict:
            if again and (replies := self._find_replies(calls)) is not None:
                return replies
            raise

    def _find_replies(self, calls: Iterable[Call]) -> list[Any] | None:
        """The replies to a repeated request, if its first try was carried out and the response was lost."""
        replies: list[Any] = []
        for request in calls:
            if isinstance(request, PutDocument):
                found = self.store.document(request.kind, request.tenant, request.name)
                if found is None or found.value != request.value or found.version == request.version:
                    return None
                replies.append(found.version)
            elif isinstance(request, DeleteDocument):
                if self.store.document(request.kind, request.tenant, request.name) is not None:
                    return None
                replies.append(True)
            else:
                replies.append(0)
        return replies
