"""What can go wrong on the way, and how long to wait before asking again."""

from __future__ import annotations

from collections.abc import Iterator

from tampu.model.chance import CHANCE
from tampu.model.errors import Unavailable

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""A request that takes longer is given up; long polls get their time on top."""


class NotSent(Exception):
    """The server was not reached: the request has certainly not been carried out."""


class NotTrusted(NotSent):
    """Nobody vouches for the certificate of the server: asking again is of no use."""


class Broken(Exception):
    """It broke after it was sent: whether it was carried out is not known."""


PATIENCE_SECONDS = 30.0
"""How long a server that is not there is waited for: it may be starting again."""


def pauses(patience: float) -> Iterator[float]:
    """Seconds before each new try, until the patience is at its end; no two clients in step."""
    most = 0.05
    while patience > 0:
        pause = most * (0.5 + CHANCE.random() / 2)
        patience -= pause
        yield pause
        most = min(most * 2, 2.0)


def given_up(error: Exception, url: str, *, sent: bool) -> Unavailable:
    if isinstance(error, NotTrusted):
        return Unavailable(
            f"the certificate of {url} is not trusted: {error}",
            hint="is the url right? with a certificate authority of your own, set SSL_CERT_FILE to its certificate",
        )
    if not sent:
        return Unavailable(f"the server at {url} can not be reached: {error}", hint="does it run? is the url right?")
    return Unavailable(
        f"the connection to {url} broke, it may or may not have happened: {error}",
        hint="look before you call again; settling again, or publishing with an idempotency_key, is safe",
    )
