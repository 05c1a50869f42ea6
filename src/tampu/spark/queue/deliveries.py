"""The delivery log of a consumer: which message was delivered under which number, and what is settled.

Spark asks for the same batch again after a failure, so a delivery must have a number that outlives the driver. The
log is kept by the queue, as documents (see `delivery_log`): they and calls of the port are all it needs, so every
engine has it.

Every change goes through the head by compare-and-set, and says what is so before it is done: first "committed up to
n", then the messages are settled. Whoever takes over finds that sentence and does the same again, which changes
nothing. A driver that was stopped and comes back finds another owner in the head, and ends.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec

from tampu.engines.port import Again, Call, Claim, DeleteDocument, Extend, PutDocument, RetryLater, Settle, SettleItem
from tampu.model.errors import StorageError, TampuError, VersionConflict
from tampu.model.message import Lease
from tampu.model.outcome import Outcome
from tampu.model.times import SECOND
from tampu.spark.queue.delivery_log import (
    HEADS,
    MOST,
    PAGE,
    PAGES,
    Entries,
    Fenced,
    Head,
    Page,
    Piece,
    head_name,
    read_head,
    read_page,
    settings_of,
)
from tampu.spark.queue.heartbeat import surely_ended, this_process
from tampu.spark.queue.outcomes import OUTCOMES, PLAIN, ending, fence, forget_earlier, verdicts
from tampu.stores.port import ArrowStore

_BYTES = 64 << 20
"""A batch takes no more messages once their payloads are this large together."""
_TRIES = 100
_LOOK = 0.25

log = logging.getLogger("tampu.spark")


class Deliveries:
    """The log as its owner uses it. One process, two threads: the reader's and the heartbeat's."""

    def __init__(
        self,
        store: ArrowStore,
        tenant: str,
        queue: str,
        consumer: str,
        *,
        lease_us: int = 60 * SECOND,
        takeover_us: int = 60 * SECOND,
        pause: Callable[[float], None] = time.sleep,
        process: str | None = None,
    ) -> None:
        self.store = store
        self.tenant = tenant
        self.queue = queue
        self.consumer = consumer
        self.name = head_name(queue, consumer)
        self.lost = 0
        """Deliveries whose lease ran out before they were settled."""
        self._lease_us = lease_us
        # Half of the lease: whoever takes over still finds the messages leased.
        self._lapse_us = lease_us // 2
        self._takeover_us = takeover_us
        self._pause = pause
        self._me = uuid.uuid4().hex
        self._process = this_process() if process is None else process
        self._lock = threading.RLock()
        self._head: Head | None = None
        self._version = 0
        self._fenced = False
        self._taken: list[Lease] = []
        self._receipts: dict[str, list[str]] = {}
        self._guess = 0
        self._extended_us = 0

    @property
    def head(self) -> Head:
        assert self._head is not None, "own it first"
        return self._head

    @property
    def owned(self) -> Head | None:
        """The head, while this is its owner."""
        return self._head

    # -- the calls of a reader

    def identity(self) -> str:
        """The name of the log, which is made if it is not there."""
        while True:
            head, _ = read_head(self.store, self.tenant, self.queue, self.consumer)
            if head is not None:
                return head.log
            try:
                self.store.run([self._put(Head(uuid.uuid4().hex), 0)])
            except VersionConflict:
                continue

    def latest(self, start: int, limit: int) -> int:
        """Settle what Spark has committed, up to ``start``; the end of the batch after it.

        That is the batch leased before, if it has not been committed; else up to ``limit`` messages are leased now.
        """
        with self._lock:
            self.own()
            if start > self.head.committed:
                last = max(start, self.head.last)  # a store that was put back from a copy is behind the checkpoint
                self._write(msgspec.structs.replace(self.head, committed=start, last=last))
            self._finish()
            if self.head.pages:
                self._extend()
            elif limit > 0:
                self._lease(min(limit, MOST))
            return self.head.last if self.head.pages else start

    def pieces(self, start: int, end: int, least: int = 1) -> list[Piece]:
        """The batch after ``start`` up to ``end``, in at least so many parts if it has so many messages."""
        with self._lock:
            self.own()
            self._extend()
            pages = [page for page in self.head.pages if page.first > start and page.last <= end]
            for page in pages:
                forget_earlier(self.store, self.tenant, page.name, self.head.epoch)
            total = sum(page.last - page.first + 1 for page in pages)
            if total < end - start:
                log.warning(
                    "consumer %s: deliveries %d to %d are asked for, %d of them are in the log: the rest was settled "
                    "or never written, the checkpoint or the store is from another time",
                    self.name, start + 1, end, total,
                )  # fmt: skip
            size = max(1, min(PAGE, -(-total // least)))
            return [
                Piece(page, low, min(low + size - 1, page.last), self.head.epoch)
                for page in pages
                for low in range(page.first, page.last + 1, size)
            ]

    # -- ownership

    def own(self) -> None:
        """Become the owner, or wait for the one there is to be gone; then raise `Fenced`."""
        with self._lock:
            if self._fenced:
                self._refuse()
            waited = 0.0
            while self._head is None:
                head, version = read_head(self.store, self.tenant, self.queue, self.consumer)
                if head is None or self._is_free(head):
                    self._take_over(head or Head(uuid.uuid4().hex), version)
                elif waited * SECOND >= self._takeover_us:
                    raise Fenced(
                        f"consumer {self.consumer} of queue {self.queue} is in use by another driver, which is alive",
                        hint="stop the other query or choose another consumer; takeoverSeconds says how long to wait",
                    )
                else:
                    self._pause(_LOOK)
                    waited += _LOOK

    def _is_free(self, head: Head) -> bool:
        silent = abs(self.store.now() - head.beat_us) >= head.lapse_us
        return not head.owner or silent or surely_ended(head.process)

    def beat(self) -> None:
        """Say that the owner is alive, and keep what is in flight leased. Raises `Fenced` when it is not the owner."""
        with self._lock:
            if self._fenced:
                self._refuse()
            if self._head is not None:
                self._write(self._head)
                self._extend()

    def leave(self) -> None:
        """Give the consumer up; what is in flight stays leased for its time, for whoever comes next."""
        with self._lock:
            if self._head is not None and not self._fenced:
                self._write(msgspec.structs.replace(self._head, owner=""))
            self._head = None

    def _take_over(self, head: Head, version: int) -> None:
        mine = msgspec.structs.replace(
            head,
            owner=self._me,
            process=self._process,
            epoch=head.epoch + 1,
            beat_us=self.store.now(),
            lapse_us=self._lapse_us,
        )
        # Pages that the last owner wrote without getting them into the head, in a store without joint commits.
        strays = [self._page_name(head, head.last, number) for number in range(MOST // PAGE)]
        try:
            self._version = self.store.run([self._put(mine, version)])[0]
        except VersionConflict:
            return
        self._head = mine
        self._receipts.clear()
        self._extended_us = 0
        kept = {page.name for page in mine.pages}
        self.store.run([DeleteDocument(PAGES, self.tenant, name) for name in strays if name not in kept])
        for page in mine.pages:
            fence(self.store, self.tenant, page.name, mine.epoch)
        self._extend()

    def _write(self, head: Head, more: Sequence[Call] = ()) -> None:
        """Change the head, with other documents in the same commit where the store can."""
        for _ in range(2):
            new = msgspec.structs.replace(head, beat_us=self.store.now())
            try:
                self._version = self.store.run([self._put(new, self._version), *more])[0]
            except VersionConflict:
                found, version = read_head(self.store, self.tenant, self.queue, self.consumer)
                if found is None or (found.owner, found.epoch) != (self._me, head.epoch):
                    self._fenced = True
                    self._refuse()
                self._version = version  # a write of ours whose answer was lost
            else:
                self._head = new
                return
        raise VersionConflict(f"the head of {self.name} changes all the time", hint="look for a second writer")

    def _put(self, head: Head, version: int) -> PutDocument:
        return PutDocument(HEADS, self.tenant, self.name, msgspec.msgpack.encode(head), version)

    def _refuse(self) -> NoReturn:
        raise Fenced(
            f"consumer {self.consumer} of queue {self.queue} was taken over by another driver",
            hint="this one did not show itself for half of leaseSeconds; it ends and settles nothing more",
        )

    # -- leasing

    def _lease(self, limit: int) -> None:
        settings = settings_of(self.store, self.tenant, self.queue)
        if settings.status in ("paused", "closed"):
            return
        want = settings.want(self.queue, self._lease_us)
        self._extended_us = self.store.now()
        taken = self._taken  # kept when a write fails, so that the next try does not lease more
        size = sum(len(lease.message.raw) for lease in taken)
        self._guess = self._guess or settings.max_payload
        for _ in range(_TRIES):
            count = min(limit - len(taken), max(1, (_BYTES - size) // self._guess))
            if count <= 0 or size >= _BYTES:
                break
            got = self.store.run([Claim(self.tenant, [want], count, f"spark:{self.consumer}")])[0]
            if isinstance(got, Again):
                continue
            if not got or isinstance(got, RetryLater):
                break
            taken.extend(got)
            new = sum(len(lease.message.raw) for lease in got)
            size += new
            self._guess = max(1, 2 * new // len(got))
        if taken:
            self._log(taken)

    def _log(self, leases: list[Lease]) -> None:
        head, after = self.head, self.head.last
        pages, puts = [], []
        for number, low in enumerate(range(0, len(leases), PAGE)):
            part = leases[low : low + PAGE]
            page = Page(self._page_name(head, after, number), after + low + 1, after + low + len(part))
            content = Entries([x.id for x in part], [x.receipt for x in part], [x.attempt for x in part])
            pages.append(page)
            puts.append(PutDocument(PAGES, self.tenant, page.name, msgspec.msgpack.encode(content)))
        new = msgspec.structs.replace(head, pages=(*head.pages, *pages), last=after + len(leases))
        try:
            self._write(new, puts)
        except Fenced:
            back = [SettleItem("release", self.queue, lease.receipt) for lease in leases]
            self.store.run([Settle(self.tenant, back), *(DeleteDocument(PAGES, self.tenant, p.name) for p in pages)])
            self._taken = []
            raise
        self._taken = []

    def _page_name(self, head: Head, after: int, number: int) -> str:
        return f"{self.name}/{head.epoch}.{after}.{number}"

    def _extend(self) -> None:
        """What is in flight is leased for the whole time, as of now or nearly. What was lost stays lost."""
        now = self.store.now()
        if now - self._extended_us < self._lapse_us // 6:
            return
        for page in self.head.pages:
            receipts = self._receipts.get(page.name)
            if receipts is None:
                found = read_page(self.store, self.tenant, page)
                receipts = [] if found is None else found.receipts
            if receipts:
                items = [(self.queue, receipt, self._lease_us) for receipt in receipts]
                replies = self._answers(Extend(self.tenant, items))
                kept = [
                    receipt
                    for receipt, reply in zip(receipts, replies, strict=True)
                    if not isinstance(reply, TampuError)
                ]
                if len(kept) < len(receipts):
                    log.warning("consumer %s lost %d leases in flight", self.name, len(receipts) - len(kept))
                receipts = kept
            self._receipts[page.name] = receipts
        self._extended_us = now

    def _answers(self, call: Extend | Settle) -> list[Any]:
        """One for each item. Raises when the store could not be asked about all: then nothing of it is lost yet."""
        found: list[Any] = self.store.run([call])[0]
        for one in found:
            error = one.error if isinstance(one, Outcome) else one
            if isinstance(error, StorageError):
                raise error
        return found

    # -- settling

    def _finish(self) -> None:
        """Settle the pages that are committed, and forget them."""
        head = self.head
        done = [page for page in head.pages if page.last <= head.committed]
        for page in done:
            found = read_page(self.store, self.tenant, page)
            if found is not None:  # else an earlier owner came this far
                self._settle(page, found)
        if done or head.settled < head.committed:
            rest = tuple(page for page in head.pages if page.last > head.committed)
            gone = [DeleteDocument(kind, self.tenant, page.name) for page in done for kind in (PAGES, OUTCOMES)]
            self._write(msgspec.structs.replace(head, settled=head.committed, pages=rest), gone)
            for page in done:
                self._receipts.pop(page.name, None)

    def _settle(self, page: Page, found: Entries) -> None:
        said = verdicts(self.store, self.tenant, page.name)
        settings = settings_of(self.store, self.tenant, self.queue) if said else None
        plain, others = [], []
        for number, (id, receipt) in enumerate(zip(found.ids, found.receipts, strict=True), start=page.first):
            verdict = said.get(number, PLAIN)
            if settings is None or verdict == PLAIN:
                plain.append(SettleItem("ack", self.queue, receipt, id=id))
            else:
                others.append(ending(self.queue, receipt, id, verdict, settings))
        lost = 0
        for items in (plain, others):
            if items:
                lost += sum(not outcome.ok for outcome in self._answers(Settle(self.tenant, items)))
        if lost:
            self.lost += lost
            log.warning(
                "consumer %s: %d of deliveries %d to %d had lost their lease; they are or were delivered again",
                self.name, lost, page.first, page.last,
            )  # fmt: skip
