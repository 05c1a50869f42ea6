"""Parameters of actions: read from either protocol, with the types and the errors of SQS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tampu.server.sqs.errors import SqsError, invalid, missing

MOST_ENTRIES = 10
_ENTRY_ID = re.compile(r"[A-Za-z0-9_\-]{1,80}\Z")


def text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if value is None or value == "":
        raise missing(name)
    if not isinstance(value, str):
        raise invalid(f"{name} must be a text.")
    return value


def optional_text(given: Mapping[str, Any], name: str) -> str | None:
    return None if given.get(name) in (None, "") else text(given, name)


def whole(given: Mapping[str, Any], name: str, low: int, high: int, default: int | None = None) -> int | None:
    """A whole number; forms have it as text."""
    value = given.get(name)
    if value is None or value == "":
        return default
    try:
        number = (
            int(value)
            if isinstance(value, str | int) and not isinstance(value, bool) and len(str(value)) < 12
            else None
        )
    except ValueError:
        number = None
    if number is None or not low <= number <= high:
        raise invalid(f"Value {value!r:.40} for parameter {name} is invalid. Reason: Must be between {low} and {high}.")
    return number


def texts(given: Mapping[str, Any], name: str) -> list[str]:
    value = given.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise invalid(f"{name} must be a list of texts.")
    return value


def mapping(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name) or {}
    if not isinstance(value, dict):
        raise invalid(f"{name} must be a map.")
    return value


def tags(given: Mapping[str, Any], name: str) -> dict[str, str]:
    found = mapping(given, name)
    if not all(isinstance(value, str) for value in found.values()):
        raise invalid(f"{name} must be a map of texts.")
    return found


def entries(given: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The entries of a batch, with ids that differ."""
    found = given.get("Entries") or []
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise invalid("Entries must be a list of structures.")
    if not found:
        raise SqsError("EmptyBatchRequest", "There should be at least one entry in the request.")
    if len(found) > MOST_ENTRIES:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MOST_ENTRIES}. You have sent {len(found)}.",
        )
    ids = [text(entry, "Id") for entry in found]
    for id in ids:
        if not _ENTRY_ID.match(id):
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores, 80 at most.",
            )
    if len(set(ids)) < len(ids):
        raise SqsError("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.")
    return found


def failed(id: str, error: SqsError) -> dict[str, Any]:
    return {"Id": id, "SenderFault": error.is_senders, "Code": error.query_code, "Message": error.message}
