"""A request as a step of a verb: what to send, how to read the response, and whether it may be repeated."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
import urllib.parse
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar, overload

from tampu.client.failures import PATIENCE_SECONDS
from tampu.model.decoders import from_msgpack
from tampu.model.message import MSGPACK
from tampu.wire import media

T = TypeVar("T")
R = TypeVar("R")
_RANDOM_BITS = 74
_STEP_BYTES = 7
"""Random bytes between two ids. Ten thousand such steps fit into a millisecond."""
_lock = threading.Lock()
_last = 0


class Request:
    __slots__ = ("again", "body", "method", "path", "patience", "read", "repeat", "trace", "wait")

    def __init__(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], Any],
        body: Any = None,
        *,
        query: Sequence[tuple[str, Any]] = (),
        repeat: bool = True,
        wait: float = 0,
        patience: float = PATIENCE_SECONDS,
        again: Any = None,
    ) -> None:
        self.method = method
        self.path = path
        if query:
            pairs = [(name, value) for name, value in query if value is not None]
            self.path += "?" + urllib.parse.urlencode(pairs)
        self.read = read
        self.body = None if body is None else media.write(body, MSGPACK)
        self.repeat = repeat
        """True if carrying it out twice is harmless. Then it is repeated if the connection breaks."""
        self.again = again
        """The body of a repeat, if it differs from the first."""
        self.patience = patience
        """For how many seconds to retry."""
        self.wait = wait
        """Long poll: how many seconds the server may wait before it answers."""
        self.trace: dict[str, str] | None = None
        """Trace context headers."""


class Nap:
    """A step that only waits."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


def call(method: str, path: str, read: Callable[[bytes], T], body: Any = None, **more: Any) -> Generator[Any, Any, T]:
    """Build a request, send it and return what ``read`` makes of the response."""
    reply: T = yield Request(method, path, read, body, **more)
    return reply


def send(request: Request) -> Generator[Any, Any, Any]:
    """Send a request that was built elsewhere."""
    return (yield request)


def nap(seconds: float) -> Generator[Any, Any, None]:
    yield Nap(seconds)


@overload
def reader(type: type[T]) -> Callable[[bytes], T]: ...
@overload
def reader(type: type[T], then: Callable[[T], R]) -> Callable[[bytes], R]: ...
def reader(type: Any, then: Callable[[Any], Any] | None = None) -> Callable[[bytes], Any]:
    """A function that decodes a MessagePack response and converts it with ``then``."""
    decode = from_msgpack(type).decode
    return decode if then is None else lambda raw: then(decode(raw))


def quoted(name: str) -> str:
    """A name, escaped for use in a path."""
    return urllib.parse.quote(name, safe="")


def new_ids(count: int) -> list[str]:
    """``count`` new message ids (UUIDv7), so that a publish can be repeated safely. Each is larger than all before it
    in this process, by a random distance, so who knows one cannot guess the next."""
    global _last  # noqa: PLW0603 - one counter for the process
    now = time.time_ns() // 1_000_000 << _RANDOM_BITS
    raw = secrets.token_bytes(_STEP_BYTES * count)
    steps = [int.from_bytes(raw[at : at + _STEP_BYTES], "big") + 1 for at in range(0, len(raw), _STEP_BYTES)]
    with _lock:
        # The top random bit stays 0, which leaves room to count up.
        first = max(_last, now | secrets.randbits(_RANDOM_BITS - 1))
        values = list(itertools.accumulate(steps, initial=first))[1:]
        _last = values[-1] if values else first
    return [_id_text(value) for value in values]


def _id_text(value: int) -> str:
    text = f"{value >> 74:012x}"
    high, low = value >> 62 & 0xFFF, value & 0x3FFF_FFFF_FFFF_FFFF
    return f"{text[:8]}-{text[8:]}-7{high:03x}-{0x8000 | low >> 48:04x}-{low & 0xFFFF_FFFF_FFFF:012x}"
