"""Settles ended messages in batches: one batch holds all that ended during the previous commit."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tampu.broker import access
from tampu.broker.store import Store
from tampu.model.errors import (
    InvalidConfig,
    InvalidMessage,
    LeaseLost,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    TampuError,
)
from tampu.model.message import State
from tampu.model.outcome import Ack, AskReview, Outcome, Settlement
from tampu.model.states import TERMINAL
from tampu.worker import endings
from tampu.worker.current import Current
from tampu.worker.logs import attempts
from tampu.worker.logs.attempts import Attempt, AttemptLog
from tampu.worker.outages import RETRYABLE, Outages

log = logging.getLogger("tampu.worker")
Ended = tuple[Current, Settlement | None]
_MOST = 2_000
_LAST_SECONDS = 2.0


class SettleQueue:
    def __init__(self, store: Store, outages: Outages, on_settled: Callable[[Sequence[Ended]], None]) -> None:
        self._store = store
        self._outages = outages
        self._on_settled = on_settled
        self._log = AttemptLog(store)
        self._ended: deque[Ended] = deque()
        self._work = threading.Event()
        self._closing = False
        self._give_up = threading.Event()
        self.taken = 0
        """How many have ended; read by the claimer."""
        self.refused = False
        """True while the server refuses settlements because of a rate limit."""
        self._most = _MOST
        """Maximum size of a batch."""
        self._given_up = 0
        self._under_way = 0
        self._thread = threading.Thread(target=self._run, name="tampu-settle", daemon=True)
        self._thread.start()

    def put(self, work: Current, settlement: Settlement | None) -> None:
        """Callable from any thread; does not wait."""
        self._ended.append((work, settlement))
        if not self._work.is_set():
            self._work.set()

    def put_later(self, work: Current, settlement: Settlement | None) -> None:
        """Like `put`, but the caller must call `nudge` afterwards."""
        self._ended.append((work, settlement))

    def nudge(self) -> None:
        if not self._work.is_set():
            self._work.set()

    def close(self, patience: float) -> None:
        """Wait until all is settled, at most this long."""
        self._closing = True
        self._work.set()
        self._thread.join(patience)
        self._give_up.set()
        self._thread.join(_LAST_SECONDS)

    @property
    def left(self) -> int:
        """Number of messages that were not settled before the end of the worker."""
        return self._given_up + self._under_way + len(self._ended)

    def _run(self) -> None:
        ended = self._ended
        while True:
            self._work.wait()
            self._work.clear()
            while ended:
                batch = [ended.popleft() for _ in range(min(len(ended), self._most))]
                self.taken += len(batch)
                self._under_way = len(batch)
                self._settle(batch)
                self._under_way = 0
                self._on_settled(batch)
            if self._closing and not ended:
                return

    def _settle(self, batch: list[Ended]) -> None:
        given = []
        for work, settlement in batch:
            if settlement is not None and not work._settled:
                work._settled = True
                given.append((work, settlement))
        if not given:
            return
        log_all = attempts.log.isEnabledFor(logging.INFO)
        ended_ids: list[str] = []
        settled: list[Attempt] = []
        for (work, settlement), outcome in zip(
            given, self._settle_with_retries([one for _, one in given]), strict=True
        ):
            if outcome is None:
                self._given_up += 1
            elif outcome.error is not None:
                self._log_refusal(work, settlement, outcome.error)
            else:
                if work._noted and outcome.state in TERMINAL:
                    ended_ids.append(work.id)
                if log_all or type(settlement) is not Ack:
                    settled.append((work, settlement, outcome))
        if settled:
            self._log.write(settled)
        if ended_ids:
            with contextlib.suppress(TampuError):  # the next worker that starts removes them
                self._outages.retry(lambda: self._drop_notes(ended_ids), self._give_up)

    def _drop_notes(self, ids: list[str]) -> None:
        access.run(self._store, access.verbs(self._store).drop_notes(ids))

    def _settle_with_retries(self, settlements: Sequence[Settlement]) -> list[Outcome | None]:
        """The outcome of each; None: the store did not come back in time."""
        found: dict[int, Outcome] = {}

        def attempt() -> None:
            missing = [index for index in range(len(settlements)) if index not in found]
            away: TampuError | None = None
            while missing and away is None:
                part, missing = missing[: self._most], missing[self._most :]
                for index, outcome in zip(part, self._bounded([settlements[n] for n in part]), strict=True):
                    if isinstance(outcome.error, RETRYABLE):  # a store on several servers may answer for some
                        away = outcome.error
                    else:
                        found[index] = outcome
            if away is not None:
                raise away

        try:
            self._outages.retry(attempt, self._give_up)
        except TampuError as error:  # one that does not go by itself, such as a key that was revoked
            log.error("%d messages cannot be settled: %s", len(settlements) - len(found), error)
        self._most = min(_MOST, 2 * self._most)
        return [found.get(index) for index in range(len(settlements))]

    def _bounded(self, settlements: Sequence[Settlement]) -> list[Outcome]:
        """The outcome of each. If a rate limit refuses the batch, send smaller batches, now or next time."""
        try:
            outcomes = self._together(settlements)
            self.refused = False
            return outcomes
        except RateLimited as error:
            self.refused = True
            self._most = max(1, len(settlements) // 2)
            if error.retry_after is not None or len(settlements) == 1:
                raise
            half = self._most
            return [*self._bounded(settlements[:half]), *self._bounded(settlements[half:])]

    def _together(self, settlements: Sequence[Settlement]) -> list[Outcome]:
        if any(type(one) is AskReview for one in settlements):
            return [self._ask(one) if type(one) is AskReview else self._alone(one) for one in settlements]
        try:
            return self._store.settle(settlements)
        except InvalidMessage:
            return [self._alone(one) for one in settlements]  # one is invalid; settle the others

    def _alone(self, settlement: Any) -> Outcome:
        try:
            return self._store.settle([settlement])[0]
        except InvalidMessage as error:
            return self._store.settle([endings.bad_result(settlement.lease, error)])[0]

    def _ask(self, ask: AskReview) -> Outcome:
        try:
            self._store.reviews.ask(ask.lease, ask.review, reason=ask.reason)
        except LeaseLost as error:
            return Outcome(ask.lease.id, None, error)
        except (InvalidMessage, PayloadTooLarge, InvalidConfig, NotFound) as error:
            return self._store.settle([endings.bad_review(ask, error)])[0]
        return Outcome(ask.lease.id, State.HELD)

    @staticmethod
    def _log_refusal(work: Current, settlement: Settlement, error: TampuError) -> None:
        how = type(settlement).__name__.lower()
        if isinstance(error, LeaseLost):
            log.warning("%s %s: the %s came too late, the lease had expired", work.task.name, work.id, how)
        else:
            log.error("%s %s: the %s was refused: %s", work.task.name, work.id, how, error)
