"""Schedules over HTTP, in JSON: requests, answers, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.web import Web

PATH = "/v1/schedules/nightly"


def put(web: Web, path: str = PATH, **more: Any) -> Any:
    body = {"queue": "reports", "message": {"payload": {"kind": "daily"}}, "cron": "30 3 * * *", **more}
    return web.request("PUT", path, {name: value for name, value in body.items() if value is not None})


def test_a_schedule_is_put_looked_at_and_deleted(web: Web) -> None:
    made = put(web, tz="Europe/Rome", jitter="PT5M", limit=3, missed="all(2)").json
    assert made["message"]["payload"] == {"kind": "daily"}
    assert (made["status"], made["fired"], made["jitter"], made["missed"]) == ("active", 0, 300.0, "all(2)")
    assert web.get(PATH).json == made
    assert web.get("/v1/schedules").json == {"schedules": [made]}
    assert web.post(f"{PATH}/pause").json["status"] == "paused"
    assert web.post(f"{PATH}/resume").json["next"] == made["next"]
    assert web.request("DELETE", PATH).json == {"deleted": True}
    assert web.request("DELETE", PATH).json == {"deleted": False}
    assert web.get(PATH).code == "not_found"


def test_bytes_go_as_base64_and_text_as_text(web: Web) -> None:
    answer = put(web, message={"payload_base64": "AP8=", "content_type": "image/png"}).json["message"]
    assert (answer["payload_base64"], answer["content_type"], "payload" in answer) == ("AP8=", "image/png", False)
    answer = put(web, message={"payload": "hello", "content_type": "text/plain"}).json["message"]
    assert (answer["payload"], "payload_base64" in answer) == ("hello", False)


def test_fire_publishes_now_and_is_safe_to_repeat_with_an_id(web: Web) -> None:
    put(web)
    id = "11111111-2222-4333-8444-555555555555"
    first, again = (web.post(f"{PATH}/fire", {"id": id}).json for _ in range(2))
    assert (first["id"], first.get("duplicate", False), again["duplicate"]) == (id, False, True)
    assert first["headers"] == {"tampu-schedule": "nightly"}
    assert web.post(f"{PATH}/fire", {}).json["id"] != id
    assert web.get("/v1/queues/reports/stats").json["counts"]["ready"] == 2


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("cron", {"cron": "* *"}),
        ("cron", {"every": 60}),
        ("tz", {"tz": "Mars/Base"}),
        ("queue", {"queue": "no spaces"}),
        ("id", {"message": {"payload": 1, "id": "11111111-2222-4333-8444-555555555555"}}),
        ("run_at", {"message": {"payload": 1, "run_at": "2030-01-01T00:00:00Z"}}),
        ("idempotency_key", {"message": {"payload": 1, "idempotency_key": "k"}}),
        ("payload", {"message": {"type": "t"}}),
        ("limit", {"limit": 0}),
        ("nonsense", {"nonsense": 1}),
    ],
)
def test_bad_terms_are_refused_with_their_field(web: Web, field: str, more: dict[str, Any]) -> None:
    answer = put(web, **more)
    assert (answer.status, answer.json["field"]) == (400, field)
    assert web.get("/v1/schedules").json == {"schedules": []}


def test_a_name_that_is_none_is_refused(web: Web) -> None:
    answer = put(web, "/v1/schedules/no%20spaces")
    assert (answer.status, answer.json["field"]) == (400, "schedule")
