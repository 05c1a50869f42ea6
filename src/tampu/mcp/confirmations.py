"""Confirmation tokens: what changes much is done in two calls, and the second proves what the first one has shown.

A token is valid for some minutes, for one caller, one tool, the same arguments, and the same preview. It is signed and
stored nowhere, so any node of a server takes it. It works once in effect: what it did changes what a preview shows.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tampu.model.decoders import from_json
from tampu.model.errors import InvalidMessage, InvalidState

SECONDS = 300
_MOST = 4000
_SIGNATURE = 32


class Confirmed(msgspec.Struct, frozen=True, array_like=True):
    until: int
    """Unix time."""
    shown: str
    """The digest of the preview."""
    kept: dict[str, Any]
    """What the first call has fixed for the second, such as a time."""


_read = from_json(Confirmed).decode


class Confirmations:
    """The tokens of one caller."""

    def __init__(self, secret: bytes | None = None, caller: str = "", clock: Callable[[], float] = time.time) -> None:
        self._secret = secret or secrets.token_bytes(32)
        self._caller = caller
        self._clock = clock

    def token(self, tool: str, arguments: Any, shown: Any, kept: dict[str, Any]) -> str:
        body = msgspec.json.encode(Confirmed(int(self._clock()) + SECONDS, digest(shown), kept))
        return base64.urlsafe_b64encode(self._sign(tool, arguments, body) + body).decode().rstrip("=")

    def check(self, token: str, tool: str, arguments: Any) -> Confirmed:
        """What was confirmed; raises if the token is not for this call."""
        again = f"call {tool} without confirm, look at the preview, and use its confirm"
        try:
            raw = base64.urlsafe_b64decode(token[:_MOST] + "=" * (-len(token[:_MOST]) % 4))
        except (ValueError, binascii.Error):
            raise InvalidMessage("confirm is not a confirmation token", field="confirm", hint=again) from None
        signature, body = raw[:_SIGNATURE], raw[_SIGNATURE:]
        if not hmac.compare_digest(signature, self._sign(tool, arguments, body)):
            raise InvalidMessage(
                "confirm is not for this call: another tool, other arguments, or another caller",
                field="confirm",
                hint=again,
            )
        found = _read(body)
        if found.until < self._clock():
            raise InvalidState("the confirmation has expired", field="confirm", hint=again)
        return found

    def _sign(self, tool: str, arguments: Any, body: bytes) -> bytes:
        parts = [self._caller.encode(), tool.encode(), digest(arguments).encode(), body]
        message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._secret, message, "sha256")


def digest(value: Any) -> str:
    """Equal for equal values, whatever the order of their keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
