"""A publish that finds a message shows its content only to who may view it, and takes no id of the store's."""

from __future__ import annotations

import msgspec
import pytest

import tampu
from tests.server.web import MSGPACK, Answer, Web
from tests.servers.http import Stall

SECRET = "the secret of payroll"


def _hidden(web: Web, **fields: str) -> str:
    body = {"messages": [{"payload": SECRET, "headers": {"h": SECRET}, "max_attempts": 1, **fields}]}
    id = web.post("/v1/queues/payroll/publish", body).json["messages"][0]["id"]
    (lease,) = web.post("/v1/claim", {"queues": "payroll"}).json["leases"]
    web.post("/v1/settle", {"settlements": [{"verb": "nack", "receipt": lease["receipt"], "error": SECRET}]})
    return str(id)


@pytest.fixture
def hidden(web: Web) -> str:
    """The id of a message that only the admin may see. Its publisher gave it."""
    return _hidden(web, id="0123abcd-0000-4000-8000-00000000000a")


def publishes(web: Web, id: str) -> list[Answer]:
    """Every way to publish with an id."""
    return [
        web.post("/v1/queues/mail/messages", b"x", tampu_id=id),
        web.post("/v1/queues/mail/publish", {"messages": [{"payload": 1, "id": id}]}),
        web.post("/v1/queues/mail/publish", {"messages": [{"payload": 1, "id": id}, {"payload": 2}]}),
        web.post(
            "/v1/queues/mail/publish",
            msgspec.msgpack.encode({"messages": [{"payload": 1, "id": id}]}),
            content_type=MSGPACK,
            accept="application/json",
        ),
        web.post(
            "/v1/atomic", {"operations": [{"op": "publish", "queue": "mail", "messages": [{"payload": 1, "id": id}]}]}
        ),
    ]


@pytest.mark.parametrize("grant", ["publish", "publish:mail", "publish,view:mail"])
def test_the_id_of_a_message_elsewhere_shows_nothing_of_it(web: Web, hidden: str, grant: str) -> None:
    key = web.as_key(web.key(grant))
    for answer in publishes(key, hidden):
        assert answer.status in (200, 201, 422), answer.raw
        assert SECRET.encode() not in answer.raw
        assert b"payroll" not in answer.raw


def test_the_id_of_another_queue_is_a_conflict(web: Web, hidden: str) -> None:
    """Also for who may view it: nothing was stored, so it must not look as if."""
    for answer in publishes(web, hidden):
        assert (answer.status, answer.code) == (422, "idempotency_conflict")
        assert SECRET.encode() not in answer.raw
    assert web.get("/v1/queues").json["queues"] == ["payroll"], "nothing was stored"


def test_an_id_of_the_store_is_refused_alike_whether_it_is_in_use_or_not(web: Web) -> None:
    gone = _hidden(web)
    web.post("/v1/queues/payroll/purge", {"states": ["dead"]})
    used = _hidden(web)
    key = web.as_key(web.key("publish:mail"))
    answers = {(answer.status, answer.code) for id in (used, gone) for answer in publishes(key, id)}
    assert answers == {(400, "invalid_message")}
    assert web.get("/v1/queues").json["queues"] == ["payroll"], "nothing was stored"


def test_a_repeated_publish_is_told_so_and_no_more(web: Web) -> None:
    key = web.as_key(web.key("publish:mail"))
    id = "0123abcd-0000-4000-8000-000000000001"
    body = {"messages": [{"payload": SECRET, "id": id, "headers": {"a": "b"}}]}
    assert key.post("/v1/queues/mail/publish", body).json["messages"][0].get("duplicate") is None
    (again,) = key.post("/v1/queues/mail/publish", body).json["messages"]
    assert (again["id"], again["duplicate"], again.get("message")) == (id, True, None)
    (seen,) = web.post("/v1/queues/mail/publish", body).json["messages"]
    assert seen["message"]["payload"] == SECRET


def test_a_client_without_view_gets_its_own_message_back(stall: Stall, web: Web) -> None:
    with tampu.open(stall.url, token=web.key("publish:mail")) as store:
        first = store.publish("mail", {"n": 1}, idempotency_key="a")
        again = store.publish("mail", {"n": 1}, idempotency_key="a")
        assert (again.id, again.payload, again.duplicate) == (first.id, {"n": 1}, True)
        own = "0123abcd-0000-4000-8000-000000000002"
        assert [store.publish("mail", n, id=own).duplicate for n in range(2)] == [False, True]


def test_who_operates_a_queue_without_viewing_it_sees_no_content(web: Web, hidden: str) -> None:
    key = web.as_key(web.key("operate:payroll"))
    for dry_run in (True, False):
        answer = key.post("/v1/queues/payroll/replay", {"ids": [hidden], "dry_run": dry_run})
        assert [m["id"] for m in answer.json["messages"]] == [hidden]
        assert SECRET.encode() not in answer.raw
    again = web.post("/v1/queues/payroll/replay", {"ids": [hidden], "dry_run": True})
    assert again.status == 200


def test_a_schedule_cannot_be_fired_to_read_a_message(web: Web, hidden: str) -> None:
    web.request("PUT", "/v1/schedules/nightly", {"queue": "mail", "message": {"payload": SECRET}, "every": 3600})
    key = web.as_key(web.key("operate,publish:mail"))
    assert key.post("/v1/schedules/nightly/fire", {"id": hidden}).code == "idempotency_conflict"
    fired = key.post("/v1/schedules/nightly/fire", {})
    assert fired.status == 200
    assert SECRET.encode() not in fired.raw
