"""The API by hand: both forms, raw publishes, long polls, results, request ids, health."""

from __future__ import annotations

import base64
import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import structlog

import tampu
from tampu.server import logs
from tests.conformance.harness import until
from tests.server.conftest import Start
from tests.server.web import JSON, MSGPACK, Web
from tests.servers import redis
from tests.servers.http import Server, Stall


def test_a_raw_publish_takes_its_fields_from_headers_and_query(web: Web) -> None:
    answer = web.post(
        "/v1/queues/jobs/messages?labels=team=a&labels=x=1=2&delay=60",
        b"\x00\x01",
        content_type="image/png",
        tampu_type="image.resize",
        tampu_priority="5",
        tampu_key="k",
        idempotency_key="once",
    )
    assert (answer.status, answer.json["state"]) == (201, "delayed")
    seen = web.get(f"/v1/messages/{answer.json['id']}", accept=MSGPACK).msgpack
    assert (seen["payload"], seen["content_type"], seen["type"], seen["priority"]) == (
        b"\x00\x01", "image/png", "image.resize", 5,
    )  # fmt: skip
    assert (seen["key"], seen["idempotency_key"], seen["labels"]) == ("k", "once", {"team": "a", "x": "1=2"})
    in_json = web.get(f"/v1/messages/{answer.json['id']}").json
    assert in_json["payload_base64"] == "AAE="
    assert "payload" not in in_json


def test_a_longer_or_shorter_batch_under_the_same_idempotency_key_is_another(web: Web) -> None:
    path, some = "/v1/queues/jobs/publish", [{"payload": n} for n in range(4)]
    for count in (1, 3):
        key = f"of-{count}"
        first = web.post(path, {"messages": some[:count]}, idempotency_key=key).json["messages"]
        for other in {1, 2, 3, 4} - {count}:
            assert web.post(path, {"messages": some[:other]}, idempotency_key=key).code == "idempotency_conflict"
        again = web.post(path, {"messages": some[:count]}, idempotency_key=key).json["messages"]
        assert [(m["id"], m["duplicate"]) for m in again] == [(m["id"], True) for m in first]
    assert web.get("/v1/queues/jobs/stats").json["depth"] == 4


def test_the_same_idempotency_key_answers_with_the_first(web: Web) -> None:
    first = web.post("/v1/queues/jobs/messages", {"n": 1}, idempotency_key="once")
    again = web.post("/v1/queues/jobs/messages", {"n": 1}, idempotency_key="once")
    assert (again.status, again.json["id"], again.json["duplicate"]) == (200, first.json["id"], True)
    assert web.post("/v1/queues/jobs/messages", {"n": 2}, idempotency_key="once").code == "idempotency_conflict"
    batch = {"messages": [{"payload": 1}, {"payload": 1}]}
    ids = [m["id"] for m in web.post("/v1/queues/jobs/publish", batch, idempotency_key="b").json["messages"]]
    published = web.post("/v1/queues/jobs/publish", batch, idempotency_key="b").json["messages"]
    assert [m["id"] for m in published] == ids
    assert all(m["duplicate"] and m["message"]["payload"] == 1 for m in published)
    assert web.get("/v1/queues/jobs/stats").json["counts"]["ready"] == 3


def test_a_batch_with_a_name_is_stored_once(web: Web) -> None:
    batch = {"messages": [{"payload": 1}, {"payload": 2}], "once": "drawn-by-the-caller"}
    first = web.post("/v1/queues/jobs/publish", batch).json["messages"]
    again = web.post("/v1/queues/jobs/publish", batch).json["messages"]  # past the framework by now
    assert [m["id"] for m in again] == [m["id"] for m in first]
    assert [m["duplicate"] for m in again] == [True, True]
    other = web.post("/v1/queues/jobs/publish", {**batch, "messages": [{"payload": 1}]})
    assert (other.status, other.code) == (422, "idempotency_conflict")
    assert web.get("/v1/queues/jobs/stats").json["counts"]["ready"] == 2


@pytest.mark.parametrize("name", ["short", "x" * 65, "with a space and more", 17])
def test_a_name_of_a_batch_that_is_none_is_refused(web: Web, name: object) -> None:
    refused = web.post("/v1/queues/jobs/publish", {"messages": [{"payload": 1}], "once": name})
    assert (refused.status, refused.code) == (400, "invalid_message")


@pytest.mark.parametrize("accept", [JSON, MSGPACK])
@pytest.mark.parametrize("kind", [JSON, MSGPACK])
def test_both_forms_go_both_ways(web: Web, kind: str, accept: str) -> None:
    encode = msgspec.json.encode if kind == JSON else msgspec.msgpack.encode
    decode = msgspec.json.decode if accept == JSON else msgspec.msgpack.decode

    def request(path: str, body: Any) -> Any:
        answer = web.post(path, encode(body), content_type=kind, accept=accept)
        assert (answer.status, answer.headers["content-type"]) == (200, accept)
        return decode(answer.raw)

    request("/v1/queues/jobs/publish", {"messages": [{"payload": {"n": 1}, "delay": 0, "labels": {"a": "b"}}]})
    (lease,) = request("/v1/claim", {"queues": ["jobs"], "worker": "w"})["leases"]
    payload = lease["message"]["payload"]
    assert (payload if accept == JSON else msgspec.json.decode(payload)) == {"n": 1}
    assert len(request("/v1/extend", {"leases": [{"receipt": lease["receipt"], "by": 60}]})["leases"]) == 1
    settlement = {"verb": "ack", "receipt": lease["receipt"], "result": {"ok": True}}
    assert request("/v1/settle", {"settlements": [settlement]})["outcomes"][0]["state"] == "done"
    assert web.get(f"/v1/messages/{lease['message']['id']}/result").json["result"] == {"ok": True}


def test_a_payload_that_is_not_what_it_says_is_still_shown_in_json(web: Web, stall: Stall) -> None:
    body = {
        "messages": [
            {"payload": b"{not json", "content_type": JSON},
            {"payload": b"\xff", "content_type": "text/plain"},
        ]
    }
    assert web.post("/v1/queues/jobs/publish", msgspec.msgpack.encode(body), content_type=MSGPACK).status == 200
    listed = web.get("/v1/queues/jobs/messages").json["messages"]
    assert [m["payload_base64"] for m in listed] == ["e25vdCBqc29u", "/w=="]


@pytest.mark.parametrize("result", [{(1, 2): 1}, {"b": b"abc"}, {1: 2}, b"abc"], ids=repr)
def test_a_result_that_json_cannot_express_is_sent_as_messagepack(web: Web, result: Any) -> None:
    web.post("/v1/queues/jobs/messages", b"1")
    lease = web.post("/v1/claim", {"queues": "jobs"}).json["leases"][0]
    body = {"settlements": [{"verb": "ack", "receipt": lease["receipt"], "result": result}]}
    assert web.post("/v1/settle", msgspec.msgpack.encode(body), content_type=MSGPACK).status == 200
    answer = web.get(f"/v1/messages/{lease['message']['id']}/result").json
    assert answer["ended"]
    assert "result" not in answer
    assert msgspec.msgpack.decode(base64.b64decode(answer["result_base64"])) == result


def test_a_message_that_only_messagepack_can_say_is_bytes_in_json(web: Web) -> None:
    body = msgspec.msgpack.encode({"messages": [{"payload": {"b": b"abc", 1: None}}]})
    assert web.post("/v1/queues/jobs/publish", body, content_type=MSGPACK).status == 200
    (message,) = web.get("/v1/queues/jobs/messages").json["messages"]
    assert (message["content_type"], "payload" in message) == (MSGPACK, False)
    assert msgspec.msgpack.decode(base64.b64decode(message["payload_base64"])) == {"b": b"abc", 1: None}


def test_a_long_poll_is_answered_when_work_comes(web: Web, stall: Stall) -> None:
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(web.post, "/v1/claim", {"queues": ["a", "b"], "wait": 50})
        until(lambda: len(stall.state.polls) == 1)
        web.post("/v1/queues/b/messages", {"n": 1})
        assert [lease["message"]["queue"] for lease in poll.result(40).json["leases"]] == ["b"]


def test_a_result_is_waited_for(web: Web, stall: Stall) -> None:
    id = web.post("/v1/queues/jobs/messages", {"n": 1}).json["id"]
    early = web.get(f"/v1/messages/{id}/result?wait=0.05").json
    assert (early["ended"], early["state"]) == (False, "ready")
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(web.get, f"/v1/messages/{id}/result?wait=50")
        until(lambda: len(stall.state.polls) == 1)
        lease = web.post("/v1/claim", {"queues": "jobs"}).json["leases"][0]
        web.post("/v1/settle", {"settlements": [{"verb": "ack", "receipt": lease["receipt"], "result": 7}]})
        answer = poll.result(40).json
    assert (answer["ended"], answer["state"], answer["result"]) == (True, "done", 7)


def test_what_was_claimed_for_a_client_that_left_is_given_back(stall: Stall) -> None:
    store = tampu.open(stall.url, token=stall.token)
    thread = threading.Thread(target=lambda: store.claim("jobs", wait=50))
    thread.start()
    until(lambda: len(stall.state.polls) == 1)
    store.close()
    thread.join(40)
    until(lambda: len(stall.state.polls) == 0)
    web = Web(stall.url, stall.token)
    web.post("/v1/queues/jobs/messages", {"n": 1})
    (lease,) = web.post("/v1/claim", {"queues": "jobs"}).json["leases"]
    assert lease["message"]["attempts"] == 1


def test_request_ids_come_back_and_bad_ones_are_replaced(web: Web) -> None:
    assert web.get("/v1/queues", x_request_id="mine-1").headers["x-request-id"] == "mine-1"
    assert web.post("/v1/claim", {}, x_request_id="mine-2").json["request_id"] == "mine-2"
    assert web.get("/v1/queues", x_request_id="a b\tc").headers["x-request-id"] != "a b\tc"
    assert web.get("/v1/queues").headers["x-request-id"] != web.get("/v1/queues").headers["x-request-id"]


def test_what_is_logged_in_a_request_tells_its_id(web: Web, stall: Stall, monkeypatch: pytest.MonkeyPatch) -> None:
    ids: list[str | None] = []
    stats = stall.core.engine.stats

    def noting(*of: Any) -> Any:
        ids.append(logs.REQUEST.get(None))
        return stats(*of)

    monkeypatch.setattr(stall.core.engine, "stats", noting)
    assert web.get("/v1/stats", x_request_id="mine-3").status == 200
    assert "mine-3" in ids
    line: structlog.types.EventDict = {"event": "late"}
    contextvars.Context().run(lambda: (logs.REQUEST.set("mine-4"), logs._of_request(None, "info", line)))
    assert line == {"event": "late", "request_id": "mine-4"}


def test_a_stop_ends_polls_with_nothing_and_finishes_requests(tmp_path: Any) -> None:
    server = Server(url=str(tmp_path / "jobs.db"))
    web = Web(server.url, server.token)
    with ThreadPoolExecutor(3) as pool:
        polls = [pool.submit(web.post, "/v1/claim", {"queues": "jobs", "wait": 50}) for _ in range(3)]
        until(lambda: len(server.state.polls) == 3)
        began = time.monotonic()
        server.stop()
        assert [(p.result(60).status, p.result().json) for p in polls] == [(200, {"leases": []})] * 3
    assert time.monotonic() - began < 40
    assert server.state.core.closed


def test_the_journal_is_read_page_by_page_where_each_queue_has_a_part_of_its_own(start: Start) -> None:
    node = start(url=redis.redis.url())
    with tampu.open(node.url, token=node.token) as store:
        made = [store.publish(queue, n).id for n, queue in enumerate(["a", "b", "a"])]
        first = store.journal(limit=2)
        rest = store.journal(after=first.position)
    assert [t.id for t in (*first.transitions, *rest.transitions)] == made
