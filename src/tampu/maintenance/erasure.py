"""Goes on with erasures whose caller has died, and with those that wait for leased messages."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from tampu.broker.core import Core
from tampu.broker.erasure import stored
from tampu.broker.erasure.verbs import ErasureVerbs
from tampu.engines.port import PollStatus
from tampu.model.audit import Actor
from tampu.model.errors import TampuError, Unavailable
from tampu.model.times import SECOND

log = logging.getLogger("tampu.maintenance")
_QUIET_US = 60 * SECOND
"""Without a move for this long, nobody works on an erasure."""
_LOOK_SECONDS = 30.0


class Eraser:
    """Works in a thread of its own, which only exists while there is something to erase."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._revision = -1
        self._pending = False
        self._looked_at = 0.0
        self._thread: threading.Thread | None = None
        self._stopped = False

    def look(self, status: PollStatus) -> None:
        """Start the thread if an erasure is to go on. Reads only if a document has changed or some are pending."""
        if status.revision == self._revision and not self._pending:
            return
        if time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        self._revision = status.revision
        self._pending = bool(stored.pending(self._core.engine))
        if self._pending and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="tampu-erasure", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except TampuError as error:
            if not self._stopped:
                log.warning("an erasure failed, will try again: %s", error)

    def work(self) -> int:
        """Go on with all erasures on which nobody works. Returns how many."""
        engine, count = self._core.engine, 0
        for tenant, id in stored.pending(engine):
            document = engine.document(stored.KIND, tenant, id)
            if document is None:
                continue
            erasure = stored.read(document.value)
            if engine.now() - erasure.moved_us >= _QUIET_US:
                verbs = ErasureVerbs(self._core, tenant).by(Actor(erasure.actor))
                self._core.drive(verbs.go_on_erasing(id), self._do)
                count += 1
        return count

    def _do(self, step: Any) -> Any:
        if self._stopped:
            raise Unavailable("the store is being closed")
        return self._core.do(step)

    def stop(self) -> None:
        self._stopped = True
        if self._thread is not None:
            self._thread.join()
