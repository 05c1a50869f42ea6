"""The audit trail, newest first: who did what, with what was before and after."""

from __future__ import annotations

from fastapi import Response

from tampu.model.audit import AuditRecord
from tampu.model.times import instant, moment
from tampu.server.console import audit_trail
from tampu.server.console.page import Page, View
from tampu.server.console.parts import address, moment_field, pretty

page = Page("audit", "Audit", group="4 Admin", needs=("admin",), everywhere=True)
_LISTED = 100
_FILTERS = ("actor", "action", "target", "since", "until")


@page.show("/audit")
async def audit(view: View) -> Response:
    given = {name: view.query[name] for name in _FILTERS if name in view.query}
    since, until = moment_field(given, "since"), moment_field(given, "until")

    def wanted(record: AuditRecord) -> bool:
        return all(given.get(name) in (None, getattr(record, name)) for name in ("actor", "action", "target"))

    found, rest = await view.read(
        audit_trail.newest,
        view.engine,
        view.caller.tenant,
        view.engine.now() + 1 if until is None else instant(until, "until"),
        0 if since is None else instant(since, "since"),
        wanted,
        _LISTED,
    )
    older = None if rest is None else address("audit", **{**given, "until": moment(rest).isoformat()})
    return await view.html(
        "audit.html",
        records=[(one, _text(one.before), _text(one.after)) for one in found],
        given=given,
        more=older,
    )


def _text(value: object) -> str:
    return "" if value is None else pretty(value)
