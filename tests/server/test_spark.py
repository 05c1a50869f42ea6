"""Spark over HTTP: what the routes refuse, and how what is read and written stays whole."""

from __future__ import annotations

import asyncio
import base64
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker import validate
from tampu.broker.settings import resolve
from tampu.engines.port import Call, Load, PutDocument
from tampu.model.config import BUILT_IN
from tampu.model.errors import Forbidden, NotFound, RateLimited, Unauthorized, Unavailable
from tampu.model.extras import install
from tampu.model.message import NewMessage
from tampu.spark.write.publish import JOBS, STREAMS, id_prefix
from tampu.spark.write.staging import STAGED_ROWS
from tampu.stores import http, wire
from tampu.stores.http import HttpStore
from tampu.stores.open_store import open_store
from tampu.stores.port import MessageQuery
from tests.conformance.harness import FakeClock
from tests.server.conftest import Start
from tests.server.test_metrics import Scrape
from tests.server.test_permissions import rows_of
from tests.server.web import JSON, MSGPACK, Web
from tests.servers.http import Stall

SETTINGS = resolve(BUILT_IN)


def store(stall: Stall, token: str | None = None) -> HttpStore:
    return HttpStore(stall.url, token or stall.token)


def load(queue: str, *payloads: Any, first: int = 0) -> Load:
    packed = [validate.item(queue, SETTINGS, NewMessage(payload)).packed for payload in payloads]
    starts = [sum(len(one) for one in packed[:n]) for n in range(len(packed) + 1)]
    numbers = list(range(first, first + len(packed)))
    types = ["message"] * len(packed)
    return Load("default", queue, id_prefix("default", "job", 0), numbers, b"".join(packed), starts, types, 1)


def ready(web: Web, queue: str) -> list[Any]:
    return [message["payload"] for message in web.get(f"/v1/queues/{queue}/messages").json["messages"]]


def test_messages_and_the_progress_record_are_one_commit_and_may_be_sent_twice(stall: Stall, web: Web) -> None:
    with store(stall) as opened:
        calls: list[Call] = [load("jobs", 1, 2), PutDocument(JOBS, "default", "nightly", b"so far", 0)]
        stored, version = opened.together(calls)
        assert stored == 2
        with pytest.raises(tampu.VersionConflict):
            opened.together([load("jobs", 3, first=2), PutDocument(JOBS, "default", "nightly", b"farther", 0)])
        assert ready(web, "jobs") == [1, 2], "refused together with its progress record"
        # The answer was lost, and the client asks again.
        again = wire.SparkChanges([opened._to_change(request) for request in calls], again=True)
        assert web.post("/v1/spark/changes", again).json == {"replies": [0, version]}
        assert web.post("/v1/spark/changes", wire.SparkChanges(again.changes)).code == "version_conflict"
        found = opened.document(JOBS, "default", "nightly")
        assert found is not None
        assert (found.value, found.version) == (b"so far", version)
    assert ready(web, "jobs") == [1, 2]


def test_packed_messages_are_checked_as_all_others(stall: Stall, web: Web) -> None:
    web.request("PATCH", "/v1/queues/jobs/config", {"max_payload": 10, "max_attempts": 7, "max_depth": 2})
    good = load("jobs", "fine")
    bad = {
        "payload has": load("jobs", "much too long for it"),
        "not the beginning": msgspec.structs.replace(good, id_prefix=b"12345678901"),
        "numbers must be increasing": msgspec.structs.replace(load("jobs", 1, 2), numbers=[1, 1]),
        "the start of each body": msgspec.structs.replace(good, starts=[0, 3]),
        "cannot unpack": msgspec.structs.replace(good, bodies=b"\xc1", starts=[0, 1]),
        "not a type name": msgspec.structs.replace(
            good, bodies=(body := msgspec.msgpack.encode(["no type!", b"1", "application/json"])), starts=[0, len(body)]
        ),
        "is not JSON": msgspec.structs.replace(
            good, bodies=(body := msgspec.msgpack.encode(["t", b"{", "application/json"])), starts=[0, len(body)]
        ),
    }
    with store(stall) as opened:
        for text, request in bad.items():
            with pytest.raises(tampu.TampuError, match=text):
                opened.run([request])
        with pytest.raises(tampu.QueueFull):
            opened.run([load("jobs", 1, 2, 3)])
        assert opened.run([good]) == [1]
    (message,) = web.get("/v1/queues/jobs/messages").json["messages"]
    assert (message["payload"], message["max_attempts"]) == ("fine", 7), "what the queue says, not the client"


def test_an_id_that_another_queue_has_is_a_conflict_and_not_left_out(stall: Stall, web: Web) -> None:
    """Or a job would take a message for stored that is not, and learn which ids are in use."""
    with store(stall) as opened:
        assert opened.run([load("payroll", "secret")]) == [1]
    job = wire.SparkChanges([store(stall)._to_change(load("mail", 1, 2))])
    answer = web.as_key(web.key("publish:mail")).post("/v1/spark/changes", job)
    assert (answer.status, answer.code) == (422, "idempotency_conflict")
    assert b"payroll" not in answer.raw
    assert web.get("/v1/queues").json["queues"] == ["payroll"], "nothing was stored"


def test_messages_of_a_job_are_counted_by_their_queue(stall: Stall, web: Web) -> None:
    with store(stall) as opened:
        opened.run([load("jobs", 1, 2, 3), load("mail", 4, first=3)])
    seen = Scrape(web)
    counts = [seen.of("tampu_published_total", tenant="default", queue=queue) for queue in ("jobs", "mail")]
    assert (counts, seen.of("tampu_published_total")) == ([3, 1], 4)


def test_what_a_job_keeps_is_for_those_who_may_publish_to_its_queue(stall: Stall, web: Web) -> None:
    """Staged rows are payloads: a key for other queues must not read them."""
    mine, others = web.key("publish:jobs.*"), web.key("publish:other.*")
    rows = PutDocument(STAGED_ROWS, "default", "folder/0", b"secret rows")
    with store(stall, mine) as opened:
        opened.within("jobs.a").run([rows])
        found = opened.within("jobs.a").document(STAGED_ROWS, "default", "folder/0")
        assert found is not None
        assert found.value == b"secret rows"
        for everywhere in (lambda: opened.run([rows]), lambda: opened.documents(STAGED_ROWS, "default")):
            with pytest.raises(Forbidden, match="in all queues"):
                everywhere()
    with store(stall, others) as opened:
        assert opened.within("other.a").documents(STAGED_ROWS, "default") == []
        with pytest.raises(Forbidden):
            opened.within("jobs.a").document(STAGED_ROWS, "default", "folder/0")


@pytest.mark.parametrize(
    ("kind", "name"), [("key", "jobs/x"), ("secret", "session"), ("queue", "jobs"), (JOBS, "bare")]
)
def test_no_other_document_is_reached(stall: Stall, web: Web, kind: str, name: str) -> None:
    put = wire.SparkPut(kind, name, b"mine")
    assert web.post("/v1/spark/changes", wire.SparkChanges([put])).code == "forbidden"
    if kind != "queue":
        assert web.post("/v1/spark/documents", {"kind": kind, "name": name}).code == "forbidden"
    assert web.post("/v1/spark/documents", {"kind": STREAMS}).code == "invalid_message"


def test_a_piece_is_read_as_it_was_planned_or_not_at_all(stall: Stall, web: Web) -> None:
    for queue in ("jobs.a", "other"):
        web.post(f"/v1/queues/{queue}/messages", {"of": queue})
    columns = {"columns": ["queue"]}
    (everything,) = web.post("/v1/spark/plan", {"query": columns}).json["pieces"]
    some = web.as_key(web.key("view:jobs.*"))
    assert some.post("/v1/spark/messages", {"piece": everything}).code == "forbidden"
    assert some.post("/v1/spark/plan", {"query": {**columns, "queues": ["other"]}}).code == "forbidden"
    (mine,) = some.post("/v1/spark/plan", {"query": columns}).json["pieces"]
    assert rows_of(some.post("/v1/spark/messages", {"piece": mine}).raw) == [{"queue": "jobs.a"}]
    raw = bytearray(base64.b64decode(mine))
    raw[-1] ^= 1
    forged = base64.b64encode(raw).decode()
    assert some.post("/v1/spark/messages", {"piece": forged}).code == "invalid_message"
    assert some.post("/v1/spark/plan", {"query": {**columns, "everyone": True}}).code == "forbidden"
    assert {row["queue"] for row in rows_of(some.get("/v1/spark/journal?partition=0&after=0&upto=2").raw)} == {"jobs.a"}
    assert some.get("/v1/spark/journal?partition=0&after=0&upto=2&everyone=true").code == "forbidden"
    assert some.get("/v1/spark/journal?partition=7&after=0&upto=2").code == "not_found"


def test_a_key_of_all_tenants_reads_one_or_all(stall: Stall, web: Web) -> None:
    for tenant in ("acme", "umbrella"):
        web.post("/v1/queues/jobs/messages", {"n": 1}, tampu_tenant=tenant)
    with store(stall) as opened:

        def tenants(tenant: str | None) -> set[str]:
            plan = opened.plan(MessageQuery(tenant), 1)
            return {row for piece in plan.pieces for b in opened.messages(piece) for row in b["tenant"].to_pylist()}

        assert (tenants(None), tenants("acme"), tenants("default")) == ({"acme", "umbrella"}, {"acme"}, set())
        batches = list(opened.journal("0", 0, 2, "umbrella"))
        assert [row for batch in batches for row in batch["tenant"].to_pylist()] == ["umbrella"]
    token = web.as_key(stall.token, **{"tampu-tenant": "acme"}).key("view")
    with store(stall, token) as opened:
        with pytest.raises(Forbidden):
            opened.plan(MessageQuery(None), 1)
        with pytest.raises(Forbidden):
            opened.plan(MessageQuery("umbrella"), 1)
        assert tenants("default") == {"acme"}, "the tenant of the key"


class Slowly:
    """Sends ten messages at a time, and after the first ten what a test wants."""

    def __init__(self, stall: Stall, monkeypatch: pytest.MonkeyPatch) -> None:
        store = stall.state.spark_store().store
        real = store.messages
        self.then: Callable[[], object] = lambda: None

        def messages(piece: bytes) -> Any:
            for batch in real(piece):
                for start in range(0, len(batch), 10):
                    yield batch.slice(start, 10)
                    self.then()

        monkeypatch.setattr(store, "messages", messages)

    def fail(self, error: Exception) -> None:
        def then() -> None:
            raise error

        self.then = then


@pytest.fixture
def slowly(stall: Stall, monkeypatch: pytest.MonkeyPatch) -> Slowly:
    """40 messages."""
    with store(stall) as opened:
        opened.run([load("jobs", *range(40))])
    return Slowly(stall, monkeypatch)


def read(opened: HttpStore, got: list[int]) -> None:
    """The sizes of the batches that come."""
    (piece,) = opened.plan(MessageQuery(), 1).pieces
    for batch in opened.messages(piece):
        got.append(len(batch))


def test_a_read_ends_when_its_key_is_revoked_and_says_so(stall: Stall, web: Web, slowly: Slowly) -> None:
    made = web.post("/v1/keys", {"name": "k", "grants": [{"permissions": ["view"]}]}).json
    holder = web.as_key(made["token"])

    def revoke() -> None:
        """In the middle of the read, until the server knows of it."""
        web.request("DELETE", f"/v1/keys/{made['key']['id']}")
        deadline = time.monotonic() + 60
        while holder.get("/v1/me").status != 401:
            assert time.monotonic() < deadline

    slowly.then = revoke
    got: list[int] = []
    with store(stall, made["token"]) as opened, pytest.raises(Unauthorized):
        read(opened, got)
    assert got == [10]


def test_an_error_in_the_middle_is_reported_and_half_a_read_is_no_read(stall: Stall, slowly: Slowly) -> None:
    got: list[int] = []
    with store(stall) as opened:
        read(opened, got)
        assert got == [10, 10, 10, 10]
        slowly.fail(NotFound("3 messages were removed"))
        with pytest.raises(NotFound, match="3 messages were removed"):
            read(opened, got)
        slowly.fail(RuntimeError("a defect of the server"))
        with pytest.raises(Unavailable, match="was interrupted"):
            read(opened, got)
    assert got == [10] * 6


def test_who_leaves_in_the_middle_makes_room_for_others(
    stall: Stall, slowly: Slowly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall.state.spark_store(), "slots", asyncio.Semaphore(1))
    gone = threading.Event()
    slowly.then = lambda: gone.wait(60)
    got: list[int] = []
    with store(stall) as opened:
        (piece,) = opened.plan(MessageQuery(), 1).pieces
        batches: Any = opened.messages(piece)
        assert len(next(batches)) == 10
        batches.close()
        gone.set()
        read(opened, got)
    assert got == [10, 10, 10, 10]


def test_a_server_without_arrow_says_what_to_install(stall: Stall, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tampu.stores.open_store", None)
    monkeypatch.setattr(stall.state, "_spark_store", None)
    answer = web.get("/v1/spark/place")
    assert answer.code == "invalid_config"
    assert install("server", "spark") in answer.json["hint"]


@pytest.mark.usefixtures("slowly")
def test_a_journal_whose_connection_breaks_goes_on_where_it_broke(
    stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_store = stall.state.spark_store()
    real = spark_store.store.journal
    asked: list[int] = []

    def broken(partition: str, after: int, upto: int, *more: Any) -> Any:
        asked.append(after)
        for batch in real(partition, after, upto, *more):
            yield batch.slice(0, 15)
            if upto - after > 15:
                raise RuntimeError("a defect of the server")

    monkeypatch.setattr(spark_store.store, "journal", broken)
    with store(stall) as opened:
        offsets = [offset for batch in opened.journal("0", 0, 40, "default") for offset in batch["offset"].to_pylist()]
    assert offsets == list(range(1, 41))
    assert asked == [0, 15, 30]


def test_a_rate_is_waited_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    stall = start(clock=clock, key_rate=20, key_burst=20)
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=time.monotonic, sleep=clock.advance))
    with store(stall) as opened:
        for first in (0, 20):
            assert opened.run([load("jobs", *range(20), first=first)]) == [20]
        monkeypatch.setattr(http, "_PATIENCE", 0.0)
        with pytest.raises(RateLimited):
            opened.run([load("jobs", *range(20), first=40), load("jobs", *range(20), first=60)])


def test_a_key_comes_from_the_environment_or_the_url_and_is_never_shown(
    stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(stall.url) as opened, pytest.raises(Unauthorized):
        opened.now()
    monkeypatch.setenv("TAMPU_TOKEN", stall.token)
    with open_store(stall.url) as opened:
        assert opened.now() > 0
    monkeypatch.setenv("TAMPU_TOKEN", "wrong")
    monkeypatch.setenv("JOBS", stall.url.replace("://", f"://:{stall.token}@"))
    with open_store("env:JOBS") as opened:
        assert opened.now() > 0
    monkeypatch.setenv("JOBS", f"http://:{stall.token}@127.0.0.1:1")
    monkeypatch.setattr("tampu.client.failures.PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr("tampu.client.remote.pauses", lambda _: iter(()))
    with open_store("env:JOBS") as opened, pytest.raises(Unavailable) as failed:
        opened.now()
    assert stall.token not in str(failed.value)
    with pytest.raises(tampu.InvalidConfig, match="no key"):
        open_store("http://somebody@127.0.0.1:1")


def test_a_prefix_does_not_cross_names(stall: Stall, web: Web) -> None:
    """The key of queue ``orders`` read the settings of ``orders-secret`` by their common beginning."""
    web.request("PATCH", "/v1/queues/orders-secret/config", {"lease": 77})
    key = web.as_key(web.key("view,publish:orders"))
    assert key.post("/v1/spark/documents", {"kind": "queue", "prefix": "orders"}).code == "invalid_message"
    assert key.post("/v1/spark/documents", {"kind": "queue", "prefix": "orders/"}).raw.find(b"77") < 0
    assert key.post("/v1/spark/documents", {"kind": STAGED_ROWS, "prefix": "orders/"}).status == 200


def test_a_document_has_a_bounded_size_and_costs(stall: Stall, web: Web) -> None:
    key = web.as_key(web.key("publish:orders", rate=1, burst=2))

    def put(size: int) -> Any:
        body = {"changes": [{"do": "put", "kind": STREAMS, "name": "orders/a", "value": bytes(size)}]}
        return key.post("/v1/spark/changes", msgspec.msgpack.encode(body), content_type=MSGPACK, accept=JSON)

    assert put((1 << 20) + 1).code == "payload_too_large"
    assert [put(10).status for _ in range(3)] == [200, 200, 429]


def test_a_tenant_has_a_bounded_number_of_documents(stall: Stall, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tampu.server.spark.spark_store.MAX_DOCUMENTS", 3)

    def put(kind: str, *names: str, key: Web = web) -> Any:
        changes = [{"do": "put", "kind": kind, "name": f"orders/{name}", "value": b"1"} for name in names]
        body = msgspec.msgpack.encode({"changes": changes})
        return key.post("/v1/spark/changes", body, content_type=MSGPACK, accept=JSON)

    assert put(STREAMS, "a", "b").status == 200
    assert put(STREAMS, "c", "d").code == "storage_full"
    assert put(STREAMS, "c").status == 200
    assert put(STREAMS, "d").code == "storage_full"
    assert put(STREAMS, "a", "c").status == 200, "those that are there can be replaced"
    assert put(JOBS, "a").status == 200, "each kind is counted by itself"
    gone = {"changes": [{"do": "delete", "kind": STREAMS, "name": "orders/a"}]}
    assert web.post("/v1/spark/changes", gone).status == 200
    assert put(STREAMS, "d").status == 200


def test_two_nodes_exceed_the_number_of_documents_by_little(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counts on its own; what the others wrote since is missing in its count."""
    monkeypatch.setattr("tampu.server.spark.spark_store.MAX_DOCUMENTS", 20)
    monkeypatch.setattr("tampu.server.spark.spark_store._COUNTED", 5)
    nodes = [start(url=str(tmp_path / "jobs.db"), key_file=tmp_path / "key") for _ in range(2)]
    webs = [Web(node.url, nodes[0].token) for node in nodes]
    codes = []
    for n in range(60):
        body = {"changes": [{"do": "put", "kind": STREAMS, "name": f"orders/{n}", "value": b"1"}]}
        answer = webs[n % 2].post("/v1/spark/changes", msgspec.msgpack.encode(body), content_type=MSGPACK, accept=JSON)
        codes.append("" if answer.status == 200 else answer.code)
    assert 20 <= codes.count("") <= 25
    assert codes[-20:] == ["storage_full"] * 20


def test_a_prefix_is_answered_in_pages(stall: Stall, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tampu.server.spark.spark_store._PAGE_BYTES", 2000)
    with store(stall) as opened:
        for queue, kind in (("orders", JOBS), ("orders", STAGED_ROWS), ("orders-other", JOBS)):
            opened.within(queue).run([PutDocument(kind, "default", f"{n:03}", bytes(100)) for n in range(90)])
    for kind, most in ((JOBS, 32), (STAGED_ROWS, 20)):
        page = web.post("/v1/spark/documents", {"kind": kind, "prefix": "orders/"}).json
        assert len(page["documents"]) == most
        assert page["cursor"] == f"orders/{most - 1:03}"
        with store(stall) as opened:
            names = [document.name for document in opened.within("orders").documents(kind, "default")]
            assert names == [f"{n:03}" for n in range(90)]
            few = opened.within("orders").documents(kind, "default", "08")
            assert [document.name for document in few] == [f"08{n}" for n in range(10)]
