"""The access log: one line per request. It names queues and message ids, and never a secret, receipt or payload."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import structlog

from tampu.server.auth.grants import Caller

_MOST = 5
"""How many names are logged; the rest is an ellipsis."""
_CHARACTERS = 128
log = structlog.get_logger("tampu.server")


class Subject:
    """The queues and messages of a request, as far as they are known."""

    __slots__ = ("_ids", "_queues")

    def __init__(self) -> None:
        self._queues: tuple[str, ...] = ()
        self._ids: tuple[str, ...] = ()

    def add(self, queues: Iterable[str] = (), ids: Iterable[str] = ()) -> None:
        self._queues = self._queues or tuple(islice(queues, _MOST + 1))
        self._ids = self._ids or tuple(islice(ids, _MOST + 1))

    @property
    def queue(self) -> str | None:
        return _joined(self._queues)

    @property
    def message(self) -> str | None:
        return _joined(self._ids)


def _joined(names: tuple[str, ...]) -> str | None:
    """The names, separated by commas."""
    if not names:
        return None
    shown = [_plain(name) for name in names[:_MOST]]
    return ",".join(shown if len(names) <= _MOST else [*shown, "..."])


def _plain(name: str) -> str:
    """A name from a request can be any text; make it short and a single line."""
    short = name[:_CHARACTERS]
    return short if short.isascii() and short.isprintable() else ascii(short)[1:-1]


def write(
    request_id: str, method: str, route: str, status: int, seconds: float, caller: Caller | None, subject: Subject
) -> None:
    log.info(
        "request",
        request_id=request_id,
        method=method,
        route=route,
        status=status,
        milliseconds=round(seconds * 1000, 2),
        tenant=caller.tenant if caller else None,
        key=caller.key_id if caller else None,
        queue=subject.queue,
        message=subject.message,
    )
