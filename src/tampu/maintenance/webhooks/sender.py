"""The sender of webhooks. It runs in threads of its own, in the leader, while a tenant has webhooks.

A delivery that fails is tried again with growing pauses, and is dead after the last attempt. At most a few deliveries
go to one receiver at once (the group limit of the queue), so one that is slow does not hold up others.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from tampu.broker.commit_queue.waiters import Waiter
from tampu.broker.core import Core
from tampu.broker.policies.webhooks import secrets
from tampu.broker.policies.webhooks.deliveries import QUEUE, TENANTS, Delivery
from tampu.broker.verbs import Verbs
from tampu.engines.port import Claim, PollStatus
from tampu.maintenance.webhooks import post
from tampu.model.decoders import convert
from tampu.model.errors import TampuError
from tampu.model.extras import install
from tampu.model.message import Lease

log = logging.getLogger("tampu.maintenance")
_AT_ONCE = 8
_LOOK_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 3600.0
NOT_PUBLIC = "address_not_public"
"""The reason of dead letters whose receiver must not be called."""


class WebhookSender:
    def __init__(self, core: Core, may_send: Callable[[], bool]) -> None:
        self._core = core
        self._may_send = may_send
        self.runs = self.done = 0
        self._sent = 0
        self._revision: int | None = None
        self._tenants: list[str] = []
        self._lock = threading.Lock()
        self._free = _AT_ONCE
        self._slot = threading.Event()
        self._open: set[Any] = set()
        """Connections at work."""
        self._stopped = False
        self._warned = False
        self._looks = 0
        self._waiter: Waiter | None = None
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None

    def turn(self, status: PollStatus) -> None:
        """Learn which tenants have webhooks, if a document has changed, and start the thread if one has."""
        if status.revision != self._revision:
            self._tenants = [document.name for document in self._core.engine.documents(*TENANTS)]
            self._revision = status.revision
        if self._tenants and self._thread is None and self._has_http():
            self._pool = ThreadPoolExecutor(_AT_ONCE, "tampu-webhook")
            self._thread = threading.Thread(target=self._run, name="tampu-webhooks", daemon=True)
            self._thread.start()
        if self.done != self._sent:
            self.runs, self.done = self.runs + 1, self._sent

    def _has_http(self) -> bool:
        try:
            import urllib3  # noqa: F401 - only whether it is there
        except ImportError:
            if not self._warned:
                log.error("webhooks need urllib3: %s", install("client"))
            self._warned = True
            return False
        return True

    # -- the thread

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._look()
            except TampuError as error:
                if not self._stopped:
                    log.warning("webhooks cannot be claimed, retrying: %s", error)
                    self._slot.wait(_RETRY_SECONDS)
            except Exception:
                log.exception("webhooks failed, retrying")
                self._slot.wait(_RETRY_SECONDS)

    def _look(self) -> None:
        """Claim and send what is ready; wait if there is nothing, or no room."""
        self._looks += 1
        first = self._looks % max(1, len(self._tenants))
        tenants = self._tenants[first:] + self._tenants[:first]  # in turns: each gets room
        if not self._may_send():
            self._slot.wait(_RETRY_SECONDS)
            return
        waiter = self._waiter = Waiter([(tenant, QUEUE) for tenant in tenants], None)
        self._core.waiting.join(waiter)
        try:
            self._slot.clear()
            found = [self._claim(tenant) for tenant in tenants]
            if not any(found) and not self._stopped:
                waiter.wait(_LOOK_SECONDS)
            elif not self._free:
                self._slot.wait(_LOOK_SECONDS)
        finally:
            self._core.waiting.leave(waiter)

    def _claim(self, tenant: str) -> bool:
        """Claim as much as there is room for; true if there was something, or no room."""
        settings = self._core.settings.get(tenant, QUEUE)
        free = self._free
        if not free or self._stopped:
            return True
        if settings.status not in ("open", "draining"):
            return False
        leases = self._core.do(Claim(tenant, [settings.want(QUEUE, None)], free, "tampu-webhooks"))
        if not isinstance(leases, list):
            return True
        assert self._pool is not None
        for lease in leases:
            with self._lock:
                self._free -= 1
            self._pool.submit(self._send, tenant, lease)
        return bool(leases)

    # -- one delivery

    def _send(self, tenant: str, lease: Lease) -> None:
        verbs = Verbs(self._core, tenant)
        try:
            try:
                status = self._post(tenant, lease)
            except post.Refused as error:
                self._core.drive(verbs.reject(lease, NOT_PUBLIC, str(error)))
                return
            except Exception as error:
                self._again(verbs, lease, f"{type(error).__name__}: {error}")
                return
            if 200 <= status < 300:
                self._core.drive(verbs.ack(lease))
                self._sent += 1
            else:
                self._again(verbs, lease, f"the receiver answered {status}")
        except TampuError as error:  # the lease is lost, or the store is closed: it is sent again
            if not self._stopped:
                log.warning("webhook %s could not be settled: %s", lease.id, error)
        finally:
            with self._lock:
                self._free += 1
            self._slot.set()

    def _post(self, tenant: str, lease: Lease) -> int:
        delivery = convert(lease.payload, Delivery)
        body = msgspec.json.encode(delivery.body)
        headers = {**delivery.headers, "tampu-delivery": lease.id, "tampu-attempt": str(lease.attempt)}
        engine = self._core.engine
        signing = secrets.signing(engine.document(*secrets.place(tenant)), engine.now())
        if signing:
            headers["tampu-signature"] = secrets.signature(signing, int(time.time()), body)
        return post.post(delivery.url, headers, body, private=self._core.private_webhooks, opened=self._noted_as_open)

    @contextlib.contextmanager
    def _noted_as_open(self, connection: Any) -> Iterator[None]:
        """So that `stop` need not wait for a slow receiver."""
        with self._lock:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)

    def _again(self, verbs: Verbs, lease: Lease, why: str) -> None:
        if self._stopped:
            self._core.drive(verbs.release(lease))
            return
        pause = min(_FIRST_PAUSE * 2 ** (lease.attempt - 1), _LONGEST_PAUSE)
        self._core.drive(verbs.nack(lease, why[:500], pause))

    def stop(self) -> None:
        self._stopped = True
        self._slot.set()
        if self._waiter is not None:
            self._waiter.wake()
        with self._lock:
            for connection in self._open:
                post.cut(connection)
        if self._thread is not None:
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()
