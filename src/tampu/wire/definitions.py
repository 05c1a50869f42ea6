"""Definitions of policies on the wire: their bodies are made from their structs."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.model.audit import AuditRecord
from tampu.model.definitions import Definition, Firing
from tampu.wire.bodies import RequestBody


def body_of(struct: type[Definition]) -> Any:
    """The struct of a PUT: the definition without its name, which is in the path, and its version."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(struct):
        if field.name in ("name", "version"):
            continue
        default: dict[str, Any] = {}
        if field.default_factory is not msgspec.NODEFAULT:
            default["default_factory"] = field.default_factory
        elif not field.required:
            default["default"] = field.default
        fields.append((field.name, field.type, msgspec.field(name=field.encode_name, **default)))
    return msgspec.defstruct(f"{struct.__name__}Body", fields, bases=(RequestBody,), kw_only=True)


def list_of(struct: type[Definition], plural: str) -> Any:
    """The struct of a list of definitions."""
    return msgspec.defstruct(f"{struct.__name__}List", [(plural, list[struct])])  # type: ignore[valid-type]  # a variable


class AuditView(msgspec.Struct, frozen=True):
    records: list[AuditRecord]
    cursor: str | None = None


class AlertStatus(msgspec.Struct, frozen=True):
    firing: list[Firing]


class WebhookSecretBody(RequestBody):
    secret: str | None
    """16 to 256 characters; null: deliveries are not signed."""
    previous_for: float = 0.0
    """For so many seconds the secret until now signs too."""


class WebhookSecretView(msgspec.Struct, frozen=True):
    signed: bool


class RuleTestBody(RequestBody):
    """A message to test a rule on: one that exists, or one that might be published."""

    payload: Any = None
    id: str | None = None
    queue: str | None = None
    type: str | None = None
    labels: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    priority: int = 0
