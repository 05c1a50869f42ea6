"""A request as a step of a verb: what to ask, how to read the answer, and whether it may be asked again."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar, overload

from tampu.client.failures import PATIENCE_SECONDS
from tampu.model.decoders import from_msgpack
from tampu.model.message import MSGPACK
from tampu.wire import media

T = TypeVar("T")
R = TypeVar("R")


class Ask:
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
        """Doing it twice does no harm, so it is asked again when it is not known whether it was done."""
        self.again = again
        """The body when it is asked again and nobody knows whether it was done, if that is another."""
        self.patience = patience
        self.wait = wait
        """Seconds that the server may take on top, for a long poll."""
        self.trace: dict[str, str] | None = None
        """Headers that say in which trace it is asked."""


class Nap:
    """A step that only waits."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


def asked(method: str, path: str, read: Callable[[bytes], T], body: Any = None, **more: Any) -> Generator[Any, Any, T]:
    """A request as a verb of its own."""
    answer: T = yield Ask(method, path, read, body, **more)
    return answer


def told(ask: Ask) -> Generator[Any, Any, Any]:
    """The answer to a request that was made elsewhere."""
    return (yield ask)


def nap(seconds: float) -> Generator[Any, Any, None]:
    yield Nap(seconds)


@overload
def reader(type: type[T]) -> Callable[[bytes], T]: ...
@overload
def reader(type: type[T], then: Callable[[T], R]) -> Callable[[bytes], R]: ...
def reader(type: Any, then: Callable[[Any], Any] | None = None) -> Callable[[bytes], Any]:
    """Reads an answer in MessagePack, and makes of it what the library answers with."""
    decode = from_msgpack(type).decode
    return decode if then is None else lambda raw: then(decode(raw))


def quoted(name: str) -> str:
    """A name as part of a path."""
    return urllib.parse.quote(name, safe="")
