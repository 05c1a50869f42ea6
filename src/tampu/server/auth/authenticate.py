"""Authentication: finds the `Caller` and its tenant from the headers of a request, or refuses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from tampu.broker import validate
from tampu.broker.core import Core
from tampu.model.errors import Forbidden, InvalidMessage, Unauthorized
from tampu.server.auth import keys, origin
from tampu.server.auth.bearer import Bearer, Issuer
from tampu.server.auth.grants import ALL_TENANTS, FULL, Caller
from tampu.server.auth.key_cache import KeyCache, Known
from tampu.server.auth.sessions import CHOICE, COOKIE, Sessions
from tampu.server.limits import Throttle
from tampu.server.settings import ServerSettings

Headers = Mapping[bytes, bytes]
_SAFE = ("GET", "HEAD", "OPTIONS")
_MAX_TOKEN = 8192


class Authenticator:
    def __init__(self, core: Core, settings: ServerSettings) -> None:
        self.key_cache = KeyCache(core)
        self.sessions = Sessions(core)
        self._auth = settings.auth
        self._issuer = Issuer(settings) if settings.oidc_issuer else None
        self._throttle = Throttle(settings.login_attempts)
        self._anybody: dict[str, Caller] = {}

    def known(self, headers: Headers, method: str = "GET") -> Caller | None:
        """The caller if it is cached, as for nearly all requests. No engine call, no network."""
        if not self._auth:
            origin.check_local(headers)
            if method not in _SAFE:
                origin.check_site(headers)
            tenant = _tenant(headers) or _chosen(headers) or "default"
            caller = self._anybody.get(tenant)
            if caller is None:
                if len(self._anybody) > 1000:
                    self._anybody.clear()
                caller = self._anybody[tenant] = Caller(tenant, "anybody", FULL)
            return caller
        token = _token(headers)
        parts = keys.split(token) if token else None
        found: Known | Bearer | None = None
        if parts is not None:
            found = self.key_cache.find(*parts)
        elif token and self._issuer is not None:
            found = self._issuer.find(token)
        return None if found is None else _enter(found, headers)

    async def admit(self, headers: Headers, address: str, method: str = "GET") -> Caller:
        """The caller; raises `Unauthorized`, or `RateLimited` after too many bad keys from this address."""
        try:
            return await self.readmit(headers, method)
        except Unauthorized:
            if b"authorization" in headers:
                self._throttle.failed(address)
            raise

    async def readmit(self, headers: Headers, method: str = "GET") -> Caller:
        """Authenticate again a caller that was admitted before. A revoked key does not count as a bad one."""
        return self.known(headers, method) or _enter(await self._check(headers, method), headers)

    async def _check(self, headers: Headers, method: str) -> Known | Bearer:
        token = _token(headers)
        if token:
            parts = keys.split(token)
            if parts is not None:
                return await self.key_cache.check(*parts)
            if self._issuer is not None:
                return await self._issuer.check(token)
            raise Unauthorized("this is not a key", field="authorization", hint="keys look like tampu_…")
        cookie = _cookie(headers)
        if cookie is None:
            raise Unauthorized("no key given", field="authorization", hint="send Authorization: Bearer with a key")
        if method not in _SAFE:
            origin.check_site(headers)
        session = await self.sessions.read(cookie)
        return self.key_cache.find(*session) or await self.key_cache.check(*session)

    # -- requests that are signed (see `tampu.server.sqs.signature`)

    async def admit_hash(self, id: str, secret_hash: bytes, headers: Headers) -> Caller:
        """The caller whose signature was checked with the secret of this hash."""
        return _enter(self.key_cache.find(id, secret_hash) or await self.key_cache.check(id, secret_hash), headers)

    def failed(self, address: str) -> None:
        """Count a bad signature; raises `RateLimited` after too many from this address."""
        self._throttle.failed(address)

    async def sign_in_with(self, token: str, address: str) -> str:
        """A session cookie for a key typed into a form. Bad keys are counted."""
        parts = keys.split(token.strip())
        try:
            if parts is None:
                raise Unauthorized("this is not a key", field="key", hint="keys look like tampu_…")
            await self.key_cache.check(*parts)
        except Unauthorized:
            self._throttle.failed(address)
            raise
        return await self.sessions.begin(*parts)  # for this secret: a session of a rotated secret ends with it

    async def sign_in_by_link(self, token: str, address: str) -> str:
        """A session cookie for a sign-in link that the server or `tampu signin` printed."""
        try:
            id = await self.sessions.use_link(token)
            key = await asyncio.to_thread(self.key_cache.by_id, id)
            if key is None:
                raise Unauthorized("the key of this link was revoked")
        except Unauthorized:
            self._throttle.failed(address)
            raise
        return await self.sessions.begin(id, key.hash)

    async def sign_out(self, headers: Headers) -> bool:
        """End the session of the cookie, on all nodes; False if there is none."""
        origin.check_site(headers)
        cookie = _cookie(headers)
        return cookie is not None and await self.sessions.end(cookie)


def _enter(found: Known | Bearer, headers: Headers) -> Caller:
    """The caller in the tenant it asks for; refuses a tenant that is not its own."""
    tenant = _tenant(headers)
    own = found.key.tenant if isinstance(found, Known) else found.claims.tenant
    if isinstance(found, Known):
        found.used = time.monotonic()
    if own == ALL_TENANTS:
        if tenant is None and b"authorization" not in headers:
            tenant = _chosen(headers)
        return found.as_tenant(tenant or "default")
    if tenant is not None and tenant != own:
        raise Forbidden(f"this key does not belong to tenant {tenant}", field="tampu-tenant")
    return found.as_tenant(own)


def _tenant(headers: Headers) -> str | None:
    tenant = headers.get(b"tampu-tenant")
    return None if tenant is None else validate.name(tenant.decode("latin-1"), "tenant")


def _chosen(headers: Headers) -> str | None:
    """The tenant that a person chose on the dashboard; used only for callers of all tenants."""
    found = _cookie(headers, CHOICE)
    try:
        return None if found is None else validate.name(found, "tenant")
    except InvalidMessage:
        return None


def _token(headers: Headers) -> str | None:
    given = headers.get(b"authorization")
    if given is None:
        return None
    if given[:7].lower() != b"bearer " or len(given) > _MAX_TOKEN:
        raise Unauthorized("send Authorization: Bearer with a key", field="authorization")
    return given[7:].strip().decode("latin-1")


def _cookie(headers: Headers, name: str = COOKIE) -> str | None:
    given = headers.get(b"cookie")
    if given is None:
        return None
    try:
        found = SimpleCookie(given.decode("latin-1")).get(name)
    except CookieError:
        return None
    return None if found is None else found.value
