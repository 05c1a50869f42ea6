"""API keys, stored as documents. Only the hash of the secret is stored; the whole key is shown once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

import msgspec

from tampu.broker import key_documents
from tampu.engines.port import DeleteDocument, Document, PutDocument, Together
from tampu.model.decoders import from_json
from tampu.model.errors import InvalidMessage
from tampu.model.grants import Grant
from tampu.model.times import SECOND

KIND, TENANT, CHANGES = key_documents.KIND, key_documents.TENANT, key_documents.CHANGES
_TOKEN = re.compile(r"tampu_([a-z0-9]{12})_([A-Za-z0-9_-]{43})\Z")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_MOST = 1_000_000_000
MOST_GRANTS = 50


class Previous(msgspec.Struct, frozen=True):
    """The secret before a rotation, and until when it is valid."""

    hash: bytes
    until_us: int


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    tenant: str
    name: str
    hash: bytes
    grants: tuple[Grant, ...]
    created_us: int
    expires_us: int | None = None
    rotated_us: int | None = None
    previous: Previous | None = None
    rate: float = 0
    burst: int = 0

    @property
    def prefix(self) -> str:
        """Identifies the key in lists and logs."""
        return f"tampu_{self.id}"

    def is_valid(self, secret_hash: bytes, now_us: int) -> bool:
        """True if this is a valid secret of the key now. Compares in constant time."""
        current = hmac.compare_digest(secret_hash, self.hash)
        previous = self.previous is not None and hmac.compare_digest(secret_hash, self.previous.hash)
        if self.expires_us is not None and now_us >= self.expires_us:
            return False
        return current or (previous and self.previous is not None and now_us < self.previous.until_us)

    def hashes(self, now_us: int) -> list[bytes]:
        """The hashes of its valid secrets: the current one, and for a while the one before a rotation."""
        known = [self.hash] if self.previous is None else [self.hash, self.previous.hash]
        return [each for each in known if self.is_valid(each, now_us)]

    def ends_us(self, secret_hash: bytes) -> int | None:
        """When this secret expires; None if never."""
        if self.previous is not None and not hmac.compare_digest(secret_hash, self.hash):
            return min(self.previous.until_us, self.expires_us or self.previous.until_us)
        return self.expires_us


_read = from_json(Key).decode


def split(token: str) -> tuple[str, bytes] | None:
    """(the key's id, the hash of its secret); None if the token does not look like a key."""
    found = _TOKEN.match(token)
    return None if found is None else (found[1], _hash(found[2]))


def _hash(secret: str) -> bytes:
    # The secret has 256 random bits and cannot be guessed, so a slow hash would only cost time.
    return hashlib.sha256(secret.encode()).digest()


def aws_secret(secret_hash: bytes) -> str:
    """The secret access key that belongs to a key: AWS signatures are checked with it, and it opens nothing else."""
    return base64.b64encode(hmac.digest(secret_hash, b"tampu aws secret access key", "sha256")[:30]).decode()


def mint(
    tenant: str,
    name: str,
    grants: Sequence[Grant],
    now_us: int,
    *,
    expires_in: float | None = None,
    rate: float = 0,
    burst: int = 0,
) -> tuple[Key, str]:
    """A new key, and the token that is shown once."""
    if not 0 < len(name) <= 100 or not name.isprintable():
        raise InvalidMessage("name must be a printable text of 1 to 100 characters", field="name")
    if not grants:
        raise InvalidMessage("a key needs a grant", field="grants", hint="for example publish:orders.*")
    if len(grants) > MOST_GRANTS:
        raise InvalidMessage(f"a key has at most {MOST_GRANTS} grants", field="grants", hint="use patterns of queues")
    if expires_in is not None and not 0 < expires_in <= 100 * 366 * 86_400:
        raise InvalidMessage("expires_in must be seconds, more than 0", field="expires_in")
    if not 0 <= rate <= _MOST or not 0 <= burst <= _MOST:
        raise InvalidMessage(f"rate and burst must be between 0 and {_MOST}", field="rate")
    id, secret = "".join(secrets.choice(_LETTERS) for _ in range(12)), secrets.token_urlsafe(32)
    expires_us = None if expires_in is None else now_us + round(expires_in * SECOND)
    key = Key(id, tenant, name, _hash(secret), tuple(grants), now_us, expires_us, rate=rate, burst=burst)
    return key, f"{key.prefix}_{secret}"


def of_token(token: str, tenant: str, name: str, grants: Sequence[Grant], now_us: int) -> Key | None:
    """The key for a token that was made earlier."""
    parts = split(token)
    if parts is None:
        return None
    id, digest = parts
    return Key(id, tenant, name, digest, tuple(grants), now_us)


def rotated(key: Key, now_us: int, overlap: float) -> tuple[Key, str]:
    """The key with a new secret; the old one stays valid for ``overlap`` seconds."""
    if not 0 <= overlap <= 366 * 86_400:
        raise InvalidMessage("overlap must be seconds, up to a year", field="overlap")
    secret = secrets.token_urlsafe(32)
    previous = Previous(key.hash, now_us + round(overlap * SECOND)) if overlap else None
    new = msgspec.structs.replace(key, hash=_hash(secret), previous=previous, rotated_us=now_us)
    return new, f"{key.prefix}_{secret}"


def saving(key: Key, version: int | None = None) -> Together:
    return _together(PutDocument(KIND, TENANT, key.id, msgspec.json.encode(key), version))


def revoking(id: str) -> Together:
    return _together(DeleteDocument(KIND, TENANT, id))


def _together(change: PutDocument | DeleteDocument) -> Together:
    return Together(TENANT, [change, key_documents.announcement()])


def decode(document: Document) -> Key:
    return _read(document.value)
