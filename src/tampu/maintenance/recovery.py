"""Goes on with long calls whose caller has died: erasures, also those that wait for leased messages, and subscriptions
that are filled from the past."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from tampu.broker import recovery
from tampu.broker.core import Core
from tampu.broker.erasure import stored
from tampu.broker.erasure.verbs import ErasureVerbs
from tampu.broker.policies.subscriptions import fill
from tampu.broker.policies.subscriptions.verbs import SubscriptionVerbs
from tampu.broker.publish import PublishVerbs
from tampu.engines.port import PollStatus
from tampu.model.audit import Actor
from tampu.model.errors import TampuError, Unavailable
from tampu.model.times import SECOND

log = logging.getLogger("tampu.maintenance")
_QUIET_US = 60 * SECOND
"""Without a move for this long, nobody works on it."""
_LOOK_SECONDS = 30.0


class _FillVerbs(PublishVerbs, SubscriptionVerbs):
    pass


class Recovery:
    """Works in a thread of its own, which only exists while there is something to do."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._revision = -1
        self._pending = False
        self._looked_at = 0.0
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._ended = 0
        self.runs = self.done = 0

    def look(self, status: PollStatus, *, now: bool = False) -> None:
        """Start the thread if something is to go on. Reads only if a document has changed or something is pending."""
        if self._ended != self.done:
            self.runs, self.done = self.runs + 1, self._ended
        if status.revision == self._revision and not self._pending:
            return
        if time.monotonic() - self._looked_at < _LOOK_SECONDS and not now:
            return
        self._looked_at = time.monotonic()
        self._revision = status.revision
        engine = self._core.engine
        self._pending = bool(recovery.pending(engine))
        if self._pending and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="tampu-recovery", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except TampuError as error:
            if not self._stopped:
                log.warning("what a process has left cannot be completed, will try again: %s", error)

    def work(self) -> int:
        """Go on with all on which nobody works. Returns how many."""
        engine, count = self._core.engine, 0
        for kind, tenant, name in recovery.pending(engine):
            if kind == fill.KIND and engine.now() - fill.moved_us(engine, tenant, name) >= _QUIET_US:
                fills = _FillVerbs(self._core, tenant)
                count += self._try(lambda: fills.go_on_filling(name))  # noqa: B023 - called at once
            document = engine.document(stored.KIND, tenant, name) if kind == stored.KIND else None
            erasure = None if document is None else stored.read(document.value)
            if erasure is not None and engine.now() - erasure.moved_us >= _QUIET_US:
                verbs = ErasureVerbs(self._core, tenant).by(Actor(erasure.actor))
                count += self._try(lambda: verbs.go_on_erasing(name))  # noqa: B023 - called at once
        self._ended += count
        return count

    def _try(self, steps: Callable[[], Any]) -> bool:
        """True if it went on; one that is refused does not stop the others."""
        try:
            self._core.drive(steps(), self._do)
        except Unavailable:
            raise
        except TampuError as error:
            log.warning("what a process has left cannot be completed, will try again: %s", error)
            return False
        return True

    def _do(self, step: Any) -> Any:
        if self._stopped:
            raise Unavailable("the store is being closed")
        return self._core.do(step)

    def stop(self) -> None:
        self._stopped = True
        if self._thread is not None:
            self._thread.join()
