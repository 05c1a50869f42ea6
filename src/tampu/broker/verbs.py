"""Claim, settle, extend and the verbs on single messages, written as steps (see `tampu.broker.core`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tampu import tracing
from tampu.broker import journal_details, notes, validate
from tampu.broker.audit import Recording
from tampu.broker.commit_queue.waiters import MakeClaim
from tampu.broker.core import Read, Steps, WaitForEnd, WaitForMessages
from tampu.broker.publish import PublishVerbs
from tampu.broker.streams.requests import extended
from tampu.engines import port
from tampu.model.errors import InvalidMessage, NotFound, TampuError
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Lease, Message
from tampu.model.outcome import Ack, Nack, Outcome, Reject, Release, Settlement
from tampu.model.reasons import UNRECOVERABLE
from tampu.model.states import TERMINAL, State
from tampu.model.times import CHANCE, SECOND, Duration, duration

_PAUSED_LOOK = 0.25
_UNWATCHED_LOOK = 1.0
_LONGEST_RECEIPT = 512


class Verbs(PublishVerbs, Recording):
    """Work with the messages of one tenant."""

    # -- claim and settle

    def claim(
        self,
        queues: str | Sequence[str],
        *,
        limit: int = 1,
        lease: Duration | None = None,
        wait: Duration = 0,
        worker: str | None = None,
    ) -> Steps[list[Lease]]:
        """Claim up to ``limit`` messages from one queue or several; the first queue named goes first.

        With ``wait`` it waits up to that long for the first message, without polling. The list is empty if there was
        none. ``lease`` is how long the messages are yours: settle or extend before it runs out.
        """
        names, lease_us = validate.claim(queues, limit, lease, worker)
        began = tracing.now_ns()
        until = time.monotonic() + duration(wait, "wait") / SECOND

        def make_claim() -> port.Claim | None:
            """The claim to make now; None if the settings must be read first, or no queue can be claimed from."""
            if not all(self.core.settings.knows(self.tenant, name) for name in names):
                return None
            wants = self._wants(names, lease_us)
            return port.Claim(self.tenant, wants, limit, worker) if wants else None

        pairs = [(self.tenant, name) for name in names]
        reply: list[Lease] | port.RetryLater | port.Again | None = None
        while True:
            mark = self.core.waiting.mark(pairs) if wait and reply is None else None
            wants = self._wants(names, lease_us)
            leases = port.AGAIN if reply is None else reply
            while isinstance(leases, port.Again):
                leases = (yield port.Claim(self.tenant, wants, limit, worker)) if wants else []
            later = leases if isinstance(leases, port.RetryLater) else None
            if later is None and leases:
                assert isinstance(leases, list)
                if self.traced and tracing.on():
                    tracing.claimed(self.tenant, names, leases, began, worker)
                return leases
            left = until - time.monotonic()
            if left <= 0 or self.core.closed:
                return []
            reply = yield self._pause(pairs, wants, later, left, make_claim, mark)
            if not reply and self.core.closed:
                return []

    def _wants(self, names: Sequence[str], lease_us: int | None) -> list[port.QueueClaim]:
        settings = [(name, self._settings(name)) for name in names]
        return [s.want(name, lease_us) for name, s in settings if s.status not in ("paused", "closed")]

    def _pause(
        self,
        pairs: list[tuple[str, str]],
        wants: Sequence[port.QueueClaim],
        later: port.RetryLater | None,
        left: float,
        claim: MakeClaim,
        mark: int | None,
    ) -> WaitForMessages:
        """Wait until a message is ready, a lease of a full queue ends, or a rate allows the next claim."""
        looks = [left]
        if len(wants) < len(pairs):
            looks.append(_PAUSED_LOOK)
        if later is not None:
            looks.append(later.us / SECOND)
        if not self.core.watched or any(want.max_in_flight for want in wants):
            looks.append(_UNWATCHED_LOOK)
        timely = [want for want in wants if later is None or not want.rate]
        empty = [(self.tenant, want.queue) for want in timely if not want.max_in_flight]
        full = [((self.tenant, want.queue), want.max_in_flight) for want in timely if want.max_in_flight]
        return WaitForMessages(pairs, min(looks), empty, full, claim, mark)

    def settle(self, settlements: Iterable[Settlement]) -> Steps[list[Outcome]]:
        """End many leases in one commit. Each has its own outcome; a lost lease does not stop the others."""
        if not isinstance(settlements, Iterable):
            raise InvalidMessage("settlements must be a list", field="settlements", hint="use ack for one lease")
        given = list(settlements)
        return (yield from self._settle(given)) if given else []

    def _settle(self, settlements: Sequence[Settlement]) -> Steps[list[Outcome]]:
        step = self._settling(settlements)
        if not (self.traced and tracing.on()):
            return (yield step)  # type: ignore[no-any-return]  # typed by the call
        began = tracing.now_ns()
        try:
            outcomes: list[Outcome] = yield step
        except TampuError as error:
            tracing.settled(self.tenant, settlements, error, began)
            raise
        tracing.settled(self.tenant, settlements, outcomes, began)
        return outcomes

    def _settling(self, settlements: Sequence[Settlement]) -> Any:
        """The step that ends these leases."""
        endings = self._endings(settlements)
        notify_queues = frozenset(
            name for name in {ending.queue for ending in endings} if self._settings(name).max_in_flight
        )
        return port.Settle(self.tenant, endings, notify_queues)

    def ack(self, lease: Lease | str, result: Any = None) -> Steps[Message | None]:
        """The work is done. Raises `LeaseLost` if the lease is no longer yours; then nothing changed."""
        yield from self._settle_one(Ack(lease, result))
        return None

    def nack(
        self,
        lease: Lease | str,
        error: str | BaseException | None = None,
        delay: Duration | None = None,
        traceback: str | None = None,
        max_attempts: int | None = None,
    ) -> Steps[Outcome]:
        """The work failed: retry after the queue's backoff (or ``delay``), or dead if no attempts are left.

        ``max_attempts`` replaces the message's own from now on, this attempt included.
        """
        return (yield from self._settle_one(Nack(lease, error, delay, traceback, max_attempts)))  # type: ignore[arg-type]  # checked there

    def reject(
        self,
        lease: Lease | str,
        reason: str = UNRECOVERABLE,
        error: str | BaseException | None = None,
        traceback: str | None = None,
    ) -> Steps[Outcome]:
        """The work can never succeed: dead now, for ``reason``."""
        return (yield from self._settle_one(Reject(lease, reason, error, traceback)))  # type: ignore[arg-type]  # checked there

    def release(self, lease: Lease | str, delay: Duration | None = None) -> Steps[Outcome]:
        """Give the message back, ready now or after ``delay``. The attempt does not count."""
        return (yield from self._settle_one(Release(lease, delay)))

    def _settle_one(self, settlement: Settlement) -> Steps[Outcome]:
        outcomes = yield from self._settle([settlement])
        if outcomes[0].error is not None:
            raise outcomes[0].error
        return outcomes[0]

    def _endings(self, settlements: Sequence[Settlement]) -> list[port.SettleItem]:
        """`_ending` of each. Faster for acks without a result: by lease, or by receipt of the same queue as before."""
        endings: list[port.SettleItem] = []
        queue, start = "", None
        for settlement in settlements:
            receipt = settlement.lease if type(settlement) is Ack and settlement.result is None else None
            if type(receipt) is Lease:
                endings.append(_acked(receipt))
                continue
            if (
                start is not None
                and type(receipt) is str
                and receipt.startswith(start)
                and len(receipt) <= _LONGEST_RECEIPT
                and receipt.find("/", len(start)) < 0
            ):
                endings.append(port.SettleItem("ack", queue, receipt))
                continue
            ending = self._ending(settlement)
            endings.append(ending)
            queue, start = ending.queue, f"{ending.queue}/"
        return endings

    def _ending(self, settlement: Settlement) -> port.SettleItem:
        if type(settlement) is Ack and settlement.result is None and type(settlement.lease) is Lease:
            return _acked(settlement.lease)
        if not isinstance(settlement, Ack | Nack | Reject | Release):
            raise InvalidMessage("settle takes Ack, Nack, Reject and Release", field="settlements")
        queue, receipt = self._receipt(settlement.lease)
        if isinstance(settlement, Ack):
            settings = self._settings(queue)
            packed = validate.result(settlement.result, settings.max_payload)
            return port.SettleItem("ack", queue, receipt, packed, settings.result_ttl_us)
        if isinstance(settlement, Release):
            delay_us = None if settlement.delay is None else duration(settlement.delay, "delay")
            return port.SettleItem("release", queue, receipt, delay_us=delay_us)
        return self._failed(settlement, queue, receipt)

    def _failed(self, settlement: Nack | Reject, queue: str, receipt: str) -> port.SettleItem:
        error, trace = validate.error_text(settlement.error)
        trace = validate.traceback_text(settlement.traceback) or trace
        if isinstance(settlement, Reject):
            reason = validate.text(settlement.reason, "reason", 128)
            return port.SettleItem("reject", queue, receipt, reason=reason, error=error, traceback=trace)
        most = settlement.max_attempts
        if most is not None:
            validate.whole(most, "max_attempts", 1, 1000)
        if settlement.delay is not None:
            delay_us = duration(settlement.delay, "delay")
            return port.SettleItem(
                "nack", queue, receipt, error=error, traceback=trace, delay_us=delay_us, max_attempts=most
            )
        settings = self._settings(queue)
        return port.SettleItem(
            "nack",
            queue,
            receipt,
            error=error,
            traceback=trace,
            delays=settings.delays,
            spread=settings.backoff.spread(CHANCE.random()),
            max_attempts=most,
        )

    def _receipt(self, lease: Lease | str) -> tuple[str, str]:
        """(queue, receipt)"""
        receipt = lease.receipt if type(lease) is Lease else lease
        if not isinstance(receipt, str) or not 0 < len(receipt) <= _LONGEST_RECEIPT:
            raise InvalidMessage("pass the lease, or its receipt", field="lease")
        queue = receipt.rpartition("/")[0]
        if not queue:
            hint = "pass the receipt of a lease, such as emails/1a1e79452f500000.43eba732c12bffe6"
            raise InvalidMessage("this is not a receipt", field="receipt", hint=hint)
        return validate.name(queue, "receipt"), receipt

    def extend(self, lease: Lease | str, by: Duration | None = None) -> Steps[Lease | None]:
        """Keep a lease for ``by`` from now (the queue's lease time if not given).

        Given a `Lease`, it returns the lease as it is now; ``lease.message.cancel_requested`` says if its work should
        stop. Raises `LeaseLost`.
        """
        reply = (yield from self.extend_many([(lease, by)]))[0]
        if isinstance(reply, TampuError):
            raise reply
        if not isinstance(lease, Lease):
            return None
        return extended(lease, reply.until_us, cancel=reply.cancel_requested)

    def extend_many(
        self, leases: Iterable[tuple[Lease | str, Duration | None]]
    ) -> Steps[list[port.Extended | TampuError]]:
        """`extend` many leases in one commit, each with its own reply."""
        items = []
        for lease, by in leases:
            queue, receipt = self._receipt(lease)
            lease_us = self._settings(queue).lease_us if by is None else duration(by, "by", zero=False)
            items.append((queue, receipt, lease_us))
        return (yield port.Extend(self.tenant, items)) if items else []

    # -- one message

    def get(self, id: str) -> Steps[Message]:
        """A message as it is now, with its failed attempts and its result. Raises `NotFound`."""
        wanted = validate.id_text(id)
        found: Message | None = yield Read(lambda engine: self._message_of(engine, wanted))
        if found is None:
            raise NotFound(f"no message {wanted}", field="id")
        if found.state is State.LEASED:
            note: port.Document | None = yield Read(lambda engine: engine.document(notes.KIND, self.tenant, wanted))
            found = found if note is None else msgspec.structs.replace(found, progress=notes.progress(note))
        return found

    def _message_of(self, engine: port.Engine, id: str) -> Message | None:
        """A message with its result, which a legal hold keeps past its time."""
        found = engine.get(self.tenant, id)
        if found is None or found.state is not State.DONE or found.result_raw is not None:
            return found
        under_hold = self.core.settings.get(self.tenant, found.queue).under_hold
        return engine.get(self.tenant, id, expired=True) if under_hold else found

    def result(self, id: str, *, wait: Duration = 0) -> Steps[Message]:
        """The message when it has ended, or as it is after ``wait``. Raises `NotFound`."""
        until = time.monotonic() + duration(wait, "wait") / SECOND
        while True:
            found = yield from self.get(id)
            left = until - time.monotonic()
            if found.state in TERMINAL or left <= 0 or self.core.closed:
                return found
            yield WaitForEnd(self.tenant, found.id, left)
            if self.core.closed:
                return found

    def cancel(self, *ids: str) -> Steps[list[Outcome]]:
        """Cancel waiting messages. The worker of a leased one is asked to stop; the message ends with its lease."""
        named = [validate.id_text(id) for id in ids]
        yield from self.record_ids("message.cancel", named)
        return (yield port.Cancel(self.tenant, named, actor=self.actor.name))  # type: ignore[no-any-return]  # typed by the call

    def free(self, *ids: str) -> Steps[list[Outcome]]:
        """Let held messages become ready."""
        named = [validate.id_text(id) for id in ids]
        yield from self.record_ids("message.free", named)
        return (yield port.Free(self.tenant, named, actor=self.actor.name))  # type: ignore[no-any-return]  # typed by the call

    # -- the journal

    def journal(
        self, *, after: Position | int | None = None, limit: int = 1000, details: bool = False
    ) -> Steps[JournalPage]:
        """Transitions after a position, in order. Pass the position of the page to read on.

        With ``details`` each has the type and the correlation id of its message, which is looked up for that.
        """
        validate.whole(limit, "limit", 1, 100_000)
        position = validate.position(after)
        page: JournalPage = yield Read(lambda engine: engine.journal(position, limit, self.tenant))
        if not details:
            return page
        wanted = journal_details.names(page.transitions)
        known = yield Read(lambda engine: journal_details.look_up(engine, wanted))
        return msgspec.structs.replace(page, transitions=journal_details.added(page.transitions, known))


def _acked(lease: Lease) -> port.SettleItem:
    return port.SettleItem("ack", lease.message.queue, lease.receipt, id=lease.message.id)
