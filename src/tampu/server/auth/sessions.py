"""Browser sessions and sign-in links: random tokens that end. The store has only their hashes, so that whoever reads
the store, or a copy of it, cannot sign in."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time

import msgspec

from tampu.broker.core import Core
from tampu.engines.port import DeleteDocument, PutDocument
from tampu.model.decoders import from_json
from tampu.model.errors import Unauthorized
from tampu.model.times import SECOND
from tampu.server.auth.keys import TENANT

COOKIE = "tampu_session"
CHOICE = "tampu_tenant"
"""The cookie with the tenant that the dashboard shows, for callers of all tenants."""
SESSION_SECONDS = 12 * 3600
LINK_SECONDS = 15 * 60
KIND = "session"
LINK = "signin"
_MOST = 10_000
_LEEWAY = 60
"""Seconds that a node's clock may be behind that of another."""
_MOST_OF_KEY = 20
"""Sessions of one key; a further one ends the oldest."""


class Stored(msgspec.Struct, frozen=True):
    """What the store keeps of a session or a link, under the hash of its token."""

    key_id: str
    key_hash: str
    """A session ends with the secret it was made with. Empty for a link."""
    until_us: int


class _Known(msgspec.Struct, frozen=True):
    key_id: str
    key_hash: bytes
    until: float
    """Monotonic clock."""


_read = from_json(Stored).decode


class Sessions:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[str, _Known] = {}
        self._changes = 0
        """Number of changes of documents. What was read before the last one may be outdated."""

    def forget(self) -> None:
        """A document changed; called on the event loop."""
        self._changes += 1
        self._known.clear()

    async def begin(self, key_id: str, key_hash: bytes) -> str:
        """A new session; returns its token, which is the cookie."""
        found = await asyncio.to_thread(_all, self._core, KIND)
        of_key = [name for name, session in found if session.key_id == key_id]
        ended = of_key[: max(0, len(of_key) - _MOST_OF_KEY + 1)] or [name for name, _ in found[: len(found) - _MOST]]
        for name in ended:
            await self._core.coalescer.submit_async(DeleteDocument(KIND, TENANT, name))
        token = secrets.token_urlsafe(32)
        put = await asyncio.to_thread(_put, self._core, KIND, token, key_id, key_hash, SESSION_SECONDS)
        await self._core.coalescer.submit_async(put)
        return token

    async def read(self, token: str) -> tuple[str, bytes]:
        """(the id of the session's key, the hash of its secret)"""
        name = _hash(token)
        known = self._known.get(name)
        if known is None:
            before = self._changes
            known = await asyncio.to_thread(self._look_up, name)
            if known is not None and before == self._changes:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[name] = known
        if known is None or time.monotonic() >= known.until:
            raise Unauthorized("the session has ended", hint="sign in again")
        return known.key_id, known.key_hash

    async def end(self, token: str) -> bool:
        """End a session; False if there is none."""
        name = _hash(token)
        self._known.pop(name, None)
        if await asyncio.to_thread(self._core.engine.document, KIND, TENANT, name) is None:
            return False  # without a write: anybody can send a cookie
        ended: bool = await self._core.coalescer.submit_async(DeleteDocument(KIND, TENANT, name))
        return ended

    async def use_link(self, token: str) -> str:
        """Use up a link; returns the id of its key."""
        name = _hash(token)
        found = await asyncio.to_thread(self._core.engine.document, LINK, TENANT, name)
        if found is not None and await self._core.coalescer.submit_async(DeleteDocument(LINK, TENANT, name)):
            link = _read(found.value)
            if await asyncio.to_thread(self._core.engine.now) < link.until_us:
                return link.key_id
        raise Unauthorized("this link was used already or has expired", hint="run tampu signin, or sign in with a key")

    def _look_up(self, name: str) -> _Known | None:
        document = self._core.engine.document(KIND, TENANT, name)
        if document is None:
            return None
        session = _read(document.value)
        left = (session.until_us - self._core.engine.now()) / SECOND
        if left > SESSION_SECONDS + _LEEWAY:
            return None  # not made by `begin`
        return _Known(session.key_id, bytes.fromhex(session.key_hash), time.monotonic() + left)


def make_link(core: Core, key_id: str) -> str:
    """The token of a link that signs in once as this key, for 15 minutes, on any node."""
    _all(core, LINK)
    token = secrets.token_urlsafe(32)
    core.coalescer.submit(_put(core, LINK, token, key_id, b"", LINK_SECONDS))
    return token


def end_all(core: Core) -> int:
    """End all sessions and links; returns the number of sessions."""
    ended = 0
    for kind in (LINK, KIND):
        found = core.engine.documents(kind, TENANT)
        ended = sum(core.coalescer.submit(DeleteDocument(kind, TENANT, document.name)) for document in found)
    return ended


def _all(core: Core, kind: str) -> list[tuple[str, Stored]]:
    """(name, session or link), the one that ends first at the beginning. Those that have ended are removed."""
    now = core.engine.now()
    found: list[tuple[str, Stored]] = []
    for document in core.engine.documents(kind, TENANT):
        stored = _read(document.value)
        if stored.until_us > now:
            found.append((document.name, stored))
        else:
            core.coalescer.submit(DeleteDocument(kind, TENANT, document.name))
    return sorted(found, key=lambda each: each[1].until_us)


def _put(core: Core, kind: str, token: str, key_id: str, key_hash: bytes, seconds: int) -> PutDocument:
    stored = Stored(key_id, key_hash.hex(), core.engine.now() + seconds * SECOND)
    return PutDocument(kind, TENANT, _hash(token), msgspec.json.encode(stored), 0)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
