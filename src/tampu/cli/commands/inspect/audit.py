"""`tampu audit`: who did what, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

import tampu
from tampu.cli import output, parse
from tampu.cli.app import command, option
from tampu.cli.output import text
from tampu.cli.session import Session

_PAGE = 1000


@command("audit", "Inspect")
def audit(
    session: Session,
    actor: Annotated[str | None, option("--actor", "Only what this key or person did", metavar="NAME")] = None,
    action: Annotated[str | None, option("--action", "Only such as queue.config, schema.put")] = None,
    target: Annotated[str | None, option("--target", "Only what was done to this", metavar="NAME")] = None,
    since: Annotated[str, option("--since", "How far back: 30m, 7d", metavar="TIME")] = "30d",
    limit: Annotated[int, option("--limit", "At most this many, the newest")] = 100,
) -> None:
    """Who did what, and when: changes of settings, keys, schedules and policies, pauses, purges, replays, cancels."""
    begin = datetime.now(UTC) - timedelta(seconds=parse.duration(since, "since"))
    found: list[tampu.AuditRecord] = []
    with session.open() as store:
        after = None
        while True:
            page = store.audit(actor=actor, action=action, target=target, since=begin, after=after, limit=_PAGE)
            found = [*found, *page][-limit:]
            after = page.cursor
            if after is None:
                break
    rows = ([output.ago(one.at), one.actor, one.action, text(one.target, "bold"), _change(one)] for one in found)
    document = {"records": [msgspec.to_builtins(one) for one in found], "cursor": None}  # all pages were read
    session.out.rows(document, ["when", "who", "did", "to", "change"], rows, fold=["change"])


def _change(record: tampu.AuditRecord) -> str:
    """What is different now."""
    before, after = record.before, record.after
    if not isinstance(before, dict) or not isinstance(after, dict):
        return "" if after is None else _short(after)
    changed = [key for key in (before | after) if before.get(key) != after.get(key) and key != "version"]
    return ", ".join(f"{key}: {_short(before.get(key))} → {_short(after.get(key))}" for key in changed)


def _short(value: object) -> str:
    shown = msgspec.json.encode(value).decode()
    return shown if len(shown) <= 60 else f"{shown[:57]}…"
