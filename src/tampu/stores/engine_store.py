"""Base of all stores over an engine: the verbs of the port, raising the first error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from tampu.engines.port import Call, Document, Engine
from tampu.model.errors import TampuError
from tampu.model.message import State
from tampu.stores.port import ArrowStore, Run

E = TypeVar("E", bound=Engine)


class EngineStore(ArrowStore, Generic[E]):
    """A store over an open engine, which it closes. Subclasses add snapshots and the journal."""

    def __init__(self, engine: E) -> None:
        self.engine = engine

    def __exit__(self, *exc: object) -> None:
        self.engine.close()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        return without_errors(self.engine.run(calls))

    def together(self, calls: Sequence[Call]) -> list[Any]:
        if not self.joint:
            return [self.run([call])[0] for call in calls]
        with self.transaction() as run:
            return [run([call])[0] for call in calls]

    @contextmanager
    def transaction(self) -> Iterator[Run]:
        engine: Any = self.engine  # joint engines have it; the port does not
        with engine.transaction(None) as work:
            yield lambda calls: without_errors(work.run(calls))

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        return self.engine.document(kind, tenant, name)

    def documents(self, kind: str, tenant: str, prefix: str = "") -> list[Document]:
        return self.engine.documents(kind, tenant, prefix)

    def now(self) -> int:
        return self.engine.now()

    def counts(self, tenant: str, queue: str) -> Mapping[State, int]:
        return next((stats.counts for stats in self.engine.stats(tenant, queue)), {})


def without_errors(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, TampuError):
            raise reply
    return replies
