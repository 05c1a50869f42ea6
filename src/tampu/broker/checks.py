"""Is the store sound? One list of findings, for `Queue.check`, `GET /v1/check` and `tampu doctor` alike."""

from __future__ import annotations

from collections.abc import Callable

from tampu.broker import journal_readers
from tampu.broker.admin import Admin, Stats
from tampu.broker.core import Read, Steps
from tampu.engines.port import Engine
from tampu.model.errors import StorageError

Finding = tuple[str, str, str]
"""(what, ``ok`` | ``warn`` | ``bad``, what to know or do)"""
_MOST_NAMED = 10


class Checks(Admin):
    def check(self) -> Steps[list[Finding]]:
        """What the engine finds, then queues of the tenant that need somebody, then readers of the journal."""
        return (yield from self._check(journal_readers.findings))

    def check_tenant(self) -> Steps[list[Finding]]:
        """Without the readers of the journal: they are of the whole store, which not everybody may see."""
        return (yield from self._check(lambda _: []))

    def _check(self, of_readers: Callable[[Engine], list[Finding]]) -> Steps[list[Finding]]:
        found: list[Finding] = yield Read(lambda engine: engine.check())
        try:
            queues: list[Stats] = yield from self.stats()
            return [*found, *_of_queues(queues), *(yield Read(of_readers))]
        except StorageError:
            if any(level == "bad" for _, level, _ in found):
                return found  # it says already why nothing can be read
            raise


def _of_queues(queues: list[Stats]) -> list[Finding]:
    """Queues that somebody may have forgotten to open again, and dead letters that wait for a decision."""
    found: list[Finding] = []
    shut = [f"{one.queue} ({one.status})" for one in queues if one.status != "open"]
    dead = [f"{one.queue} ({one.dead:,})" for one in queues if one.dead]
    if shut:
        found.append(("queues", "warn", f"not open: {_named(shut)}; open with tampu resume"))
    if dead:
        found.append(("dead", "warn", f"dead letters in {_named(dead)}; see tampu list QUEUE --state dead"))
    return found


def _named(queues: list[str]) -> str:
    more = len(queues) - _MOST_NAMED
    return ", ".join(queues[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
