"""The audit trail, newest first: who did what, with what was before and after."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fastapi import Response

from tampu.model.audit import AuditPage, AuditRecord
from tampu.server.console.page import Page, View
from tampu.server.console.parts import address, moment_field, pretty

page = Page("audit", "Audit", group="4 Admin", needs=("admin",), everywhere=True)
_LISTED = 100
_FILTERS = ("actor", "action", "target", "since", "until")
_SPANS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7), timedelta(days=60), timedelta(days=4000))
_MOST = 2000
"""Records that are read of one span."""


@page.show("/audit")
async def audit(view: View) -> Response:
    given = {name: view.query[name] for name in _FILTERS if name in view.query}
    until = moment_field(given, "until")
    found, older = await _newest(view, given, until or datetime.now(UTC) + timedelta(minutes=1))
    more = None
    if older and found:
        more = address("audit", **{**given, "until": found[-1].at.isoformat()})
    return await view.html(
        "audit.html",
        records=[(one, _text(one.before), _text(one.after)) for one in found],
        given=given,
        more=more,
    )


async def _newest(view: View, given: dict[str, str], until: datetime) -> tuple[list[AuditRecord], bool]:
    """(the last records before a time, newest first; whether there are older ones)

    The trail is in the order of time, so spans before the end are read, each longer than the one before.
    """
    since = moment_field(given, "since")
    records: list[AuditRecord] = []
    begin = until
    for span in _SPANS:
        begin = max(since, until - span) if since is not None else until - span
        found: AuditPage = await view.listing(
            view.verbs.audit(
                actor=given.get("actor"), action=given.get("action"), target=given.get("target"), since=begin,
                until=until, limit=_MOST,
            ),
            len,
        )  # fmt: skip
        records = list(found)
        after = found.cursor
        while after is not None:  # a busy span: read on to its end, and keep what is last
            found = await view.listing(
                view.verbs.audit(
                    actor=given.get("actor"), action=given.get("action"), target=given.get("target"), since=begin,
                    until=until, after=after, limit=_MOST,
                ),
                len,
            )  # fmt: skip
            records = (records + list(found))[-_LISTED - 1 :]
            after = found.cursor
        if len(records) > _LISTED or begin == since:
            break
    return records[: -_LISTED - 1 : -1], len(records) > _LISTED


def _text(value: object) -> str:
    return "" if value is None else pretty(value)
