"""Connection failures, and the pauses between retries."""

from __future__ import annotations

from collections.abc import Iterator

from tampu.model.errors import PayloadTooLarge, Unavailable
from tampu.model.times import CHANCE

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""Read timeout of a request; a long poll adds its wait."""


MAX_ANSWER = 512 << 20
"""Maximum bytes of an answer; a server that sends more is broken, or none of ours."""


def too_large() -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the server's answer has more than {MAX_ANSWER} bytes", hint="check the url, or ask for fewer messages"
    )


class NotSent(Exception):
    """The server was not reached, so the request was certainly not carried out."""


class NotTrusted(NotSent):
    """The server's certificate is not trusted. A retry would not help."""


class Broken(Exception):
    """The connection broke after the request was sent. It may or may not have been carried out."""


PATIENCE_SECONDS = 30.0
"""How long to retry while the server cannot be reached: it may be restarting."""


def pauses(patience: float) -> Iterator[float]:
    """Seconds to sleep before each retry, ``patience`` in all. Random, so that clients do not retry in step."""
    longest = 0.05
    while patience > 0:
        pause = longest * (0.5 + CHANCE.random() / 2)
        patience -= pause
        yield pause
        longest = min(longest * 2, 2.0)


def given_up(error: Exception, url: str, *, sent: bool) -> Unavailable:
    if isinstance(error, NotTrusted):
        return Unavailable(
            f"the certificate of {url} is not trusted: {error}",
            hint="check the url; if you use your own certificate authority, set SSL_CERT_FILE to its certificate",
        )
    if not sent:
        return Unavailable(f"cannot reach the server at {url}: {error}", hint="check that it is running and the url")
    return Unavailable(
        f"the connection to {url} broke; the call may or may not have happened: {error}",
        hint="check before you repeat it; repeating a settle, or a publish with an idempotency_key, is safe",
    )
