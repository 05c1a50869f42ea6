"""The numbers of queues, in engines on tables: rows have a number where people have a tenant and a name.

A number is given once and never to another queue, so what is known of it stays true; only a queue that was made in a
commit that did not happen is forgotten.
"""

from __future__ import annotations

import abc
from typing import Generic, TypeVar

D = TypeVar("D")
"""A connection."""


class QueueNumbers(abc.ABC, Generic[D]):
    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self.names: dict[int, tuple[str, str]] = {}

    @abc.abstractmethod
    def _find_number(self, db: D, tenant: str, name: str) -> int | None: ...

    @abc.abstractmethod
    def _find_name(self, db: D, q: int) -> tuple[str, str]: ...

    def learn(self, q: int, tenant: str, name: str) -> None:
        self.numbers[tenant, name] = q
        self.names[q] = (tenant, name)

    def forget(self, q: int) -> None:
        self.numbers.pop(self.names.pop(q), None)

    def number(self, db: D, tenant: str, name: str) -> int | None:
        """The number of a queue; None if there is none of that name."""
        q = self.numbers.get((tenant, name))
        if q is None:
            q = self._find_number(db, tenant, name)
            if q is not None:
                self.learn(q, tenant, name)
        return q

    def name(self, db: D, q: int) -> tuple[str, str]:
        """(tenant, name) of a queue number."""
        found = self.names.get(q)
        if found is None:
            found = self._find_name(db, q)
            self.learn(q, *found)
        return found
