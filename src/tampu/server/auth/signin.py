"""Browser sign-in: a link that works once, and a session cookie that stands for a key."""

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
"""The cookie with the tenant that the dashboard shows, for callers of all tenants."""
SESSION_SECONDS = 12 * 3600
LINK_SECONDS = 15 * 60
_KIND = "secret"
_NAME = "session"
_FOR = "tampu-session"


class _Secret(msgspec.Struct):
    value: str


_read = from_json(_Secret).decode


def session_secret(core: Core) -> str:
    """The secret that signs cookies, shared by all nodes; the first node makes it."""
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
        """A token that signs in once as this key, for 15 minutes, on this node."""
        token = secrets.token_urlsafe(32)
        self._links[token] = (key_id, time.monotonic() + LINK_SECONDS)
        return token

    def use_link(self, token: str) -> str:
        """Use up a link; returns the id of its key."""
        for known in list(self._links):
            if hmac.compare_digest(known.encode(), token.encode("utf-8", "replace")):
                key_id, until = self._links.pop(known)
                if time.monotonic() < until:
                    return key_id
        raise Unauthorized("this link was used already or has expired", hint="sign in with a key")

    def cookie(self, key_id: str, key_hash: bytes) -> str:
        """A session cookie. The session ends after 12 hours, and when this secret is no longer valid."""
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
