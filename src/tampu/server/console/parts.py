"""What several pages read or show."""

from __future__ import annotations

import urllib.parse
from datetime import UTC, datetime
from typing import Any

import msgspec

from tampu.broker.admin.verbs import Stats
from tampu.model.errors import InvalidMessage
from tampu.model.message import JSON
from tampu.server.console.last_hour import Hour
from tampu.server.console.page import View
from tampu.wire.media import check_depth, check_values


async def stats_of(view: View) -> list[Stats]:
    """The queues that the caller may view. Their counts are kept by the engine: nothing is counted."""
    found: list[Stats] = await view.listing(view.verbs.stats())
    return [one for one in found if view.may("view", one.queue)]


async def hour_of(view: View, stats: list[Stats]) -> Hour:
    """The last hour of these queues together."""
    last_hour = view.request.server.last_hour
    await view.read(last_hour.read)
    return last_hour.hour(view.caller.tenant, {one.queue: one.depth for one in stats})


def rates(hour: Hour) -> list[dict[str, Any]]:
    """The series of a chart: what was published, done and failed in each minute that has ended."""
    return [
        {"name": "published", "tone": "blue", "values": hour.published[:-1], "fill": True},
        {"name": "done", "tone": "green", "values": hour.done[:-1]},
        {"name": "failed", "tone": "red", "values": hour.failed[:-1]},
    ]


def times(values: list[list[float | None]]) -> list[dict[str, Any]]:
    return [
        {"name": "median", "tone": "blue", "values": values[0][:-1]},
        {"name": "95 %", "tone": "violet", "values": values[1][:-1], "fill": True},
    ]


def json_field(form: dict[str, str], name: str, *, default: Any = None) -> Any:
    """The value of a field that has JSON."""
    text = form.get(name)
    if text is None:
        return default
    try:
        raw = text.encode()
        check_depth(raw, JSON, name)
        check_values(raw)
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidMessage(
            f"{name} is not JSON: {error}", field=name, hint='texts need quotes: "like this"'
        ) from None


def labels_field(form: dict[str, str], name: str = "labels") -> dict[str, str] | None:
    """Labels as ``name=value, other=value``."""
    text = form.get(name)
    if not text:
        return None
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or not key:
            raise InvalidMessage(f"{part.strip()!r:.60} is not a label", field=name, hint="such as customer=42")
        found[key.strip()] = value.strip()
    return found


def moment_field(form: dict[str, str], name: str) -> datetime | None:
    """A time such as ``2026-11-18 14:00``; UTC without a zone."""
    text = form.get(name)
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidMessage(
            f"{text!r:.40} is not a time", field=name, hint="such as 2026-11-18 14:00, in UTC"
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def number_field(form: dict[str, str], name: str, kind: Any = int) -> Any:
    text = form.get(name)
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise InvalidMessage(f"{name} must be a number", field=name) from None


def address(path: str, **query: Any) -> str:
    """A path with the fields that are given."""
    fields = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urllib.parse.urlencode(fields)}" if fields else path


def quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def pretty(value: Any) -> str:
    """JSON for people to read and change."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
