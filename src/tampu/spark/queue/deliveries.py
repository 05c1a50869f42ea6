"""The delivery log of a consumer: which message was delivered under which number, and what is settled.

Spark asks for the same batch again after a failure, so a delivery needs a number that survives the driver. The log is
stored in the queue's store as documents (see `delivery_log`). It needs only documents and calls of the port, so it
works on every engine.

Every change is a compare-and-set of the head, written before it is carried out: first "committed up to n", then the
messages are settled. A driver that takes over finds that entry and settles again, which changes nothing. A driver that
was suspended and comes back finds another owner in the head, and ends.
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
"""Maximum total size of the payloads of a batch; the last message may exceed it."""
_TRIES = 100
_LOOK = 0.25

log = logging.getLogger("tampu.spark")


class Deliveries:
    """The log for its owner. Used by two threads of one process: the reader and the heartbeat."""

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
        """Deliveries whose lease expired before they were settled."""
        self._lease_us = lease_us
        # Half of the lease, so that a driver which takes over still finds the messages leased.
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
        assert self._head is not None, "call own() first"
        return self._head

    @property
    def owned(self) -> Head | None:
        """The head while this process owns it, else None."""
        return self._head

    # -- the calls of a reader

    def identity(self) -> str:
        """The unique name of the log; creates the log if it does not exist."""
        while True:
            head, _ = read_head(self.store, self.tenant, self.queue, self.consumer)
            if head is not None:
                return head.log
            try:
                self.store.run([self._put(Head(uuid.uuid4().hex), 0)])
            except VersionConflict:
                continue

    def latest(self, start: int, limit: int) -> int:
        """Settle what Spark has committed, up to ``start``. Returns the end of the next batch.

        That is the batch leased before, if it is not committed yet; else up to ``limit`` messages are leased now.
        """
        with self._lock:
            self.own()
            if start > self.head.committed:
                last = max(start, self.head.last)  # a store restored from a backup is behind the checkpoint
                self._write(msgspec.structs.replace(self.head, committed=start, last=last))
            self._finish()
            if self.head.pages:
                self._extend()
            elif limit > 0:
                self._lease(min(limit, MOST))
            return self.head.last if self.head.pages else start

    def pieces(self, start: int, end: int, least: int = 1) -> list[Piece]:
        """The batch after ``start`` up to ``end``, in at least ``least`` parts if it has enough messages."""
        with self._lock:
            self.own()
            self._extend()
            pages = [page for page in self.head.pages if page.first > start and page.last <= end]
            for page in pages:
                forget_earlier(self.store, self.tenant, page.name, self.head.epoch)
            total = sum(page.last - page.first + 1 for page in pages)
            if total < end - start:
                log.warning(
                    "consumer %s: Spark asks for deliveries %d to %d, but the log has only %d of them; the others were "
                    "settled or never written: the checkpoint or the store is an older copy",
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
        """Become the owner. Waits while another driver owns the consumer, then raises `Fenced`."""
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
                        hint="stop the other query or use another consumer; takeoverSeconds sets how long to wait",
                    )
                else:
                    self._pause(_LOOK)
                    waited += _LOOK

    def _is_free(self, head: Head) -> bool:
        silent = abs(self.store.now() - head.beat_us) >= head.lapse_us
        return not head.owner or silent or surely_ended(head.process)

    def beat(self) -> None:
        """Write a heartbeat, and extend the leases in flight. Raises `Fenced` if this is no longer the owner."""
        with self._lock:
            if self._fenced:
                self._refuse()
            if self._head is not None:
                self._write(self._head)
                self._extend()

    def leave(self) -> None:
        """Release the consumer. Deliveries in flight stay leased for their time, for the next owner."""
        with self._lock:
            if self._head is not None and not self._fenced:
                self._write(msgspec.structs.replace(self._head, owner=""))
            self._head = None

    def _take_over(self, head: Head, version: int) -> None:
        own_head = msgspec.structs.replace(
            head,
            owner=self._me,
            process=self._process,
            epoch=head.epoch + 1,
            beat_us=self.store.now(),
            lapse_us=self._lapse_us,
        )
        # Pages that the last owner wrote but did not add to the head, in a store without joint commits.
        strays = [self._page_name(head, head.last, number) for number in range(MOST // PAGE)]
        try:
            self._version = self.store.run([self._put(own_head, version)])[0]
        except VersionConflict:
            return
        self._head = own_head
        self._receipts.clear()
        self._extended_us = 0
        kept = {page.name for page in own_head.pages}
        self.store.run([DeleteDocument(PAGES, self.tenant, name) for name in strays if name not in kept])
        for page in own_head.pages:
            fence(self.store, self.tenant, page.name, own_head.epoch)
        self._extend()

    def _write(self, head: Head, more: Sequence[Call] = ()) -> None:
        """Write the head, with other documents in the same commit where the store can."""
        for _ in range(2):
            new = msgspec.structs.replace(head, beat_us=self.store.now())
            try:
                self._version = self.store.run([self._put(new, self._version), *more])[0]
            except VersionConflict:
                found, version = read_head(self.store, self.tenant, self.queue, self.consumer)
                if found is None or (found.owner, found.epoch) != (self._me, head.epoch):
                    self._fenced = True
                    self._refuse()
                self._version = version  # our own write, whose answer was lost
            else:
                self._head = new
                return
        raise VersionConflict(f"the head of {self.name} keeps changing", hint="look for a second writer")

    def _put(self, head: Head, version: int) -> PutDocument:
        return PutDocument(HEADS, self.tenant, self.name, msgspec.msgpack.encode(head), version)

    def _refuse(self) -> NoReturn:
        raise Fenced(
            f"consumer {self.consumer} of queue {self.queue} was taken over by another driver",
            hint="this driver sent no heartbeat for half of leaseSeconds; it ends and settles nothing more",
        )

    # -- leasing

    def _lease(self, limit: int) -> None:
        settings = settings_of(self.store, self.tenant, self.queue)
        if settings.status in ("paused", "closed"):
            return
        want = settings.want(self.queue, self._lease_us)
        self._extended_us = self.store.now()
        taken = self._taken  # kept if a write fails, so that the next attempt does not lease more
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
            releases = [SettleItem("release", self.queue, lease.receipt) for lease in leases]
            self.store.run(
                [Settle(self.tenant, releases), *(DeleteDocument(PAGES, self.tenant, p.name) for p in pages)]
            )
            self._taken = []
            raise
        self._taken = []

    def _page_name(self, head: Head, after: int, number: int) -> str:
        return f"{self.name}/{head.epoch}.{after}.{number}"

    def _extend(self) -> None:
        """Extend the leases in flight to the full lease time, unless that was done just before. Drops lost leases."""
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
        """One answer per item. Raises if the store did not answer for all: then no lease counts as lost yet."""
        found: list[Any] = self.store.run([call])[0]
        for one in found:
            error = one.error if isinstance(one, Outcome) else one
            if isinstance(error, StorageError):
                raise error
        return found

    # -- settling

    def _finish(self) -> None:
        """Settle the committed pages, and remove them."""
        head = self.head
        done = [page for page in head.pages if page.last <= head.committed]
        for page in done:
            found = read_page(self.store, self.tenant, page)
            if found is not None:  # None if an earlier owner has settled it
                self._settle(page, found)
        if done or head.settled < head.committed:
            rest = tuple(page for page in head.pages if page.last > head.committed)
            gone = [DeleteDocument(kind, self.tenant, page.name) for page in done for kind in (PAGES, OUTCOMES)]
            self._write(msgspec.structs.replace(head, settled=head.committed, pages=rest), gone)
            for page in done:
                self._receipts.pop(page.name, None)

    def _settle(self, page: Page, found: Entries) -> None:
        reported = verdicts(self.store, self.tenant, page.name)
        settings = settings_of(self.store, self.tenant, self.queue) if reported else None
        acks, others = [], []
        for number, (id, receipt) in enumerate(zip(found.ids, found.receipts, strict=True), start=page.first):
            verdict = reported.get(number, PLAIN)
            if settings is None or verdict == PLAIN:
                acks.append(SettleItem("ack", self.queue, receipt, id=id))
            else:
                others.append(ending(self.queue, receipt, id, verdict, settings))
        lost = 0
        for items in (acks, others):
            if items:
                lost += sum(not outcome.ok for outcome in self._answers(Settle(self.tenant, items)))
        if lost:
            self.lost += lost
            log.warning(
                "consumer %s: %d of deliveries %d to %d had lost their lease, so they are delivered again",
                self.name, lost, page.first, page.last,
            )  # fmt: skip
