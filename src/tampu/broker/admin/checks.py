"""Checks of a store: one list of findings for `Store.check`, `GET /v1/check` and `tampu doctor`."""

from __future__ import annotations

from tampu.broker import journal_readers
from tampu.broker.admin.verbs import Admin, Stats
from tampu.broker.core import Read, Steps
from tampu.model.errors import StorageError

Finding = tuple[str, str, str]
"""(subject, ``ok`` | ``warn`` | ``bad``, what to know or do)"""
_MOST_NAMED = 10


class Checks(Admin):
    def check(self) -> Steps[list[Finding]]:
        """Findings of the engine, then queues of the tenant that need attention, then readers of the journal."""
        found: list[Finding] = yield Read(lambda engine: engine.check())
        try:
            queues: list[Stats] = yield from self.stats()
            return [*found, *_check_queues(queues), *(yield Read(journal_readers.findings))]
        except StorageError:
            if any(level == "bad" for _, level, _ in found):
                return found  # they say why nothing can be read
            raise

    def check_tenant(self) -> Steps[list[Finding]]:
        """The part of `check` about the tenant: the rest is about the whole store, which not every caller may see."""
        queues: list[Stats] = yield from self.stats()
        return _check_queues(queues) or [("queues", "ok", "all are open, without dead letters")]


def _check_queues(queues: list[Stats]) -> list[Finding]:
    """Queues that may have been left closed by mistake, and dead letters that wait for a decision."""
    found: list[Finding] = []
    not_open = [f"{queue.queue} ({queue.status})" for queue in queues if queue.status != "open"]
    dead = [f"{queue.queue} ({queue.dead:,})" for queue in queues if queue.dead]
    if not_open:
        found.append(("queues", "warn", f"not open: {_first_names(not_open)}; open with tampu resume"))
    if dead:
        found.append(("dead", "warn", f"dead letters in {_first_names(dead)}; see tampu dead groups"))
    return found


def _first_names(queues: list[str]) -> str:
    more = len(queues) - _MOST_NAMED
    return ", ".join(queues[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
