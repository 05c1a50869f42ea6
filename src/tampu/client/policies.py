"""Definitions of policies, the audit trail and traces over HTTP: one request each, alike for every kind."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from tampu.broker import validate
from tampu.broker.audit_verbs import AuditVerbs
from tampu.broker.core import Steps
from tampu.broker.policies.definitions import Kind
from tampu.broker.policies.kinds import PolicyVerbs
from tampu.broker.policies.rules.verbs import RULES
from tampu.broker.trace_verbs import MOST, TraceVerbs
from tampu.client.request import call, quoted, reader
from tampu.model.audit import AuditPage
from tampu.model.definitions import Definition, Firing, RuleTest
from tampu.model.errors import InvalidConfig
from tampu.model.times import SECOND, Duration, duration
from tampu.model.trace import Trace
from tampu.wire import bodies
from tampu.wire.definitions import AlertStatus, AuditView, RuleTestBody, WebhookSecretBody, WebhookSecretView, list_of

D = TypeVar("D", bound=Definition)
_READ_DELETED = reader(bodies.Deleted, lambda reply: reply.deleted)
_READ_TEST = reader(RuleTest)
_READ_FIRING = reader(AlertStatus, lambda reply: reply.firing)
_READ_SIGNED = reader(WebhookSecretView, lambda reply: reply.signed)
_READ_TRACE = reader(Trace)
_READ_AUDIT = reader(AuditView, lambda reply: AuditPage(reply.records, reply.cursor))


@functools.cache
def _readers(kind: Kind[Any]) -> tuple[Any, Any]:
    """For one definition, and for a list."""
    return reader(kind.struct), reader(list_of(kind.struct, kind.plural), lambda reply: getattr(reply, kind.plural))


def _path(kind: Kind[Any], name: str) -> str:
    kind.document_name(name)
    return f"/v1/{kind.plural}/{quoted(name)}"


class RemotePolicyVerbs(AuditVerbs, TraceVerbs, PolicyVerbs):
    def put_definition(self, kind: Kind[D], definition: D) -> Steps[D]:
        body = {k: v for k, v in msgspec.to_builtins(definition).items() if k not in ("name", "version")}
        made: D = yield from call("PUT", _path(kind, definition.name), _readers(kind)[0], body)
        return made

    def get_definition(self, kind: Kind[D], name: str, version: int | None = None) -> Steps[D]:
        found: D = yield from call("GET", _path(kind, name), _readers(kind)[0], query=[("version", version)])
        return found

    def list_definitions(self, kind: Kind[D]) -> Steps[list[D]]:
        found: list[D] = yield from call("GET", f"/v1/{kind.plural}", _readers(kind)[1])
        return found

    def delete_definition(self, kind: Kind[D], name: str) -> Steps[bool]:
        return (yield from call("DELETE", _path(kind, name), _READ_DELETED, repeat=False))

    def test_rule(
        self,
        name: str,
        payload: Any = None,
        *,
        id: str | None = None,
        queue: str | None = None,
        type: str | None = None,
        labels: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        priority: int = 0,
    ) -> Steps[RuleTest]:
        body = RuleTestBody(payload, id, queue, type, labels, headers, priority)
        return (yield from call("POST", f"{_path(RULES, name)}/test", _READ_TEST, body, repeat=True))

    def alert_status(self) -> Steps[list[Firing]]:
        return (yield from call("GET", "/v1/alerts/status", _READ_FIRING))

    def put_webhook_secret(self, secret: str | None, *, previous_for: Duration = 0) -> Steps[bool]:
        wait = duration(previous_for, "previous_for", error=InvalidConfig) / SECOND
        return (yield from call("PUT", "/v1/webhooks/secret", _READ_SIGNED, WebhookSecretBody(secret, wait)))

    def has_webhook_secret(self) -> Steps[bool]:
        return (yield from call("GET", "/v1/webhooks/secret", _READ_SIGNED))

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Steps[AuditPage]:
        query = [
            ("actor", actor), ("action", action), ("target", target), ("after", after), ("limit", limit),
            ("since", None if since is None else since.isoformat()),
            ("until", None if until is None else until.isoformat()),
        ]  # fmt: skip
        return (yield from call("GET", "/v1/audit", _READ_AUDIT, query=query))

    def trace(self, correlation_id: str, *, limit: int = 500) -> Steps[Trace]:
        wanted = quoted(validate.text(correlation_id, "correlation_id", 256))
        query = [("limit", validate.whole(limit, "limit", 1, MOST))]
        return (yield from call("GET", f"/v1/traces/{wanted}", _READ_TRACE, query=query))
