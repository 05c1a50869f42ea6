"""Traces across a publisher, a server and a worker: one trace, whatever lies between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tampu
from tampu import tracing
from tests.conformance.harness import until
from tests.server.web import Web
from tests.servers.http import Stall

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """The spans that ended so far."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """A server may tell of a request after its answer has come."""
        until(lambda: len(self.all(name)) == 1)
        return self.all(name)[0]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Tracing as a program sets it up, but only for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Spans(exporter)
    provider.shutdown()


def _parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def _ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def test_one_trace_leads_from_the_publisher_through_the_server_to_the_worker(spans: Spans, stall: Stall) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        with trace.get_tracer("shop").start_as_current_span("order") as order:
            message = store.publish("jobs", {"n": 1}, labels={"a": "b"})
        (lease,) = store.claim("jobs", worker="w1")
        with tracing.process(lease):
            store.ack(lease)
    publish, served = spans.one("publish jobs"), spans.one("POST /v1/queues/{queue}/publish")
    process, ack, claim = spans.one("process jobs"), spans.one("ack jobs"), spans.one("claim jobs")
    assert publish.kind is trace.SpanKind.PRODUCER
    assert _parent(publish) == order.get_span_context().span_id
    assert _parent(served) == _ids(publish)[1]
    assert _parent(process) == _ids(publish)[1]
    assert _parent(ack) == _ids(process)[1]
    assert {_ids(span)[0] for span in (publish, served, process, ack)} == {order.get_span_context().trace_id}
    assert [(link.context.trace_id, link.context.span_id) for link in claim.links] == [_ids(publish)]
    assert _parent(spans.one("POST /v1/settle")) == _ids(process)[1]
    assert dict(publish.attributes or {}) == {
        "messaging.system": "tampu",
        "messaging.destination.name": "jobs",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 1,
        "messaging.message.id": message.id,
        "tampu.tenant": "default",
    }
    assert (claim.attributes or {})["messaging.operation.type"] == "receive"
    assert (process.attributes or {})["messaging.operation.type"] == "process"
    assert (ack.attributes or {})["messaging.operation.type"] == "settle"
    assert (served.attributes or {})["http.response.status_code"] == 200


def test_tasks_carry_the_trace_too(spans: Spans, stall: Stall) -> None:
    async def go() -> None:
        async with tampu.open_async(stall.url, token=stall.token) as store:
            await store.publish_many("jobs", [1, 2])
            leases = await store.claim("jobs", limit=2)
            for lease in leases:
                with tracing.process(lease):
                    await store.ack(lease)

    asyncio.run(go())
    publish = spans.one("publish jobs")
    assert [_parent(span) for span in spans.all("process jobs")] == [_ids(publish)[1]] * 2
    assert len(spans.one("claim jobs").links) == 2
    assert _parent(spans.one("POST /v1/queues/{queue}/publish")) == _ids(publish)[1]


def test_a_stream_is_traced_as_claims_are(spans: Spans, stall: Stall) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        store.publish("jobs", 1)
        with store.stream("jobs", worker="w") as stream:
            lease = stream.next(60)
            assert lease is not None
            with tracing.process(lease):
                stream.ack(lease).result(60)
    assert _parent(spans.one("ack jobs")) == _ids(spans.one("process jobs"))[1]
    assert len(spans.one("claim jobs").links) == 1


def test_the_library_without_a_server_is_traced_too(spans: Spans) -> None:
    with tampu.open("memory://") as store:
        store.publish("jobs", 1)
        (lease,) = store.claim("jobs")
        with tracing.process(lease):
            store.nack(lease, "boom")
        with pytest.raises(tampu.LeaseLost):
            store.ack(lease)
    assert _parent(spans.one("nack jobs")) == _ids(spans.one("process jobs"))[1]
    lost = spans.one("ack jobs")
    assert lost.status.status_code is trace.StatusCode.ERROR
    assert (lost.attributes or {})["error.type"] == "lease_lost"
    assert len(lost.links) == 1


def test_the_same_publish_in_another_trace_is_no_conflict(spans: Spans, stall: Stall) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        first = store.publish("jobs", {"n": 1}, idempotency_key="k", headers={"own": "yes"})
        again = store.publish("jobs", {"n": 1}, idempotency_key="k", headers={"own": "yes"})
        assert (again.id, again.duplicate) == (first.id, True)
        with pytest.raises(tampu.IdempotencyConflict):
            store.publish("jobs", {"n": 1}, idempotency_key="k", headers={"own": "no"})
        assert store.claim("jobs")[0].message.headers == first.headers
    assert len(spans.all("publish jobs")) == 3


def test_a_context_of_the_callers_own_stays(spans: Spans) -> None:
    with tampu.open("memory://") as store:
        store.publish("jobs", 1, headers={"traceparent": PARENT})
        (lease,) = store.claim("jobs")
        assert lease.message.headers == {"traceparent": PARENT}
        with tracing.process(lease):
            assert tracing.inject()["traceparent"].split("-")[1] == PARENT.split("-")[1]
            assert tracing.inject({"traceparent": "mine"}) == {"traceparent": "mine"}


def test_a_full_set_of_headers_is_left_alone(spans: Spans) -> None:
    full = {f"h{n}": "x" for n in range(64)}
    with tampu.open("memory://") as store:
        store.publish("jobs", 1, headers=full)
        assert store.claim("jobs")[0].message.headers == full


# -- without tracing here


def _claimed(web: Web) -> Any:
    (lease,) = web.post("/v1/claim", {"queues": "jobs"}).json["leases"]
    return lease["message"].get("headers")


def test_a_server_without_tracing_hands_the_callers_context_on(web: Web) -> None:
    assert not tracing.on()
    web.post("/v1/queues/jobs/messages", {"n": 0})
    assert _claimed(web) is None
    for _ in range(2):
        web.post("/v1/queues/jobs/messages", {"n": 1}, traceparent=PARENT, tracestate="a=1")
        assert _claimed(web) == {"traceparent": PARENT, "tracestate": "a=1"}
    web.post("/v1/queues/jobs/publish", {"messages": [{"payload": 1, "headers": {"x": "y"}}]}, traceparent=PARENT)
    assert _claimed(web) == {"traceparent": PARENT, "x": "y"}
    web.post("/v1/queues/jobs/messages", {"n": 2}, traceparent="nonsense")
    assert _claimed(web) is None


def test_nothing_is_added_when_nobody_traces() -> None:
    with tampu.open("memory://") as store:
        store.publish("jobs", 1)
        (lease,) = store.claim("jobs")
        assert lease.message.headers == {}
        assert tracing.inject({"a": "b"}) == {"a": "b"}
        with tracing.process(lease) as span:
            assert span is None
            store.ack(lease)


def test_the_library_works_without_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "trace", None)
    with tampu.open("memory://") as store:
        store.publish("jobs", 1, headers={"traceparent": PARENT})
        (lease,) = store.claim("jobs")
        assert tracing.extract(lease) is None
        with tracing.process(lease) as span:
            assert span is None
            store.ack(lease)
