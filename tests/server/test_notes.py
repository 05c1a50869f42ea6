"""Notes belong to the lease of their message: a receipt of another message writes none."""

from __future__ import annotations

from typing import Any

from tests.server.web import Web


def publish(web: Web, queue: str) -> str:
    return str(web.post(f"/v1/queues/{queue}/messages", {"n": 1}).json["id"])


def write(web: Web, id: str, receipt: str) -> Any:
    body = {"receipt": receipt, "note": {"cursor": 7}, "by": 60}
    return web.request("PUT", f"/v1/messages/{id}/note", body).json.get("error", {}).get("code")


def test_a_receipt_of_another_message_writes_no_note(web: Web) -> None:
    other, mine = publish(web, "other"), publish(web, "jobs")
    (held,) = web.post("/v1/claim", {"queues": "other"}).json["leases"]
    (lease,) = web.post("/v1/claim", {"queues": "jobs"}).json["leases"]
    waiting = publish(web, "jobs")
    for id in (other, waiting):
        assert write(web, id, lease["receipt"]) == "lease_lost"
        assert web.get(f"/v1/messages/{id}/note").json["note"] is None
    assert write(web, mine, lease["receipt"]) is None
    assert write(web, other, held["receipt"]) is None
    assert web.get(f"/v1/messages/{mine}/note").json["note"] == {"cursor": 7}
