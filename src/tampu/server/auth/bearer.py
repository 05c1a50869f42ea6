"""Bearer tokens (JWT) of an identity provider. Its signing keys are cached, and read again when they rotate."""

from __future__ import annotations

import asyncio
import hashlib
import time
import urllib.request
from typing import Any

import jwt
import msgspec

from tampu.broker import validate
from tampu.model.decoders import convert, from_json
from tampu.model.errors import InvalidMessage, Unauthorized, Unavailable
from tampu.model.grants import Grant
from tampu.server.auth.grants import ALL_TENANTS, Caller
from tampu.server.settings import ServerSettings
from tampu.wire.problems import clean

_RSA = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
_ALGORITHMS = [*_RSA, "ES256", "ES384", "ES512", "EdDSA"]
_KEYS_SECONDS = 300.0
_REREAD_SECONDS = 5.0
"""An unknown key id makes us read the issuer's keys again, at most this often."""
_LEEWAY = 30
_MOST_BYTES = 1 << 20
_MOST_KNOWN = 10_000
_MOST_TENANTS = 100
"""Tenants in which one token is known; a token of all tenants may name any."""
_MOST_SECONDS = 365 * 86_400
_RECHECK_SECONDS = 60.0
_Key = jwt.PyJWK | Any
"""A key with its algorithm; or an RSA key without one, valid for all of `_RSA`."""
_read_keys = from_json(dict[str, Any]).decode


class Claims(msgspec.Struct, forbid_unknown_fields=True):
    """The content of tampu's claim in a token."""

    tenant: str
    grants: tuple[Grant, ...]


class Bearer:
    """A token that was found valid."""

    __slots__ = ("callers", "claims", "recheck", "subject", "valid_until")

    def __init__(self, claims: Claims, subject: str, valid_until: float) -> None:
        self.claims = claims
        self.subject = subject
        self.valid_until = valid_until
        self.recheck = min(valid_until, time.monotonic() + _RECHECK_SECONDS)
        self.callers: dict[str, Caller] = {}

    def as_tenant(self, tenant: str) -> Caller:
        known = self.callers.get(tenant)
        if known is None:
            if len(self.callers) >= _MOST_TENANTS:
                self.callers.clear()
            bucket = f"token.{hashlib.sha256(self.subject.encode()).hexdigest()[:32]}"
            known = self.callers[tenant] = Caller(
                tenant, self.subject, self.claims.grants, bucket=bucket, valid_until=self.valid_until
            )
        return known


class Issuer:
    def __init__(self, settings: ServerSettings) -> None:
        self._issuer = settings.oidc_issuer or ""
        self._audience = settings.oidc_audience or ""
        self._jwks_url = settings.oidc_jwks_url
        self._claim = settings.oidc_claim
        self._keys: dict[str, _Key] = {}
        self._read_at = -_KEYS_SECONDS
        self._lock = asyncio.Lock()
        self._known: dict[bytes, Bearer] = {}

    def find(self, token: str) -> Bearer | None:
        known = self._known.get(_digest(token))
        return known if known is not None and time.monotonic() < known.recheck else None

    async def check(self, token: str) -> Bearer:
        """Check a token: signature, issuer, audience, times, and tampu's claim."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, RecursionError):
            raise Unauthorized("this is neither a key nor a token", field="authorization") from None
        key = await self._key(str(header.get("kid", "")))
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS if isinstance(key, jwt.PyJWK) else _RSA,
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, OverflowError, TypeError) as error:  # the last two: PyJWT before 2.11
            raise Unauthorized(f"invalid token: {error}", field="authorization", hint="get a new one") from None
        bearer = self._read(claims)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[_digest(token)] = bearer
        return bearer

    def _read(self, claims: dict[str, Any]) -> Bearer:
        try:
            ours = convert(claims.get(self._claim), Claims)
            if ours.tenant != ALL_TENANTS:
                validate.name(ours.tenant, "tenant")
        except (msgspec.ValidationError, InvalidMessage) as error:
            raise Unauthorized(f"the token has no usable claim {self._claim}: {error}") from None
        left = min(int(claims["exp"]) - int(time.time()), _MOST_SECONDS)
        valid_until = time.monotonic() + left + _LEEWAY
        return Bearer(ours, clean(str(claims.get("sub", "token")))[:100], valid_until)

    async def _key(self, kid: str) -> _Key:
        if kid in self._keys and time.monotonic() - self._read_at <= _KEYS_SECONDS:
            return self._keys[kid]  # without waiting for who looks for an unknown one
        async with self._lock:
            age = time.monotonic() - self._read_at
            if age > _KEYS_SECONDS or (kid not in self._keys and age > _REREAD_SECONDS):
                self._read_at = time.monotonic()
                try:
                    self._keys = await asyncio.to_thread(self._fetch)
                except (OSError, ValueError, jwt.PyJWTError) as error:
                    if not self._keys:
                        self._read_at = time.monotonic() - _KEYS_SECONDS + 1
                        raise Unavailable(f"cannot read the issuer's keys: {error}") from None
        found = self._keys.get(kid)
        if found is None and not kid and len(self._keys) == 1:
            (found,) = self._keys.values()
        if found is None:
            raise Unauthorized("the token is signed with a key that the issuer does not list", field="authorization")
        return found

    def _fetch(self) -> dict[str, _Key]:
        url = self._jwks_url
        try:
            if url is None:
                discovery = _get_json(self._issuer.rstrip("/") + "/.well-known/openid-configuration")
                url = str(discovery["jwks_uri"])
            return _usable(_get_json(url))
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the answer has an unexpected form: {error!r}") from None


def _usable(given: dict[str, Any]) -> dict[str, _Key]:
    """The keys that sign, by their ids. An issuer may list others, such as for encryption."""
    key_set = {"keys": [key for key in given["keys"] if key.get("use", "sig") == "sig" and _verifies(key)]}
    no_algorithm = {key.get("kid") for key in key_set["keys"] if key.get("kty") == "RSA" and not key.get("alg")}
    keys = jwt.PyJWKSet.from_dict(key_set).keys
    return {key.key_id or "": key.key if key.key_id in no_algorithm else key for key in keys}


def _verifies(key: dict[str, Any]) -> bool:
    return "key_ops" not in key or "verify" in key["key_ops"]


def _get_json(url: str) -> dict[str, Any]:
    if not url.startswith(("https://", "http://")):
        raise ValueError("the issuer's url must be http or https")
    with urllib.request.urlopen(url, timeout=5) as answer:
        return _read_keys(answer.read(_MOST_BYTES))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
