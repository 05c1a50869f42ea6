"""Settings of a queue as the console shows them, and as they are typed into its form."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from tampu.model.config import DURATIONS, Backoff, QueueConfig
from tampu.model.errors import InvalidMessage
from tampu.model.times import seconds_of
from tampu.server.console.parts import json_field
from tampu.server.console.render import age

GROUPS = {
    "Delivery": ("status", "ordering", "ageing", "lease", "max_in_flight", "rate", "burst", "consumer_mode"),
    "Groups": ("group_by", "group_order", "group_concurrency", "group_rate", "group_burst"),
    "Failures": ("max_attempts", "backoff", "dead_letter_to", "dead_retention", "max_dead"),
    "Messages": (
        "ttl",
        "on_deadline",
        "on_invalid",
        "max_payload",
        "max_depth",
        "idempotency_window",
        "retention",
        "result_ttl",
    ),
}
"""The settings, in the order of the form."""
_SECONDS = DURATIONS | {"dead_retention"}
_KINDS = {name: get_args(hint)[0] for name, hint in get_type_hints(QueueConfig).items()}
CHOICES = {name: list(get_args(kind)) for name, kind in _KINDS.items() if get_origin(kind) is Literal} | {
    "group_order": ["true", "false"]
}
_FROM_1 = ("max_attempts", "max_payload")
"""Numbers for which 0 does not mean that there is no limit: they are never 0."""


def shown(name: str, value: Any) -> str:
    """A setting for people to read."""
    if value is None or value == "":
        return "none"
    if isinstance(value, Backoff):
        return _backoff(value)
    if name in _SECONDS:
        return age(value) if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == 0 and name not in _FROM_1:
        return "no limit"
    return f"{value:g}/s" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _backoff(value: Backoff) -> str:
    if value.kind == "list":
        return ", ".join(age(delay) for delay in value.delays)
    return f"{value.kind} from {age(value.base)}" + (f" to {age(value.cap)}" if value.kind != "fixed" else "")


def written(value: Any) -> str:
    """A setting as it is typed into the form."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.10g}" if isinstance(value, int | float) else msgspec.json.encode(value).decode()


def shown_before(form: dict[str, str]) -> dict[str, str]:
    """The settings that the form has shown: what others have changed since stays as it is.

    Each is in a field ``shown-NAME``, after an equals sign, as fields that are empty are not read.
    """
    return {name: form[f"shown-{name}"].removeprefix("=") for name in _KINDS if f"shown-{name}" in form}


def read(name: str, text: str) -> Any:
    """A setting from what was typed."""
    kind = _KINDS[name]
    if name in _SECONDS:
        return seconds_of(text, name)
    if name == "backoff":
        return json_field({name: text}, name)
    if kind is bool:
        return text == "true"
    if kind is not int and kind is not float:
        return text
    try:
        return kind(text)
    except ValueError:
        if "rate" in name:
            return text  # such as 100/s
        raise InvalidMessage(f"{name} must be a number", field=name) from None
