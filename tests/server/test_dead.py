"""Dead letters over HTTP: a key sees and changes those of its own queues."""

from __future__ import annotations

from typing import Any

from tests.server.web import Web


def _bury(web: Web, queue: str) -> str:
    web.post(f"/v1/queues/{queue}/messages", {"n": 1})
    (lease,) = web.post("/v1/claim", {"queues": [queue]}).json["leases"]
    settled = {"settlements": [{"verb": "reject", "receipt": lease["receipt"], "error": "ValueError: 7 is too much"}]}
    assert web.post("/v1/settle", settled).status == 200
    return str(lease["message"]["id"])


def test_a_key_of_some_queues_replays_and_purges_only_their_dead_letters(web: Web) -> None:
    mine, theirs = _bury(web, "jobs.a"), _bury(web, "other.a")
    limited, elsewhere = web.as_key(web.key("view,operate:jobs.*")), web.as_key(web.key("operate:other.*"))
    assert [m["id"] for m in limited.get("/v1/dead").json["messages"]] == [mine]
    (group,) = limited.get("/v1/dead/groups").json["groups"]
    assert group["queues"] == {"jobs.a": 1}
    assert limited.get("/v1/dead?queue=other.a").status == 403
    assert limited.post("/v1/dead/replay", {"ids": [theirs], "dry_run": True}).json["count"] == 0
    made = limited.post("/v1/dead/replay", {"queue": "*"}).json
    assert (made["count"], made["queues"], made["status"]) == (1, {"jobs.a": 1}, "done")
    path = f"/v1/dead/replays/{made['id']}"
    assert limited.get(path).json["count"] == 1
    for method, place in (("GET", path), ("DELETE", path), ("POST", f"{path}/undo")):
        assert elsewhere.request(method, place, None).status == 404
        assert web.as_key(None).request(method, place, None).status == 401
    assert elsewhere.get("/v1/dead/replays").json["replays"] == []
    assert limited.request("POST", f"{path}/undo", None).json["undone"] == 1
    assert limited.request("DELETE", path, None).status == 409
    assert limited.post("/v1/dead/purge", {"queue": "*"}).json["queues"] == {"jobs.a": 1}
    assert [m["id"] for m in web.get("/v1/dead").json["messages"]] == [theirs]


def test_a_queue_for_copies_needs_permission_in_both_queues(web: Web) -> None:
    limited = web.as_key(web.key("operate:jobs.*"))
    assert limited.request("PATCH", "/v1/queues/jobs.a/config", {"dead_letter_to": "other"}).status == 403
    assert limited.request("PATCH", "/v1/queues/jobs.a/config", {"dead_letter_to": "jobs.desk"}).status == 200


def test_bad_requests_are_refused(web: Web) -> None:
    bad: list[Any] = [{}, {"ids": []}, {"queue": "a", "ids": ["x"]}, {"queue": "a", "rate": "fast"}, {"colour": 1}]
    for body in bad:
        assert web.post("/v1/dead/replay", body).status in (400, 422), body
    assert web.get("/v1/dead?after=x").status in (400, 422)
    assert web.get("/v1/dead/replays/none").status == 404
