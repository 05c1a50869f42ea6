"""Tracing with OpenTelemetry: spans of publish, claim, work and settle, and the W3C context in message headers.

Only the OpenTelemetry API is used, and only if the program has set up an SDK; else each call costs one check of a
variable. The context is in the headers ``traceparent`` and ``tracestate`` of a message, so it works with every engine
and language. Workers use `process` around the work; `inject` and `extract` are for everything else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tampu.model.errors import TampuError
from tampu.model.message import Lease, Message, to_new
from tampu.model.outcome import Outcome, Settlement

try:
    from opentelemetry import trace
    from opentelemetry.context import get_current as current_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # the extra `otel` is not installed
    trace = None  # type: ignore[assignment]  # each use checks it

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

HEADERS = ("traceparent", "tracestate")
"""The headers with the context. Requests that differ only in these are the same request."""
_MOST_HEADERS = 64 - len(HEADERS)
_MOST_CHARACTERS = 2048
_MOST_LINKS = 128


def _provider() -> Any:
    """The provider that the program has set up; None if it has not."""
    found = None if trace is None else trace.get_tracer_provider()
    return None if trace is None or isinstance(found, trace.ProxyTracerProvider) else found


on: Callable[[], Any] = _provider
"""True if the program has set up tracing."""
if hasattr(trace, "_TRACER_PROVIDER") and "OTEL_PYTHON_TRACER_PROVIDER" not in os.environ:
    on = functools.partial(getattr, trace, "_TRACER_PROVIDER")  # each verb asks, and `_provider` takes 1.4 µs


def _tracer() -> Tracer:
    return trace.get_tracer("tampu")


# -- the context in headers


def carrier(context: Context | None = None) -> dict[str, str]:
    """The headers for a context, by default that of the current span; empty if there is none."""
    found: dict[str, str] = {}
    if on():
        TraceContextTextMapPropagator().inject(found, context)
        if len(found.get("tracestate", "")) > _MOST_CHARACTERS:
            del found["tracestate"]
    return found


def inject(headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """Headers for a message that continues the current trace. A context that they already have stays."""
    return _joined(headers, carrier())


def extract(message: Message | Lease) -> Context | None:
    """The context in which a message was published."""
    headers = (message.message if isinstance(message, Lease) else message).headers
    return _read(headers) if headers and trace is not None else None


def _read(headers: Mapping[str, str]) -> Context | None:
    return TraceContextTextMapPropagator().extract(headers) if "traceparent" in headers else None


def _joined(headers: Mapping[str, str] | None, context: Mapping[str, str]) -> dict[str, str]:
    own = dict(headers or {})
    if not context or "traceparent" in own or len(own) > _MOST_HEADERS:
        return own
    return own | dict(context)


def carrying(news: Sequence[Any], context: Mapping[str, str]) -> list[Any]:
    """New messages with this context in their headers. Messages that have one keep it."""
    if not context:
        return list(news)
    made = []
    for new in news:
        whole = to_new(new)
        if whole.headers is None or isinstance(whole.headers, dict):  # else validation refuses it
            whole = msgspec.structs.replace(whole, headers=_joined(whole.headers, context))
        made.append(whole)
    return made


# -- spans


class Publishing:
    """The span of a publish. Messages published in the block carry its context."""

    def __init__(self, tenant: str, queue: str, count: int) -> None:
        about = _about(tenant, [queue], "publish", "send")
        about["messaging.batch.message_count"] = count
        self._span: Span = _tracer().start_span(f"publish {queue}", kind=trace.SpanKind.PRODUCER, attributes=about)
        self.context = carrier(trace.set_span_in_context(self._span))

    def stored(self, messages: Sequence[Message]) -> None:
        if len(messages) == 1:
            self._span.set_attribute("messaging.message.id", messages[0].id)

    def __enter__(self) -> Publishing:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        _failed(self._span, error)
        self._span.end()


def claimed(tenant: str, queues: Sequence[str], leases: Sequence[Lease], began_ns: int, worker: str | None) -> None:
    """Record the span of a claim, with links to the spans that published the messages."""
    about = _about(tenant, queues, "claim", "receive")
    about["messaging.batch.message_count"] = len(leases)
    if worker is not None:
        about["messaging.client.id"] = worker
    _tracer().start_span(
        f"claim {about['messaging.destination.name']}",
        kind=trace.SpanKind.CLIENT,
        attributes=about,
        links=_links(leases),
        start_time=began_ns,
    ).end()


def settled(
    tenant: str,
    settlements: Sequence[Settlement],
    result: Sequence[Outcome] | TampuError,
    began_ns: int,
    context: Context | None = None,
) -> None:
    """Record the span of a settle. Inside `process` it is a child of the work's span."""
    verbs = {type(one).__name__.lower() for one in settlements}
    verb = verbs.pop() if len(verbs) == 1 else "settle"
    leases = [one.lease for one in settlements if isinstance(one.lease, Lease)]
    queues = {one.lease.queue if isinstance(one.lease, Lease) else one.lease.rpartition("/")[0] for one in settlements}
    about = _about(tenant, sorted(queues), verb, "settle")
    about["messaging.batch.message_count"] = len(settlements)
    if len(leases) == 1:
        about["messaging.message.id"] = leases[0].id
    span = _tracer().start_span(
        f"{verb} {about['messaging.destination.name']}",
        context,
        kind=trace.SpanKind.CLIENT,
        attributes=about,
        links=_links(leases),
        start_time=began_ns,
    )
    errors = [result] if isinstance(result, TampuError) else [one.error for one in result if one.error is not None]
    _failed(span, errors[0] if errors else None)
    span.end()


@contextlib.contextmanager
def process(lease: Lease) -> Iterator[Span | None]:
    """Around the work on one message: makes a child of the publisher's span the current span."""
    if not on():
        yield None
        return
    message = lease.message
    about = _about(message.tenant, [message.queue], "process", "process")
    about |= {"messaging.message.id": message.id, "tampu.attempt": message.attempts, "tampu.type": message.type}
    with _tracer().start_as_current_span(
        f"process {message.queue}", extract(lease), kind=trace.SpanKind.CONSUMER, attributes=about
    ) as span:
        yield span


def request(method: str, headers: Mapping[str, str]) -> Span:
    """Begin the span of a request to the server, a child of the caller's span if the headers have one."""
    return _tracer().start_span(
        method, _read(headers), kind=trace.SpanKind.SERVER, attributes={"http.request.method": method}
    )


def answered(span: Span, method: str, route: str, status: int) -> None:
    span.update_name(f"{method} {route}")
    span.set_attributes({"http.route": route, "http.response.status_code": status})
    if status >= 500:
        span.set_status(trace.StatusCode.ERROR)
    span.end()


def inside(span: Span) -> dict[str, str]:
    """The headers for the context of a span."""
    return carrier(trace.set_span_in_context(span))


def here() -> tuple[int, Context]:
    """(now, current context), for a span that is recorded later, perhaps by another thread."""
    return now_ns(), current_context()


def now_ns() -> int:
    return time.time_ns()


def _about(tenant: str, queues: Sequence[str], name: str, kind: str) -> dict[str, Any]:
    """Attributes by OpenTelemetry's conventions for messaging."""
    return {
        "messaging.system": "tampu",
        "messaging.destination.name": ",".join(queues[:10]),
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "tampu.tenant": tenant,
    }


def _links(leases: Sequence[Lease]) -> list[Link]:
    links = []
    for lease in leases[:_MOST_LINKS]:
        context = extract(lease)
        if context is not None:
            where = trace.get_current_span(context).get_span_context()
            links.append(trace.Link(where, {"messaging.message.id": lease.id}))
    return links


def _failed(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", error.code if isinstance(error, TampuError) else type(error).__name__)
        span.set_status(trace.StatusCode.ERROR, str(error))
