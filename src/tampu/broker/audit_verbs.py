"""Reading the audit trail. What a record is, and who stores it: `tampu.broker.audit`."""

from __future__ import annotations

from datetime import datetime

from tampu.broker.admin.filters import Where
from tampu.broker.admin.verbs import Admin
from tampu.broker.audit import QUEUE, read_record
from tampu.broker.core import Steps
from tampu.model.audit import AuditPage
from tampu.model.errors import NotFound
from tampu.model.message import State


class AuditVerbs(Admin):
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
        labels = {name: value for name, value in (("actor", actor), ("target", target)) if value is not None}
        conditions = {"type": action, "labels": labels or None, "created_after": since, "created_before": until}
        where = Where.of({name: value for name, value in conditions.items() if value is not None})
        try:
            page = yield from self.page_of(QUEUE, [State.HELD], limit, after, where)
        except NotFound:  # there is no record yet
            return AuditPage([])
        return AuditPage([read_record(message) for message in page.messages], page.cursor)
