"""AWS Signature Version 4: checks who signed a request, and that nobody changed it on the way.

The access key id is the public prefix of a tampu key. The secret is derived from the key (`keys.aws_secret`), so the
server, which stores only hashes of keys, can compute it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from tampu.server.sqs.errors import SqsError

ALGORITHM = "AWS4-HMAC-SHA256"
MOST_SKEW = 15 * 60
"""Seconds that the clocks of a client and the server may differ."""
_HEADER = re.compile(
    rb"AWS4-HMAC-SHA256 +Credential=([A-Za-z0-9_]{1,128})/(\d{8})/([a-z0-9-]{1,40})/sqs/aws4_request, *"
    rb"SignedHeaders=([a-z0-9;\-]{1,2000}), *Signature=([0-9a-f]{64})\Z"
)
_NEEDED = ("host", "x-amz-date")
_NEEDED_IF_SENT = ("content-type", "tampu-tenant")
_SPACES = re.compile(rb" +")


class Signed(msgspec.Struct, frozen=True):
    """The ``Authorization`` header of a signed request."""

    key: str
    date: str
    region: str
    headers: tuple[str, ...]
    signature: str


def is_signed(authorization: bytes) -> bool:
    return authorization.startswith(ALGORITHM.encode())


def read(authorization: bytes) -> Signed:
    found = _HEADER.match(authorization)
    if found is None:
        raise SqsError("IncompleteSignature", f"Authorization must be {ALGORITHM} with a credential for sqs", 403)
    key, date, region, headers, signature = (part.decode() for part in found.groups())
    return Signed(key, date, region, tuple(headers.split(";")), signature)


def check_time(signed: Signed, given: bytes | None, now_us: int) -> str:
    """The time of the request, ``x-amz-date``; refuses one that is not about now."""
    text = "" if given is None else given.decode("latin-1")
    try:
        at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise SqsError("IncompleteSignature", "send X-Amz-Date, such as 20260131T120000Z", 403) from None
    skew = abs(at.timestamp() - now_us / 1e6)
    if skew > MOST_SKEW:
        raise SqsError(
            "SignatureDoesNotMatch",
            f"Signature expired: the clocks differ by {skew:.0f} seconds; set the clock of this computer",
            403,
        )
    if not text.startswith(signed.date):
        raise SqsError("SignatureDoesNotMatch", "the date of the credential is not that of X-Amz-Date", 403)
    return text


def check_headers(signed: Signed, names: Iterable[bytes]) -> None:
    """Refuse a request whose action or time somebody could exchange: their headers must be signed."""
    unsigned = [name for name in _NEEDED if name not in signed.headers]
    sent = [name.decode("latin-1") for name in names]
    unsigned += [n for n in sent if (n.startswith("x-amz-") or n in _NEEDED_IF_SENT) and n not in signed.headers]
    if unsigned:
        raise SqsError("IncompleteSignature", f"these headers must be signed: {', '.join(unsigned)}", 403)


def canonical(
    method: str, raw_path: bytes, query: bytes, headers: Sequence[tuple[bytes, bytes]], signed: Signed, body: bytes
) -> str:
    """The request in the form that is signed."""
    path = urllib.parse.quote(raw_path, safe="/~")  # once more: the path as it is sent is encoded already
    pairs = sorted(pair.partition(b"=")[::2] for pair in query.split(b"&") if pair)
    lines = [method, path, "&".join(f"{name.decode()}={value.decode()}" for name, value in pairs)]
    for name in signed.headers:
        values = [_SPACES.sub(b" ", value.strip()) for given, value in headers if given == name.encode()]
        lines.append(f"{name}:{b','.join(values).decode('latin-1')}")
    lines += ["", ";".join(signed.headers), hashlib.sha256(body).hexdigest()]
    return "\n".join(lines)


def compute(secret: str, signed: Signed, at: str, request: str) -> str:
    """The signature of a request in its canonical form."""
    scope = f"{signed.date}/{signed.region}/sqs/aws4_request"
    text = f"{ALGORITHM}\n{at}\n{scope}\n{hashlib.sha256(request.encode('latin-1')).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in (signed.date, signed.region, "sqs", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def matches(secret: str, signed: Signed, at: str, request: str) -> bool:
    """True if the request was signed with this secret. Compares in constant time."""
    return hmac.compare_digest(compute(secret, signed, at, request), signed.signature)
