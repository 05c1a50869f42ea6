"""Evaluates alerts: at most every half a minute, and not at all while nothing changes and nothing fires.

A change of an alert is one unit: its state, a record of the audit trail and its notification, whose id is derived. So
there is one notification for each change, however often the process dies. All queues for which an alert changes in one
evaluation share a notification.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from tampu.broker.audit import Recording
from tampu.broker.core import Core, PublishSet
from tampu.broker.policies.alerts import state
from tampu.broker.policies.alerts.state import AlertState, Since
from tampu.broker.policies.alerts.verbs import ALERTS
from tampu.broker.policies.definitions import current
from tampu.broker.policies.rules.step import micros
from tampu.broker.policies.webhooks import deliveries
from tampu.broker.publish import PublishVerbs
from tampu.broker.publish_steps import derived_id
from tampu.engines.port import PollStatus, Publish
from tampu.maintenance import history
from tampu.maintenance.history import History
from tampu.maintenance.measures import Lags, Measures, Values
from tampu.model.definitions import Alert
from tampu.model.errors import StorageError, TampuError, VersionConflict
from tampu.model.message import NewMessage
from tampu.model.times import SECOND, moment

log = logging.getLogger("tampu.maintenance")
_EVERY_US = 30 * SECOND
_UNKNOWN_US = 60 * SECOND
"""Between two evaluations on engines that do not tell maintenance of every change of the journal."""
_MOST_FIRING = 1000
"""Queues for which one alert fires."""
_MOST_NAMED = 50
"""Queues in one notification."""


class AlertTask:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.runs = self.done = 0
        self.forget()

    def forget(self) -> None:
        """Another process leads: begin anew when this one does."""
        self._at: int | None = None
        self._journal: Any = None
        self._revision: int | None = None
        self._restless = False
        self._alerts: dict[str, list[Alert]] = {}
        self._states: dict[tuple[str, str], tuple[AlertState, int]] = {}
        self._pending: dict[tuple[str, str, str], int] = {}
        """Since when a measure is above, by tenant, alert and target."""
        self._measures: dict[str, Measures] = {}
        self._before: dict[str, History] = {}
        """What earlier leaders knew, by tenant."""
        self._counted = dict(self._core.attempts)
        self._stored_at: dict[str, int] = {}
        self._lags = Lags(self._core)

    def evaluate(self, status: PollStatus, *, now: bool = False) -> None:
        """Evaluate all alerts, if it is time and something may have changed, or ``now``."""
        if self._at is None:
            self._at = status.now_us
        passed = status.now_us - self._at
        if not now and passed < _EVERY_US:
            return
        known = status.journal_end is not None and self._journal is not None
        changed = status.journal_end != self._journal if known else passed >= _UNKNOWN_US
        if not (now or changed or self._restless):
            return
        self._at, self._journal = status.now_us, status.journal_end
        engine = self._core.engine
        tenants = sorted({tenant for tenant, _ in engine.queues()})
        if status.revision != self._revision or any(tenant not in self._alerts for tenant in tenants):
            self._read(tenants)
            self._revision = status.revision
        followers = None
        self._restless = bool(self._pending)
        for tenant in tenants:
            active = [alert for alert in self._alerts[tenant] if not alert.paused]
            self._drop_others(tenant, active)
            if not active:
                continue
            if followers is None and any(alert.measure == "lag" for alert in active):
                followers = self._lags.take(status.now_us)
            measures = self._measures_of(tenant)
            measures.take(engine.stats(tenant, None), status.now_us)
            for alert in active:
                values = measures.of(alert, followers or {})
                self._restless |= any(values.values())
                self._judge(tenant, alert, values, status.now_us)
            self._store_history(tenant, measures, status.now_us)

    def _measures_of(self, tenant: str) -> Measures:
        """The measures of a tenant. A new leader goes on where the last one was."""
        found = self._measures.get(tenant)
        if found is None:
            before = self._before.get(tenant)
            found = self._measures[tenant] = Measures(self._core, tenant, before, self._counted)
            for alert, targets in ({} if before is None else before.pending).items():
                for target, since in targets.items():
                    self._pending.setdefault((tenant, alert, target), since)
        return found

    def _store_history(self, tenant: str, measures: Measures, now: int) -> None:
        """Store what the next leader has to know, from time to time, if there is anything."""
        pending: dict[str, dict[str, int]] = {}
        for (owner, alert, target), since in self._pending.items():
            if owner == tenant:
                pending.setdefault(alert, {})[target] = since
        known = measures.history(pending)
        if now - self._stored_at.get(tenant, 0) >= history.EVERY_US and (known.samples or known.still or pending):
            self._stored_at[tenant] = now
            self._core.do(history.saving(tenant, known))

    def _read(self, tenants: list[str]) -> None:
        engine = self._core.engine
        self._alerts = {tenant: current(engine, tenant, ALERTS) for tenant in tenants}
        self._states = {}
        for tenant in tenants:
            for document in engine.documents(state.KIND, tenant):
                if document.name == state.HISTORY:
                    self._before[tenant] = history.read(document)
                else:
                    self._states[tenant, document.name] = state.read(document.value), document.version

    def _drop_others(self, tenant: str, active: list[Alert]) -> None:
        """Nothing fires of alerts that were deleted or paused."""
        names = {alert.name for alert in active}
        for (owner, name), (stored, version) in list(self._states.items()):
            if owner == tenant and name not in names and stored.firing:
                ended = AlertState(changes=stored.changes)
                self._states[tenant, name] = ended, self._core.do(state.saving(tenant, name, ended, version))

    def _judge(self, tenant: str, alert: Alert, values: Values, now: int) -> None:
        """Let an alert fire or end for each target, and store what has changed."""
        stored, version = self._states.get((tenant, alert.name), (AlertState(), 0))
        clear = alert.above if alert.clear is None else alert.clear
        lasting = micros(alert.lasting, "lasting")
        firing = dict(stored.firing)
        fired: dict[str, float] = {}
        ended = {target: 0.0 for target in firing if target not in values}
        for target, value in values.items():
            if value is None:
                continue
            key = (tenant, alert.name, target)
            if target in firing:
                if value <= clear:
                    ended[target] = value
            elif value <= alert.above:
                self._pending.pop(key, None)
            elif now - self._pending.setdefault(key, now) >= lasting and len(firing) < _MOST_FIRING:
                fired[target] = value
                firing[target] = Since(now, value)
                del self._pending[key]
        for target in ended:
            del firing[target]
        self._restless |= bool(firing or self._pending)
        if not (fired or ended):
            return
        new = AlertState(firing, stored.changes + 1)
        try:
            self._states[tenant, alert.name] = new, self._store(tenant, alert, new, version, fired, ended, now)
        except VersionConflict:  # another process leads, and has done it
            self._revision = None
            return
        self.runs += 1
        self.done += len(fired) + len(ended)
        for target, value in list(fired.items())[:_MOST_NAMED]:
            log.warning("alert %s of tenant %s: %s of %s is %g", alert.name, tenant, alert.measure, target, value)
        if ended:
            log.warning("alert %s of tenant %s has ended for %d", alert.name, tenant, len(ended))

    def _store(
        self,
        tenant: str,
        alert: Alert,
        new: AlertState,
        version: int,
        fired: dict[str, float],
        ended: dict[str, float],
        now: int,
    ) -> int:
        event = {
            "alert": alert.name, "measure": alert.measure, "above": alert.above, "at": moment(now).isoformat(),
            "fired": _named(fired), "ended": _named(ended), "firing": len(new.firing),
        }  # fmt: skip
        verbs = _Verbs(self._core, tenant)
        saving = state.saving(tenant, alert.name, new, version)
        action = "alert.fire" if fired else "alert.end"
        id = state.notification_id(tenant, alert.name, new.changes)
        try:
            calls = _whole([saving, *verbs.notices(alert, id, event)])
            return int(self._core.drive(verbs.recorded(calls, action, alert.name, None, event))[0])
        except (StorageError, VersionConflict):
            raise
        except TampuError as error:  # the queue is closed or full, or does not take such messages
            log.warning("alert %s of tenant %s cannot notify %s: %s", alert.name, tenant, alert.notify, error)
            calls = _whole([saving, *verbs.webhooks(alert, id, event)])
            return int(self._core.drive(verbs.recorded(calls, action, alert.name, None, event))[0])


class _Verbs(Recording, PublishVerbs):
    def notices(self, alert: Alert, id: str, event: Any) -> list[Any]:
        """The calls that notify of a change."""
        made: list[Any] = []
        if alert.notify is not None:
            step = self.publishing(alert.notify, [NewMessage(event, type="tampu.alert", id=id)])
            made += step.calls if isinstance(step, PublishSet) else [step]
        return made + self.webhooks(alert, id, event)

    def webhooks(self, alert: Alert, id: str, event: Any) -> list[Any]:
        """The calls that send a change to a url. They are never refused: the queue is tampu's own."""
        if alert.webhook is None:
            return []
        new = deliveries.message(alert.webhook, event, derived_id(id, "webhook"))
        return [self.policy_publishing(deliveries.QUEUE, [new])]


def _whole(calls: list[Any]) -> list[Any]:
    """The calls as a unit takes them."""
    return [msgspec.structs.replace(call, simple=False) if isinstance(call, Publish) else call for call in calls]


def _named(values: dict[str, float]) -> list[dict[str, Any]]:
    """The targets in a notification, with the highest first."""
    highest = sorted(values.items(), key=lambda pair: -pair[1])[:_MOST_NAMED]
    return [{"target": target, "value": value} for target, value in highest]
