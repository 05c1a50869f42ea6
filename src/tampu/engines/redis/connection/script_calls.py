"""Commands to the server, and how operations are written.

An operation is a generator: it yields a list of `ScriptCall`s, is sent a reply for each, and returns the reply of the
port. The engine advances all operations of a run together, so that each round is one pipeline.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from tampu.engines.redis.connection import scripts
from tampu.model.errors import TampuError

R = TypeVar("R")


class ScriptCall(NamedTuple):
    """One command, for the server that has the tag."""

    tag: str
    command: tuple[Any, ...]


Operation = Generator[list[ScriptCall], list[Any], R]
"""A reply is the server's answer or a `TampuError`."""


class Writer:
    """Builds script calls. With a test clock, scripts get its time; else '', and they ask the server."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def script(self, name: str, tag: str, *args: Any) -> ScriptCall:
        """A script call. Its two keys never exist: while a slot is being moved, servers refuse the script (TRYAGAIN).
        With one key they would redirect it to the new server, which has only a part of the slot's keys yet."""
        now = "" if self._clock is None else self._clock.now()
        return ScriptCall(tag, ("EVALSHA", scripts.digest(name), 2, tag, f"{tag}:~", now, *args))

    @staticmethod
    def plain(command: str, tag: str, end: str, *args: Any) -> ScriptCall:
        """A command on one key of a tag. One key is on one server, even while its slot is being moved."""
        return ScriptCall(tag, (command, f"{tag}:{end}", *args))


def ok(reply: Any) -> Any:
    """The reply. Raises it if it is an error."""
    if isinstance(reply, TampuError):
        raise reply
    return reply
