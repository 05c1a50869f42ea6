"""Signing in with a browser: a link that works once, and a cookie that stands for a key until it is revoked."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import time

import jwt
import msgspec

from tampu.broker.core import Core
from tampu.engines.port import PutDocument
from tampu.model.decoders import from_json
from tampu.model.errors import Unauthorized, VersionConflict
from tampu.server.auth.keys import TENANT

COOKIE = "tampu_session"
CHOICE = "tampu_tenant"
"""The cookie with the tenant that the page shows to somebody who may see any."""
SESSION_SECONDS = 12 * 3600
LINK_SECONDS = 15 * 60
_KIND = "secret"
_NAME = "session"
_FOR = "tampu-session"


class _Secret(msgspec.Struct):
    value: str


_read = from_json(_Secret).decode


def session_secret(core: Core) -> str:
    """What cookies are signed with, the same on every node; made by the first."""
    found = core.engine.document(_KIND, TENANT, _NAME)
    if found is None:
        made = msgspec.json.encode(_Secret(secrets.token_urlsafe(48)))
        with contextlib.suppress(VersionConflict):  # another node was first
            core.coalescer.submit(PutDocument(_KIND, TENANT, _NAME, made, 0))
        found = core.engine.document(_KIND, TENANT, _NAME)
        assert found is not None
    return _read(found.value).value


class SignIn:
    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._links: dict[str, tuple[str, float]] = {}

    def link_token(self, key_id: str) -> str:
        """A token that signs in once, as this key, for a short while; on this node."""
        token = secrets.token_urlsafe(32)
        self._links[token] = (key_id, time.monotonic() + LINK_SECONDS)
        return token

    def use_link(self, token: str) -> str:
        """The id of the key that the link stands for; it is spent."""
        for known in list(self._links):
            if hmac.compare_digest(known.encode(), token.encode("utf-8", "replace")):
                key_id, until = self._links.pop(known)
                if time.monotonic() < until:
                    return key_id
        raise Unauthorized("this link was used or is too old", hint="sign in with a key")

    def cookie(self, key_id: str, key_hash: bytes) -> str:
        """A session: ends with its time, with the key, and with a new secret of the key."""
        claims = {"key": key_id, "of": key_hash.hex(), "aud": _FOR, "exp": int(time.time()) + SESSION_SECONDS}
        return jwt.encode(claims, self._secret, algorithm="HS256")

    def read(self, cookie: str) -> tuple[str, bytes]:
        """(the id of the session's key, the hash of its secret)"""
        try:
            claims = jwt.decode(
                cookie, self._secret, algorithms=["HS256"], audience=_FOR, options={"require": ["exp", "key", "of"]}
            )
            return str(claims["key"]), bytes.fromhex(claims["of"])
        except (jwt.PyJWTError, ValueError, TypeError):
            raise Unauthorized("the session has ended", hint="sign in again") from None
