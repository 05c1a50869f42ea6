"""Handles timers that are due, see `tampu.broker.timers`. It looks only where timers have become ready."""

from __future__ import annotations

import logging

from tampu.broker import timers
from tampu.broker.core import Core
from tampu.broker.policies.flows.follower import KEPT_US
from tampu.broker.policies.flows.verbs import FlowVerbs
from tampu.broker.policies.reviews.due import DueVerbs
from tampu.engines.port import AGAIN, Claim, QueueClaim, Settle, SettleItem
from tampu.model.audit import Actor
from tampu.model.errors import InvalidMessage, TampuError, Unavailable
from tampu.model.message import Lease
from tampu.model.times import SECOND

log = logging.getLogger("tampu.maintenance")
_LEASE_US = 60 * SECOND
_LATER_US = 5 * SECOND
_STEP = 50


class Timers:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.runs = self.done = 0
        self._tenants: set[str] | None = None
        """Those with timers that may be ready; None: not known."""

    def forget(self) -> None:
        """Another process is the leader now: look everywhere when this one is."""
        self._tenants = None

    def became_ready(self, tenant: str) -> None:
        """Called after each commit that made timers ready."""
        if self._tenants is not None:
            self._tenants.add(tenant)

    def handle(self) -> None:
        """Handle all timers that are due."""
        if self._tenants is None:
            self._tenants = set()
            self._tenants |= {tenant for tenant, queue in self._core.engine.queues() if queue == timers.QUEUE}
        while self._tenants:
            tenant = self._tenants.pop()
            try:
                while self._some(tenant):
                    pass
            except TampuError:
                self._tenants.add(tenant)
                raise

    def _some(self, tenant: str) -> bool:
        """Handle some timers of a tenant; false if there are none."""
        want = QueueClaim(timers.QUEUE, _LEASE_US)
        reply = self._core.coalescer.submit(Claim(tenant, [want], _STEP, "tampu-timers"))
        if reply is AGAIN:
            return True
        leases: list[Lease] = reply if isinstance(reply, list) else []
        settled = [self._settled(tenant, lease) for lease in leases]
        if settled:
            self.runs += 1
            self.done += len(settled)
            self._core.coalescer.submit(Settle(tenant, settled))
        return bool(leases)

    def _settled(self, tenant: str, lease: Lease) -> SettleItem:
        verbs = DueVerbs(self._core, tenant).by(Actor("tampu"))
        try:
            id = timers.read(lease.message.raw).id
            if lease.message.type == timers.FLOW:
                later = self._core.drive(FlowVerbs(self._core, tenant).forget_flow(id, KEPT_US))
                if later:
                    return SettleItem("release", timers.QUEUE, lease.receipt, delay_us=later)
                return SettleItem("ack", timers.QUEUE, lease.receipt, id=lease.id)
            self._core.drive(verbs.handle_timer(id))
        except Unavailable:
            raise
        except TampuError as error:
            log.warning("what is due for %s must wait: %s", lease.message.correlation_id, error)
            if not isinstance(error, InvalidMessage):
                return SettleItem("release", timers.QUEUE, lease.receipt, delay_us=_LATER_US)
        return SettleItem("ack", timers.QUEUE, lease.receipt, id=lease.id)
