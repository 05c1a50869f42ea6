"""Copy messages to the target: read page by page in index order, imported page by page with their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tampu.broker import settings
from tampu.broker.transfer.progress import do
from tampu.broker.transfer.report import QueueCount
from tampu.engines.port import Engine
from tampu.engines.transfer import Import, MessageSnapshot, Request
from tampu.model.errors import InvalidState
from tampu.model.message import Failure, State
from tampu.model.reasons import LEASE_EXPIRED
from tampu.model.times import moment

PAGE = 500
# Leased ones were first in their queue. Held ones come after the ready ones, or they would take their slots.
CARRIED = (State.LEASED, State.READY, State.DELAYED, State.HELD, State.DEAD)
Moved = Callable[[str, int], None]
"""Called after each page with the queue and the number of messages."""


class MessageTransfer:
    def __init__(self, source: Engine, target: Engine, origin: str, *, into: bool) -> None:
        self._source = source
        self._target = target
        self._origin = origin
        self._into = into

    def carry(self, queue: QueueCount, states: Sequence[State], moved: Moved) -> int:
        """Copy the messages of a queue that the target does not have. Returns how many. Counts those in the source."""
        queue.source = {}
        stored = 0
        set_ = settings.read(self._source.document, queue.tenant, queue.queue)
        for state in states:
            for items in self._pages(queue, state):
                for item in items:
                    queue.source[item.state] = queue.source.get(item.state, 0) + 1
                call = Import(
                    queue.tenant, queue.queue, items, self._origin, slots=set_.slots, group_rate=set_.group_rate
                )
                new: int = do(self._target, call)
                if self._into and new < len(items):
                    self._check_same(queue.tenant, items)
                stored += new
                moved(queue.name, len(items))
        return stored

    def _pages(self, queue: QueueCount, state: State) -> Iterator[list[MessageSnapshot]]:
        after = None
        while True:
            page = self._source.export_messages(queue.tenant, queue.queue, state, after, PAGE)
            if page is None:
                return
            if page.items:
                now = self._source.now()
                yield [run_out(item, now) for item in page.items]
            after = page.cursor
            if after is None:
                return

    def _check_same(self, tenant: str, items: Sequence[MessageSnapshot]) -> None:
        """In a target with messages of its own, a known id must belong to the same message."""
        for item in items:
            found = self._target.get(tenant, item.id)
            if found is not None and (found.created_us, found.type) != (item.created_us, item.body.type):
                raise InvalidState(
                    f"the target has another message with the id {item.id}, in {tenant}/{found.queue}",
                    field="id",
                    hint="copy into an empty target",
                )

    def requests(self, tenant: str) -> tuple[int, int]:
        """Copy the idempotency keys of a tenant: (how many, how many not, because their queue is unknown)."""
        copied = lost = 0
        after = None
        while True:
            page = self._source.export_idempotency_keys(tenant, after, PAGE)
            by_queue: dict[str, list[Request]] = {}
            for request in page.items:
                if request.queue is None:
                    lost += 1
                else:
                    by_queue.setdefault(request.queue, []).append(request)
            for queue, some in by_queue.items():
                do(self._target, Import(tenant, queue, [], self._origin, some))
                copied += len(some)
            after = page.cursor
            if after is None:
                return copied, lost


def run_out(item: MessageSnapshot, now: int) -> MessageSnapshot:
    """A leased message as if its lease had expired: its receipt is only valid in the source. Others unchanged."""
    if item.state is not State.LEASED:
        return item
    failure = Failure(item.attempts, moment(now), LEASE_EXPIRED, None, None, None)
    failures = (*item.failures, failure)
    if item.cancel_requested:
        return msgspec.structs.replace(item, state=State.CANCELLED, ended_us=now, failures=failures)
    if item.attempts >= item.max_attempts:
        return msgspec.structs.replace(item, state=State.DEAD, ended_us=now, reason=LEASE_EXPIRED, failures=failures)
    return msgspec.structs.replace(item, state=State.READY, failures=failures)
