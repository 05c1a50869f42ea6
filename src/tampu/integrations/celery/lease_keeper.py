"""Extends the leases of messages that Celery has taken and not yet acknowledged."""

from __future__ import annotations

import logging
import threading

import tampu

log = logging.getLogger("tampu.celery")


class LeaseKeeper:
    """A thread that extends all leases before they run out. It sleeps while there are none."""

    def __init__(self, store: tampu.Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._receipts: set[str] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, receipt: str) -> None:
        with self._changed:
            self._receipts.add(receipt)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tampu-celery-leases", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drop(self, receipt: str) -> None:
        with self._changed:
            self._receipts.discard(receipt)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._receipts or self._closed)
                self._changed.wait_for(lambda: self._closed, self._seconds / 3)
                if self._closed:
                    return
                receipts = list(self._receipts)
            for receipt in receipts:
                self._extend(receipt)

    def _extend(self, receipt: str) -> None:
        try:
            self._store.extend(receipt, self._seconds)
        except tampu.LeaseLost:
            if receipt in self._receipts:  # else it was acknowledged meanwhile
                log.warning("the lease of %s is lost: its task will run again", receipt)
            self.drop(receipt)
        except tampu.TampuError as error:
            log.warning("cannot extend the lease of %s, trying again: %s", receipt, error)
