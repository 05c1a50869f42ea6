"""The pages of the console. A new page is a module here, its template in ``templates/``, and a line in this list."""

from __future__ import annotations

from tampu.server.console.page import Page
from tampu.server.console.pages import (
    agents,
    audit,
    dead,
    docs,
    insights,
    keys,
    message,
    messages,
    overview,
    queue,
    queues,
    reviews,
    rules,
    schedules,
    schemas,
    workers,
)

PAGES: tuple[Page, ...] = (
    overview.page, queues.page, queue.page, messages.page, message.page, dead.page, reviews.page,
    schedules.page, rules.page, schemas.page,
    workers.page, agents.page, insights.page,
    keys.page, audit.page, docs.page,
)  # fmt: skip
