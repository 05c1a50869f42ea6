"""Flows over HTTP: who may publish, see, cancel, replay and add to them, and requests that are sent again."""

from __future__ import annotations

from typing import Any

from tests.server.web import Web

FLOW: dict[str, Any] = {
    "name": "nightly",
    "members": [
        {"queue": "jobs.a", "message": {"payload": {"n": 1}}},
        {"queue": "jobs.b", "message": {"payload": {}}, "after": [0], "into": "result", "on_failure": "skip"},
    ],
}


def test_a_flow_is_shown_to_who_may_view_all_its_queues(web: Web) -> None:
    id = web.post("/v1/flows", FLOW).json["id"]
    some, all = web.as_key(web.key("view:jobs.a")), web.as_key(web.key("view:jobs.*"))
    assert (some.get(f"/v1/flows/{id}").status, some.get("/v1/flows").json["flows"]) == (404, [])
    found = all.get(f"/v1/flows/{id}?limit=10").json
    assert (found["name"], found["status"], found["counts"]) == ("nightly", "running", {"open": 2})
    assert [(one["state"], one["on_failure"]) for one in found["members"]] == [("ready", "fail"), ("held", "skip")]
    assert [one["id"] for one in all.get("/v1/flows?status=running").json["flows"]] == [id]


def test_cancel_and_replay_need_operate_in_all_queues(web: Web) -> None:
    id = web.post("/v1/flows", FLOW).json["id"]
    for grants, status in (("view", 403), ("operate:jobs.a", 404), ("operate:jobs.*", 200)):
        who = web.as_key(web.key(grants))
        assert who.post(f"/v1/flows/{id}/replay", {}).status == status, grants
    assert web.as_key(web.key("operate:jobs.*")).post(f"/v1/flows/{id}/replay", {"failed_only": False}).status == 403
    both = web.as_key(web.key("operate:jobs.*", "publish:jobs.*"))
    again = both.post(f"/v1/flows/{id}/replay", {"failed_only": False}).json["id"]
    assert web.get(f"/v1/flows/{again}").json["name"] == "nightly"
    assert web.as_key(web.key("operate:jobs.*")).post(f"/v1/flows/{id}/cancel").status == 200


def test_a_flow_that_is_sent_again_is_published_once(web: Web) -> None:
    named = FLOW | {"id": "fe5e0fc4-eaa0-8f10-bc5a-700000000000"}
    assert [web.post("/v1/flows", named).json["id"] for _ in range(2)] == [named["id"]] * 2
    assert len(web.get("/v1/flows").json["flows"]) == 1
    assert web.get("/v1/queues/jobs.a/stats").json["counts"]["ready"] == 1


def test_publish_is_needed_in_the_queue_of_each_member(web: Web) -> None:
    assert web.as_key(web.key("publish:jobs.a")).post("/v1/flows", FLOW).status == 403
    assert web.get("/v1/flows").json["flows"] == []


def test_a_worker_adds_members_where_it_may_publish(web: Web) -> None:
    id = web.post("/v1/flows", FLOW).json["id"]
    (lease,) = web.post("/v1/claim", {"queues": ["jobs.a"]}).json["leases"]
    more = {"queue": "jobs.c", "message": {"payload": 3}, "after": [lease["message"]["id"]]}
    body = {"receipt": lease["receipt"], "id": lease["message"]["id"], "members": [more]}
    for grants in (["consume:jobs.a"], ["publish:jobs.c"], ["consume:jobs.c", "publish:jobs.c"]):
        assert web.as_key(web.key(*grants)).post("/v1/flows/members", body).status == 403
    worker = web.as_key(web.key("consume:jobs.a", "publish:jobs.c"))
    added = worker.post("/v1/flows/members", body).json["ids"]
    assert worker.post("/v1/flows/members", body).json["ids"] == added
    assert worker.post("/v1/flows/members", body | {"receipt": "jobs.a/1.1", "n": 2}).code == "lease_lost"
    assert web.as_key(web.key("view:jobs.a,jobs.b")).get(f"/v1/flows/{id}").status == 404, (
        "it has a member in jobs.c now"
    )


def test_a_worker_gets_results_only_of_queues_in_which_it_may_do_something(web: Web) -> None:
    secret = {"queue": "secret", "message": {"payload": 1}}
    id = web.post("/v1/flows", FLOW | {"members": [*FLOW["members"], secret]}).json["id"]
    parent = web.get(f"/v1/flows/{id}?limit=10").json["members"][2]["id"]
    (lease,) = web.post("/v1/claim", {"queues": ["jobs.a"]}).json["leases"]
    more = {"queue": "jobs.c", "message": {"payload": {}}, "after": [parent], "into": "x"}
    body = {"receipt": lease["receipt"], "id": lease["message"]["id"], "members": [more], "joins": False}
    grants = ["consume:jobs.a", "publish:jobs.c"]
    refused = web.as_key(web.key(*grants)).post("/v1/flows/members", body)
    assert (refused.status, "secret" in str(refused.json)) == (403, False)
    without = body | {"n": 2, "members": [more | {"into": None}]}
    assert web.as_key(web.key(*grants)).post("/v1/flows/members", without).status == 200
    for n, extra in enumerate(("view:secret", "consume:secret"), 3):
        assert web.as_key(web.key(*grants, extra)).post("/v1/flows/members", body | {"n": n}).status == 200


def test_bodies_are_checked(web: Web) -> None:
    bodies: tuple[dict[str, Any], ...] = (
        {"members": []},
        {"members": [{"queue": "jobs.a", "message": {"payload": 1}, "after": [0]}]},
        {"members": [{"queue": "jobs.a", "message": {"payload": 1}, "after": [[0]]}]},
        {"members": [{"queue": "jobs.a", "message": {"payload": 1, "key": "k"}}]},
        {"members": [{"queue": "jobs.a", "message": {"payload": 1}, "on_failure": "hope"}]},
        {"members": [{"queue": "jobs.a", "message": {"payload": 1}, "unknown": 1}]},
        FLOW | {"id": "11111111-1111-4111-8111-111111111111"},
    )
    for body in bodies:
        assert web.post("/v1/flows", body).status == 400, body
    assert web.get("/v1/flows/fe5e0fc4-eaa0-8f10-bc5a-700000000000").status == 404
    assert web.get("/v1/flows/nonsense").status == 400
