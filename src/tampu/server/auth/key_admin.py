"""Creating, listing, rotating and revoking keys; used by the API and the command."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from tampu.broker import validate
from tampu.broker.audit import Recording, current_user
from tampu.broker.core import Core, Read, Steps
from tampu.engines.port import Document
from tampu.model.audit import Actor
from tampu.model.errors import NotFound, VersionConflict
from tampu.model.grants import Grant
from tampu.model.times import moment, moment_or_none
from tampu.server.auth import keys
from tampu.server.auth.grants import ALL_TENANTS
from tampu.server.auth.key_cache import last_uses

_TRIES = 10


class KeyView(msgspec.Struct, omit_defaults=True):
    """A key without its secret."""

    id: str
    prefix: str
    tenant: str
    name: str
    grants: tuple[Grant, ...]
    created_at: datetime
    expires_at: datetime | None = None
    rotated_at: datetime | None = None
    previous_until: datetime | None = None
    """Until when the secret before the rotation is valid."""
    last_used_at: datetime | None = None
    """Up to a minute late."""
    rate: float = 0
    burst: int = 0


class NewKey(msgspec.Struct):
    """``token`` is shown only once."""

    token: str
    key: KeyView


class KeyAdmin(Recording):
    """The keys of one tenant, or of all (``*``). With ``shared`` also the keys that may act in every tenant."""

    def __init__(self, core: Core, tenant: str, *, shared: bool = False, actor: Actor | None = None) -> None:
        self.core = core
        self.tenant = "default" if tenant == ALL_TENANTS else tenant
        """Where the records of the audit trail are."""
        self.actor = current_user() if actor is None else actor
        self._owner = tenant
        self._shared = shared

    def create(
        self,
        name: str,
        grants: Sequence[Grant],
        *,
        tenant: str | None = None,
        expires_in: float | None = None,
        rate: float = 0,
        burst: int = 0,
    ) -> Steps[NewKey]:
        owner = tenant or self._owner
        if owner != ALL_TENANTS:
            validate.name(owner, "tenant")
        now: int = yield Read(lambda engine: engine.now())
        key, token = keys.mint(owner, name, grants, now, expires_in=expires_in, rate=rate, burst=burst)
        yield from self.recorded(keys.saving(key, 0).calls, "key.create", name, None, view(key))
        return NewKey(token, view(key))

    def list(self) -> Steps[list[KeyView]]:
        documents: list[Document] = yield Read(lambda engine: engine.documents(keys.KIND, keys.TENANT))
        used: dict[str, int] = yield Read(last_uses)
        found = [keys.decode(document) for document in documents]
        return [view(key, used.get(key.id)) for key in sorted(found, key=lambda k: k.created_us) if self._ours(key)]

    def rotate(self, id: str, *, overlap: float = 86_400) -> Steps[NewKey]:
        """Give the key a new secret; the old one stays valid for ``overlap`` seconds."""
        for _ in range(_TRIES):
            key, version = yield from self._find(id)
            now: int = yield Read(lambda engine: engine.now())
            new, token = keys.rotated(key, now, overlap)
            try:
                yield from self.recorded(keys.saving(new, version).calls, "key.rotate", key.name)
            except VersionConflict:
                continue
            return NewKey(token, view(new))
        raise VersionConflict("the key keeps changing", hint="try again")

    def revoke(self, id: str) -> Steps[None]:
        key, _ = yield from self._find(id)
        yield from self.recorded(keys.revoking(id.removeprefix("tampu_")).calls, "key.revoke", key.name, view(key))

    def _find(self, id: str) -> Steps[tuple[keys.Key, int]]:
        id = id.removeprefix("tampu_")
        document: Document | None = yield Read(lambda engine: engine.document(keys.KIND, keys.TENANT, id))
        key = None if document is None else keys.decode(document)
        if document is None or key is None or not self._ours(key):
            raise NotFound("no such key", field="id", hint="tampu keys list shows the keys")
        return key, document.version

    def _ours(self, key: keys.Key) -> bool:
        return self._owner in (ALL_TENANTS, key.tenant) or (self._shared and key.tenant == ALL_TENANTS)


def view(key: keys.Key, used_us: int | None = None) -> KeyView:
    return KeyView(
        key.id, key.prefix, key.tenant, key.name, key.grants, moment(key.created_us), moment_or_none(key.expires_us),
        moment_or_none(key.rotated_us), None if key.previous is None else moment(key.previous.until_us),
        moment_or_none(used_us), key.rate, key.burst,
    )  # fmt: skip
