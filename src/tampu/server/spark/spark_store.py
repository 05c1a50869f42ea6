"""The store of a node as Spark uses it: pieces of snapshots that only this server reads, changes in one commit.

Everything here is called in threads, away from the loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tampu.broker.core import Core
from tampu.engines.port import Call, DeleteDocument, PutDocument
from tampu.model.decoders import from_msgpack
from tampu.model.errors import InvalidConfig, InvalidMessage, VersionConflict
from tampu.server.auth.signin import session_secret

if TYPE_CHECKING:
    from tampu.stores.port import ArrowStore

_SIGNED = 32
STREAMS = 16
"""Arrow streams at once on a node; each holds a batch. More wait for their turn."""


class Planned(msgspec.Struct, array_like=True, frozen=True):
    """A piece of a plan, and whose it is."""

    tenant: str | None
    queues: tuple[str, ...]
    """(): all there are."""
    columns: tuple[str, ...]
    piece: bytes


_to_planned = from_msgpack(Planned).decode


class SparkStore:
    def __init__(self, core: Core) -> None:
        try:
            from tampu.stores.open_store import store_of
        except ImportError as error:
            raise InvalidConfig(
                f"this server can not serve Spark without {error.name}",
                hint="pip install 'tampu[server,spark]' where it runs",
            ) from error
        self._core = core
        self.store: ArrowStore = store_of(core.engine)
        self.places = asyncio.Semaphore(STREAMS)
        self._secret = hashlib.sha256(b"spark" + session_secret(core).encode()).digest()

    # -- pieces

    def sign(self, planned: Planned) -> bytes:
        raw = msgspec.msgpack.encode(planned)
        return hmac.digest(self._secret, raw, "sha256") + raw

    def read(self, signed: bytes) -> Planned:
        """A piece that a node of this store has planned."""
        mark, raw = signed[:_SIGNED], signed[_SIGNED:]
        if not hmac.compare_digest(mark, hmac.digest(self._secret, raw, "sha256")):
            raise InvalidMessage(
                "this piece was not planned on this store", field="piece", hint="plan and read on servers of one store"
            )
        return _to_planned(raw)

    # -- queues

    def queues(self, tenant: str | None) -> set[str]:
        return {name for owner, name in self._core.engine.queues() if tenant is None or owner == tenant}

    # -- changes

    def change(self, calls: Sequence[Call], *, again: bool) -> list[Any]:
        try:
            if self.store.joint or all(isinstance(request, PutDocument | DeleteDocument) for request in calls):
                return self.store.together(calls) if self.store.joint else self.store.run(calls)
            return [self._core.coalescer.submit(request) for request in calls]
        except VersionConflict:
            if again and (found := self._there(calls)) is not None:
                return found
            raise

    def _there(self, calls: Iterable[Call]) -> list[Any] | None:
        """The replies to changes whose first answer was lost, if they have been carried out."""
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
