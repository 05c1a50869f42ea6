"""Reading the audit trail. What a record is, and who stores it: `tampu.broker.audit`."""

from __future__ import annotations

from datetime import datetime

from tampu.broker import audit, validate
from tampu.broker.core import Read, Steps
from tampu.engines.port import Document
from tampu.model.audit import AuditPage, AuditRecord
from tampu.model.errors import InvalidMessage
from tampu.model.times import instant

_STEP = 500
"""Records that are read at once."""


class AuditVerbs(audit.Recording):
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
        """Who did what, in the order in which it was done, with what was changed from what to what.

        ``after`` is the cursor of an earlier page.
        """
        validate.whole(limit, "limit", 1, 10_000)
        begin = "" if since is None else audit.name_at(max(instant(since, "since"), 0))
        end = None if until is None else audit.name_at(max(instant(until, "until"), 0))
        if after is not None:
            if not isinstance(after, str) or not 0 < len(after) <= 64:
                raise InvalidMessage("after is not a cursor of the audit trail", field="after")
            begin = max(begin, after)
        wanted = {"actor": actor, "action": action, "target": target}
        found: list[AuditRecord] = []
        while True:
            page: list[Document] = yield Read(
                lambda engine, b=begin: engine.documents(audit.KIND, self.tenant, after=b, limit=_STEP)  # type: ignore[misc]  # bound now
            )
            for document in page:
                if end is not None and document.name >= end:
                    return AuditPage(found)
                record = audit.view(document)
                if all(value is None or getattr(record, name) == value for name, value in wanted.items()):
                    found.append(record)
                    if len(found) == limit:
                        return AuditPage(found, document.name)
            if len(page) < _STEP:
                return AuditPage(found)
            begin = page[-1].name
