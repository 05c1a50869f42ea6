"""Runs the steps of a job one after the other, for stores that have no faster way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from tampu.engines.port import Call
from tampu.stores.port import Step

Together = Callable[[Sequence[Call]], list[Any]]
"""See `ArrowStore.together`."""


def one_by_one(together: Together, steps: Iterable[Step], version: int) -> Generator[list[Any], None, None]:
    for step in steps:
        replies = together([*step.calls, step.note(version)])
        version = replies[-1]
        yield replies
