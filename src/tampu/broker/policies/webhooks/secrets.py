"""The secrets that sign deliveries: one, and for some time after a change the one before it too."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from tampu.engines.port import Document, PutDocument
from tampu.model.decoders import from_json

_KIND, _NAME = "webhook_secret", "signing"


class SigningSecret(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the document."""

    secret: str
    previous: str | None = None
    previous_until_us: int = 0


_read = from_json(SigningSecret | str).decode


def place(tenant: str) -> tuple[str, str, str]:
    """Kind, tenant and name of the document."""
    return _KIND, tenant, _NAME


def _stored(document: Document) -> SigningSecret:
    found = _read(document.value)
    return SigningSecret(found) if isinstance(found, str) else found  # a text before secrets could overlap


def change(tenant: str, document: Document | None, secret: str, previous_until_us: int) -> PutDocument:
    """The call that stores a secret. The one before it signs too until then; the same secret again is no change."""
    old = None if document is None else _stored(document)
    if old is not None and old.secret == secret:
        new = msgspec.structs.replace(old, previous_until_us=previous_until_us)
    else:
        new = SigningSecret(secret, None if old is None else old.secret, previous_until_us)
    if not new.previous_until_us:
        new = SigningSecret(secret)
    version = 0 if document is None else document.version
    return PutDocument(*place(tenant), msgspec.json.encode(new), version)


def signing(document: Document | None, now: int) -> list[str]:
    """The secrets that sign now, the newest first."""
    if document is None:
        return []
    found = _stored(document)
    return [found.secret, *([found.previous] if found.previous and now < found.previous_until_us else [])]


def signature(secrets: Sequence[str], at: int, body: bytes) -> str:
    """The value of the header ``tampu-signature``: the time, and a signature of the time, a dot and the body by each
    secret. Receivers compute theirs and look for it."""
    made = [hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={at}", *(f"v1={one}" for one in made)])
