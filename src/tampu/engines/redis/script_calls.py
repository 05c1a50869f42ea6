"""What the engine asks of the server, and how operations are written.

An operation is a generator: it yields a list of `ScriptCall`s, is sent a reply for each, and returns the reply of the
port. The engine advances all operations of a run together, so that each round is one pipeline.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from tampu.engines.redis import scripts
from tampu.model.errors import TampuError

R = TypeVar("R")


class ScriptCall(NamedTuple):
    """One command to the server that has the tag."""

    tag: str
    command: tuple[Any, ...]


Asking = Generator[list[ScriptCall], list[Any], R]
"""Replies are what the server said, or a `TampuError`."""


class Writer:
    """Writes asks; scripts are told the time, or ('') to look themselves."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def script(self, name: str, tag: str, *args: Any) -> ScriptCall:
        """With two keys, neither of which is ever there: while a slot is being moved, the servers refuse such a script
        (TRYAGAIN). With one they would send it to the new server, where only a part of what it touches is yet."""
        now = "" if self._clock is None else self._clock.now()
        return ScriptCall(tag, ("EVALSHA", scripts.digest(name), 2, tag, f"{tag}:~", now, *args))

    @staticmethod
    def plain(command: str, tag: str, end: str, *args: Any) -> ScriptCall:
        """A command on one key of a tag. One key is at one server, also while its slot is being moved."""
        return ScriptCall(tag, (command, f"{tag}:{end}", *args))


def ok(reply: Any) -> Any:
    """The reply; raised, if it is an error."""
    if isinstance(reply, TampuError):
        raise reply
    return reply
