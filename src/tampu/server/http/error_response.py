"""The HTTP response for an error, on every path a request can take."""

from __future__ import annotations

from tampu.model.errors import TampuError
from tampu.server.auth.authenticate import error_headers
from tampu.server.http.request import Reply
from tampu.server.rate_limit import OverLimit
from tampu.server.server_state import ServerState
from tampu.wire import media
from tampu.wire.problems import BY_CODE, PROBLEM, Internal, problem


def internal_error() -> Internal:
    return Internal("internal error", hint="this is a bug in tampu; its log has the details under the request id")


def refused(server: ServerState, request_id: str, error: TampuError) -> Reply:
    """The problem response for an error. Counts it in the metrics."""
    reply = problem(error, request_id)
    headers = error_headers(error)
    if reply.retry_after is not None:
        headers.setdefault("retry-after", str(max(1, round(reply.retry_after + 0.49))))
    if isinstance(error, OverLimit):
        headers |= error.quota.headers()
    server.metrics.refused.labels(reply.code if reply.code in BY_CODE else "other").inc()
    return Reply(reply.status, media.write(reply, "application/json"), PROBLEM, headers)
