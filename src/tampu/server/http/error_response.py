"""How an error is told over HTTP, whichever way the request took."""

from __future__ import annotations

from tampu.model.errors import TampuError
from tampu.server.auth.authenticate import refusal
from tampu.server.http.request import Reply
from tampu.server.rate_limit import OverLimit
from tampu.server.server_state import ServerState
from tampu.wire import media
from tampu.wire.problems import BY_CODE, PROBLEM, problem


def refused(server: ServerState, request_id: str, error: TampuError) -> Reply:
    """The problem that tells of an error; it is counted."""
    told = problem(error, request_id)
    headers = refusal(error)
    if told.retry_after is not None:
        headers.setdefault("retry-after", str(max(1, round(told.retry_after + 0.49))))
    if isinstance(error, OverLimit):
        headers |= error.quota.headers()
    server.metrics.refused.labels(told.code if told.code in BY_CODE else "other").inc()
    return Reply(told.status, media.write(told, "application/json"), PROBLEM, headers)
