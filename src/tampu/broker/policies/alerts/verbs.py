"""The verbs of alerts: put, get, list, delete, and which of them fire."""

from __future__ import annotations

import math
from typing import Any

from tampu.broker import validate
from tampu.broker.core import Read, Steps
from tampu.broker.policies.alerts import state
from tampu.broker.policies.alerts.follower import FOLLOWER
from tampu.broker.policies.definitions import DefinitionVerbs, Kind, texts
from tampu.broker.policies.rules.step import micros
from tampu.broker.policies.webhooks import deliveries
from tampu.model.definitions import Alert, Firing, Measure
from tampu.model.errors import InvalidConfig

STATUS = "status"
"""No alert has this name: it is the path of those that fire."""
_LONGEST_US = 7 * 86_400 * 1_000_000


class Alerts(Kind[Alert]):
    word = "alert"
    plural = "alerts"
    struct = Alert
    defaults = (
        Alert(name="dead-letters", measure="dead", above=10, clear=0, within="1h"),
        Alert(name="old-messages", measure="oldest", above=3600, clear=1800),
    )

    def check(self, definition: Alert) -> Alert:
        if definition.name == STATUS:
            raise InvalidConfig(f"an alert cannot have the name {STATUS}", field="name", hint="use another name")
        texts(definition.queues, "queues")
        for field in ("above", "clear"):
            value = getattr(definition, field)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InvalidConfig(f"{field} must be a number, at least 0", field=field)
        if definition.clear is not None and definition.clear > definition.above:
            raise InvalidConfig("clear must be at most above", field="clear", hint="it ends at or below clear")
        if definition.measure == "failed" and definition.above >= 1:
            raise InvalidConfig("a share is less than 1", field="above", hint="for example 0.2")
        if definition.measure == "lag" and definition.queues:
            raise InvalidConfig("followers have no queues", field="queues", hint="leave queues out")
        for field in ("lasting", "within"):
            us = micros(getattr(definition, field), field)
            if us > _LONGEST_US or (field == "within" and us <= 0):
                raise InvalidConfig(f"{field} must be more than 0 and at most 7 days", field=field)
        if definition.notify is not None:
            validate.name(definition.notify, "queue")
        if definition.webhook is not None:
            deliveries.check(definition.webhook, "webhook")
        return definition

    def marks(self, definition: Alert) -> tuple[tuple[str, str], ...]:
        return () if definition.webhook is None else (deliveries.TENANTS,)

    def follower(self, definition: Alert) -> str | None:
        return FOLLOWER if definition.measure == "failed" and not definition.paused else None

    def places(self, definition: Alert) -> tuple[str, ...]:
        return (*(definition.queues or ("*",)), *(() if definition.notify is None else (definition.notify,)))

    def of_the_store(self, definition: Alert) -> bool:
        return definition.measure == "lag"


ALERTS = Alerts()


class AlertVerbs(DefinitionVerbs):
    def put_alert(
        self,
        name: str,
        *,
        measure: Measure,
        above: float,
        clear: float | None = None,
        lasting: float | str = 0.0,
        within: float | str = "1h",
        queues: str | list[str] | tuple[str, ...] | None = None,
        notify: str | None = None,
        webhook: dict[str, Any] | None = None,
        paused: bool = False,
    ) -> Steps[Alert]:
        """Warn when a measure of a queue is more than ``above``, until it is at most ``clear``.

        ``measure`` is ``dead`` (more dead letters ``within`` a time), ``oldest`` (seconds that the oldest ready message
        waits), ``stuck`` (seconds without any move in a queue with leased messages), ``failed`` (share of attempts that
        failed ``within`` a time) or ``lag`` (seconds that a follower has not moved although it is behind). A change is
        a message in the queue ``notify``, and is sent to ``webhook``: ``{"url": ..., "headers": {...}}``.
        """
        fields = {
            "measure": measure, "above": above, "clear": clear, "lasting": lasting, "within": within,
            "queues": texts(queues, "queues"), "notify": notify, "webhook": webhook, "paused": paused,
        }  # fmt: skip
        return (yield from self.put_definition(ALERTS, ALERTS.made(name, fields)))

    def get_alert(self, name: str) -> Steps[Alert]:
        """An alert as it is now."""
        return (yield from self.get_definition(ALERTS, name))

    def list_alerts(self) -> Steps[list[Alert]]:
        """All alerts, by name, with those that every tenant has from the beginning."""
        return (yield from self.list_definitions(ALERTS))

    def delete_alert(self, name: str) -> Steps[bool]:
        """Delete an alert; false if there was none. One that was there from the beginning can be deleted too."""
        return (yield from self.delete_definition(ALERTS, name))

    def alert_status(self) -> Steps[list[Firing]]:
        """The alerts that fire, by name, each with its queue or follower."""
        found: list[Firing] = yield Read(lambda engine: state.firing(engine, self.tenant))
        return found
