"""Reviews over HTTP: which key may decide which review, and in whose name."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.server.auth.grants import parse
from tests.server.web import Web


def _asked(web: Web, queue: str, **review: Any) -> str:
    made = web.post(f"/v1/queues/{queue}/publish", {"messages": [{"payload": {"n": 1}, "review": review}]})
    assert made.status == 200, made.json
    return str(made.json["messages"][0]["id"])


def _key(web: Web, *grants: Any) -> Web:
    answer = web.post("/v1/keys", {"name": "desk", "grants": [msgspec.to_builtins(grant) for grant in grants]})
    assert answer.status == 201, answer.raw
    return web.as_key(answer.json["token"])


def test_a_grant_with_roles_decides_only_reviews_of_these_roles(web: Web) -> None:
    credit, fraud, anybody = (
        _asked(web, "loans", roles=["credit"]),
        _asked(web, "loans", roles=["fraud"]),
        _asked(web, "loans"),
    )
    elsewhere = _asked(web, "jobs", roles=["credit"])
    desk = _key(web, parse("review:loans/credit"))
    assert {one["id"] for one in desk.get("/v1/reviews").json["reviews"]} == {credit, anybody}
    for id in (fraud, elsewhere):
        assert desk.get(f"/v1/reviews/{id}").status == 404
        assert desk.post(f"/v1/reviews/{id}/decide", {"option": "approve"}).status == 404
    viewer = _key(web, parse("view:*"), parse("review:loans/credit"))
    refused = viewer.post(f"/v1/reviews/{fraud}/decide", {"option": "approve"})
    assert (refused.status, refused.code) == (403, "forbidden")
    for id in (credit, anybody):
        assert desk.post(f"/v1/reviews/{id}/decide", {"option": "approve"}).json["state"] == "decided"
    assert web.get(f"/v1/messages/{fraud}").json["state"] == "held"


def test_a_key_decides_under_its_own_name_unless_it_may_operate(web: Web) -> None:
    id = _asked(web, "loans")
    desk, operator = web.as_key(web.key("review:loans")), web.as_key(web.key("review,operate:loans"))
    for act, body in (("decide", {"option": "approve"}), ("claim", {}), ("comment", {"text": "hm"})):
        refused = desk.post(f"/v1/reviews/{id}/{act}", {**body, "by": "ada"})
        assert (refused.status, refused.json["field"]) == (403, "by"), act
    assert desk.post("/v1/messages/free", {"ids": [id]}).json["outcomes"][0]["error"] is not None
    assert web.get(f"/v1/messages/{id}").json["state"] == "held"
    assert operator.post(f"/v1/reviews/{id}/decide", {"option": "approve", "by": "ada"}).json["decision"]["by"] == "ada"
    assert web.get(f"/v1/messages/{id}").json["state"] == "ready"
