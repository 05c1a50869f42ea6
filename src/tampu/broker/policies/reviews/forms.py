"""The form that a reviewer fills in: checks of its fields when a pattern is put, and of its values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from typing import Any

from tampu.model.errors import InvalidConfig, InvalidMessage
from tampu.model.reviews import ReviewField

MOST_FIELDS = 50
_MOST_CHOICES = 200
_MOST_TEXT = 4_000
_LARGEST = 1 << 53


def check_field(name: str, field: ReviewField) -> None:
    """Raise `InvalidConfig` if nothing can be entered into this field, or anything can."""
    where = f"fields.{name}"
    if (field.type == "choice") is not bool(field.choices):
        raise InvalidConfig(f"{where} has choices if, and only if, its type is choice", field=where)
    if len(field.choices) > _MOST_CHOICES or len(set(field.choices)) < len(field.choices):
        raise InvalidConfig(f"{where} has at most {_MOST_CHOICES} different choices", field=where)
    bounds = (field.minimum, field.maximum)
    if field.type not in ("text", "integer", "number") and bounds != (None, None):
        raise InvalidConfig(f"{where}: only texts and numbers have a minimum and maximum", field=where)
    if any(bound is not None and not math.isfinite(bound) for bound in bounds):
        raise InvalidConfig(f"{where}: minimum and maximum must be finite", field=where)
    if field.minimum is not None and field.maximum is not None and field.minimum > field.maximum:
        raise InvalidConfig(f"{where}: the minimum is larger than the maximum", field=where)


def check_values(form: Mapping[str, ReviewField], given: Any, *, complete: bool) -> dict[str, Any]:
    """The values as they are stored. Raises `InvalidMessage`. ``complete``: required fields must be there."""
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise InvalidMessage("fields must be values by name", field="fields")
    unknown = [str(name) for name in given if name not in form]
    if unknown:
        known = ", ".join(form) or "none"
        raise InvalidMessage(f"no field {unknown[0]!r:.100}", field="fields", hint=f"fields of this review: {known}")
    for name, field in form.items():
        if given.get(name) is None:
            if field.required and complete:
                raise InvalidMessage(f"{name} is required", field=f"fields.{name}")
        else:
            why = _fault(field, given[name])
            if why is not None:
                raise InvalidMessage(f"{name} must be {why}", field=f"fields.{name}")
    return {name: value for name, value in given.items() if value is not None}


def _fault(field: ReviewField, value: Any) -> str | None:
    """What the value should be; None if it is."""
    if field.type in ("integer", "number"):
        return _number_fault(field, value)
    if field.type == "text" and isinstance(value, str) and len(value) <= _MOST_TEXT and _is_unicode(value):
        return _outside(field, len(value), " characters")
    fits, wanted = {
        "boolean": (isinstance(value, bool), "true or false"),
        "choice": (isinstance(value, str) and value in field.choices, f"one of {', '.join(field.choices)}"),
        "date": (_is_date(value), "a date such as 2026-01-31"),
    }.get(field.type, (False, f"a text of at most {_MOST_TEXT} characters"))
    return None if fits else wanted


def _number_fault(field: ReviewField, value: Any) -> str | None:
    kind = field.type
    if isinstance(value, bool) or not isinstance(value, int if kind == "integer" else int | float):
        return "a whole number" if kind == "integer" else "a number"
    if not math.isfinite(value) or abs(value) > _LARGEST:
        return f"between -{_LARGEST} and {_LARGEST}"
    return _outside(field, value, "")


def _outside(field: ReviewField, number: float, unit: str) -> str | None:
    if field.minimum is not None and number < field.minimum:
        return f"at least {field.minimum:g}{unit}"
    if field.maximum is not None and number > field.maximum:
        return f"at most {field.maximum:g}{unit}"
    return None


def _is_date(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(value) == len("2026-01-31") and bool(date.fromisoformat(value))
    except ValueError:
        return False


def _is_unicode(value: str) -> bool:
    try:
        return bool(value.encode()) or not value
    except UnicodeEncodeError:
        return False
