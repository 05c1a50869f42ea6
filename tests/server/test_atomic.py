"""Units over HTTP: each operation needs what its own route needs, and one that is not allowed leaves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.web import Web

PUBLISH = {"op": "publish", "queue": "jobs.a", "messages": [{"payload": 1}]}
NOBODY = "019b76da-a800-7000-8000-000000000001"


def unit(who: Web, *operations: Any, **more: Any) -> Any:
    return who.post("/v1/atomic", {"operations": list(operations), **more})


def count(web: Web) -> int:
    """Messages in jobs.a."""
    stats = web.get("/v1/queues/jobs.a/stats")
    return 0 if stats.status == 404 else sum(stats.json["counts"].values())


def test_the_replies_are_in_the_order_of_the_operations(web: Web) -> None:
    held = web.post("/v1/queues/jobs.a/messages", {"n": 1}, tampu_hold="wait").json["id"]
    waiting = web.post("/v1/queues/jobs.b/messages", {"n": 2}).json["id"]
    web.post("/v1/queues/jobs.c/messages", {"n": 3})
    (lease,) = web.post("/v1/claim", {"queues": ["jobs.c"]}).json["leases"]
    answer = unit(
        web,
        {"op": "put_document", "kind": "cursor", "name": "x", "value": {"at": 1}, "version": 0},
        {"op": "settle", "verb": "ack", "receipt": lease["receipt"], "result": 5},
        {"op": "publish", "queue": "jobs.a", "messages": [{"payload": 1, "delay": 60}, {"payload_base64": "aGk="}]},
        {"op": "cancel", "ids": [waiting]},
        {"op": "free", "ids": [held]},
        {"op": "delete_document", "kind": "cursor", "name": "none"},
    )
    assert answer.status == 200, answer.raw
    written, settled, published, cancelled, freed, deleted = answer.json["replies"]
    assert [m["state"] for m in published["messages"]] == ["delayed", "ready"]
    assert [one["outcomes"][0]["state"] for one in (settled, cancelled, freed)] == ["done", "cancelled", "ready"]
    assert deleted == {"deleted": False}
    assert web.get("/v1/documents/cursor/x").json == {
        "kind": "cursor", "name": "x", "version": written["version"], "value": {"at": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "needs"),
    [
        ({"op": "publish", "queue": "jobs.b", "messages": [{"payload": 1}]}, "publish:jobs.b"),
        ({"op": "settle", "verb": "ack", "receipt": "{receipt}"}, "consume:jobs.b"),
        ({"op": "cancel", "ids": ["{id}"]}, "operate:jobs.b"),
        ({"op": "free", "ids": ["{held}"]}, "review:jobs.b"),
        ({"op": "free", "ids": ["{held}"]}, "operate:jobs.b"),
        ({"op": "put_document", "kind": "cursor", "name": "x", "value": 1}, "operate"),
        ({"op": "delete_document", "kind": "cursor", "name": "x"}, "operate"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["op"],
)
def test_an_operation_that_is_not_allowed_leaves_nothing_of_its_unit(
    web: Web, operation: dict[str, Any], needs: str
) -> None:
    web.post("/v1/queues/jobs.b/messages", {"n": 0})
    names = {
        "receipt": web.post("/v1/claim", {"queues": ["jobs.b"]}).json["leases"][0]["receipt"],
        "id": web.post("/v1/queues/jobs.b/messages", {"n": 1}).json["id"],
        "held": web.post("/v1/queues/jobs.b/messages", {"n": 2}, tampu_hold="wait").json["id"],
    }

    def filled(value: Any) -> Any:
        return value.format(**names) if isinstance(value, str) else value

    asked = {
        key: [filled(one) for one in value] if isinstance(value, list) else filled(value)
        for key, value in operation.items()
    }
    permission = needs.partition(":")[0]
    others = [one for one in ("view", "publish", "consume", "operate", "review") if one != permission]
    if operation["op"] == "free":
        others = [one for one in others if one not in ("operate", "review")]
    grants = [{"permissions": ["publish"], "queues": ["jobs.a"]}, {"permissions": others, "queues": ["jobs.b"]}]
    made = web.post("/v1/keys", {"name": "few", "grants": grants})
    few = web.as_key(made.json["token"])
    refused = unit(few, PUBLISH, asked)
    assert refused.status in (403, 404), refused.raw
    assert count(web) == 0
    grants[1:] = [{"permissions": [permission], "queues": [needs.partition(":")[2] or "*"]}]
    able = web.as_key(web.post("/v1/keys", {"name": "able", "grants": grants}).json["token"])
    assert unit(able, PUBLISH, asked).status == 200
    assert count(web) == 1


def test_messages_of_another_tenant_are_not_there(web: Web) -> None:
    theirs = web.as_key(web.headers["authorization"][7:], **{"tampu-tenant": "theirs"})
    id = theirs.post("/v1/queues/jobs.b/messages", {"n": 1}).json["id"]
    (lease,) = theirs.post("/v1/claim", {"queues": ["jobs.b"]}).json["leases"]
    assert unit(web, PUBLISH, {"op": "cancel", "ids": [id]}).status == 404
    assert unit(web, PUBLISH, {"op": "settle", "verb": "ack", "receipt": lease["receipt"]}).status == 409
    assert count(web) == 0
    assert unit(theirs, {"op": "put_document", "kind": "cursor", "name": "x", "value": 1}).status == 200
    assert web.get("/v1/documents/cursor/x").status == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"operations": [{"op": "fly"}]}, "invalid_message"),
        ({"operations": [{"op": "publish", "queue": "jobs.a"}]}, "invalid_message"),
        ({"operations": [PUBLISH, {"op": "cancel", "ids": []}]}, "invalid_message"),
        ({"operations": [PUBLISH, {"op": "cancel", "ids": [NOBODY]}]}, "not_found"),
        ({"operations": [PUBLISH], "name": "short"}, "invalid_message"),
        ({"operations": [PUBLISH] * 1001}, "invalid_message"),
        ({"operations": [{**PUBLISH, "messages": [{"payload": 1}] * 10_001}]}, "invalid_message"),
        (
            {"operations": [{"op": "put_document", "kind": "k", "name": "n", "value": "x" * 70_000}]},
            "payload_too_large",
        ),
    ],
)
def test_a_bad_unit_is_refused_whole(web: Web, body: Any, code: str) -> None:
    answer = web.post("/v1/atomic", body)
    assert (answer.status >= 400, answer.code) == (True, code), answer.raw
    assert count(web) == 0


def test_no_operation_is_no_unit(web: Web) -> None:
    assert unit(web).json == {"replies": []}


def test_a_unit_under_a_name_takes_effect_once(web: Web) -> None:
    name = "a-name-drawn-at-random"
    first, again = unit(web, PUBLISH, name=name), unit(web, PUBLISH, name=name)
    ids = [answer.json["replies"][0]["messages"][0]["id"] for answer in (first, again)]
    assert ids[0] == ids[1]
    assert count(web) == 1
    other = unit(web, {**PUBLISH, "messages": [{"payload": 2}]}, name=name)
    assert (other.status, other.code) == (422, "idempotency_conflict")


def test_ready_says_how_units_become_visible(web: Web) -> None:
    assert web.get("/ready").json["atomic"] == "isolated"
    assert web.get("/v1/me").json["atomic"] == "isolated"
