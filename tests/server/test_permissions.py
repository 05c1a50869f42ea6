"""Every route, with every permission, from this tenant and from another: what is not granted is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tampu.model.grants import PERMISSIONS
from tampu.server.app import framework
from tests.server.conftest import Start
from tests.server.web import Web
from tests.servers import redis

OPEN = {"health", "ready", "metrics", "sign_in", "sign_out", "sign_in_by_link"}
"""Need no key; metrics only on loopback."""
ANY = {"me", "topology_schema"}
OF_THE_STORE = {
    "list_followers", "resume_follower", "remove_follower",
    "list_agents", "get_agent", "run_agent", "pause_agent", "resume_agent",
}  # fmt: skip
"""Only for keys of all tenants: tests/server/test_followers.py."""
OF_A_REPLAY = {"get_dead_replay", "cancel_dead_replay", "undo_dead_replay"}
"""tests/server/test_dead.py"""
OF_A_MEMBER = {"add_to_flow"}
"""Needs two permissions, and a lease: tests/server/test_flows.py."""
ID = "019b76da-a800-7000-8000-000000000001"
CONFIG = "/v1/queues/jobs.a/config"
SCHEDULE = {"queue": "jobs.a", "message": {"payload": {"n": 1}}, "every": 3600}
SPARK_JOB = {"do": "put", "kind": "spark-job", "name": "jobs.a/nightly", "value": ""}
RULE = {"when": "false", "actions": [{"archive": True}], "queues": ["jobs.a"]}
ALERT = {"measure": "oldest", "above": 60, "queues": ["jobs.a"]}
HOLD = {"reason": "court", "queues": ["jobs.a"], "key": "nobody"}
PATTERN = {"queues": ["jobs.a"], "approvals": 20}
KEPT, OTHER = ({"queue": "jobs.a", "subscriber": name} for name in ("kept", "other"))
UNIT = {"op": "publish", "queue": "jobs.b", "messages": [{"payload": 1}]}
DOCUMENT = {"op": "put_document", "kind": "cursor", "name": "x", "value": 1}
NEEDS: dict[str, tuple[set[str], str, str, Any]] = {
    "audit": ({"admin*"}, "GET", "/v1/audit", None),
    "list_erasures": ({"admin*"}, "GET", "/v1/erasures", None),
    "erase": ({"admin*"}, "POST", "/v1/erasures", {"key": "nobody"}),
    "get_erasure": ({"admin*"}, "GET", "/v1/erasures/{erasure}", None),
    "check_erasure": ({"admin*"}, "POST", "/v1/erasures/{erasure}/check", None),
    "list_holds": ({"view"}, "GET", "/v1/holds", None),
    "get_hold": ({"view"}, "GET", "/v1/holds/kept", None),
    "put_hold": ({"operate"}, "PUT", "/v1/holds/kept", HOLD),
    "delete_hold": ({"operate"}, "DELETE", "/v1/holds/other", None),
    "export_topology": ({"admin*"}, "GET", "/v1/topology", None),
    "apply_topology": ({"admin*"}, "POST", "/v1/topology", {"topology": {"queues": {"jobs.new": {}}}}),
    "publish": ({"publish"}, "POST", "/v1/queues/jobs.a/messages", {"n": 1}),
    "publish_many": ({"publish"}, "POST", "/v1/queues/jobs.a/publish", {"messages": [{"payload": 1}]}),
    "atomic": ({"publish"}, "POST", "/v1/atomic", {"operations": [UNIT]}),
    "get_document": ({"view*"}, "GET", "/v1/documents/cursor/x", None),
    "claim": ({"consume"}, "POST", "/v1/claim", {"queues": ["jobs.a"]}),
    "settle": ({"consume"}, "POST", "/v1/settle", {"settlements": [{"verb": "ack", "receipt": "jobs.a/1.1"}]}),
    "extend": ({"consume"}, "POST", "/v1/extend", {"leases": [{"receipt": "jobs.a/1.1"}]}),
    "get": ({"view"}, "GET", "/v1/messages/{id}", None),
    "result": ({"view"}, "GET", "/v1/messages/{id}/result", None),
    "messages": ({"view"}, "GET", "/v1/queues/jobs.a/messages", None),
    "trace": ({"view"}, "GET", "/v1/traces/{id}", None),
    "read_note": ({"view", "consume"}, "GET", "/v1/messages/{id}/note", None),
    "write_note": ({"consume"}, "PUT", "/v1/messages/{id}/note", {"receipt": "jobs.a/1.1", "note": 1, "by": 5}),
    "drop_note": ({"consume"}, "DELETE", "/v1/messages/{id}/note", None),
    "journal": ({"view"}, "GET", "/v1/journal", None),
    "events": ({"view"}, "GET", "/v1/events?queue=jobs.a&after=0&seconds=0", None),
    "queues": ({"view"}, "GET", "/v1/queues", None),
    "stats": ({"view"}, "GET", "/v1/stats", None),
    "queue_stats": ({"view"}, "GET", "/v1/queues/jobs.a/stats", None),
    "get_config": ({"view"}, "GET", CONFIG, None),
    "config_sources": ({"view"}, "GET", f"{CONFIG}/sources", None),
    "list_schemas": ({"view"}, "GET", "/v1/schemas", None),
    "get_schema": ({"view"}, "GET", "/v1/schemas/order", None),
    "put_schema": ({"operate"}, "PUT", "/v1/schemas/order", {"schema": {"title": "any"}, "queues": ["jobs.a"]}),
    "delete_schema": ({"operate"}, "DELETE", "/v1/schemas/other", None),
    "list_rules": ({"view"}, "GET", "/v1/rules", None),
    "get_rule": ({"view"}, "GET", "/v1/rules/kept", None),
    "put_rule": ({"operate"}, "PUT", "/v1/rules/kept", RULE),
    "test_rule": ({"view"}, "POST", "/v1/rules/kept/test", {"payload": 1}),
    "delete_rule": ({"operate"}, "DELETE", "/v1/rules/other", None),
    "list_alerts": ({"view"}, "GET", "/v1/alerts", None),
    "alert_status": ({"view"}, "GET", "/v1/alerts/status", None),
    "get_alert": ({"view"}, "GET", "/v1/alerts/kept", None),
    "put_alert": ({"operate"}, "PUT", "/v1/alerts/kept", ALERT),
    "delete_alert": ({"operate"}, "DELETE", "/v1/alerts/other", None),
    "has_webhook_secret": ({"admin*"}, "GET", "/v1/webhooks/secret", None),
    "put_webhook_secret": ({"admin*"}, "PUT", "/v1/webhooks/secret", {"secret": "0123456789abcdef"}),
    "list_subscriptions": ({"view"}, "GET", "/v1/subscriptions", None),
    "get_subscription": ({"view"}, "GET", "/v1/subscriptions/jobs.a@kept", None),
    "put_subscription": ({"operate"}, "PUT", "/v1/subscriptions/jobs.a@kept", KEPT),
    "delete_subscription": ({"operate"}, "DELETE", "/v1/subscriptions/jobs.a@other", None),
    "list_dead": ({"view"}, "GET", "/v1/dead", None),
    "group_dead": ({"view"}, "GET", "/v1/dead/groups", None),
    "list_dead_replays": ({"operate"}, "GET", "/v1/dead/replays", None),
    "replay_dead": ({"operate"}, "POST", "/v1/dead/replay", {"queue": "jobs.a"}),
    "purge_dead": ({"operate"}, "POST", "/v1/dead/purge", {"queue": "jobs.a"}),
    "list_patterns": ({"view"}, "GET", "/v1/patterns", None),
    "get_pattern": ({"view"}, "GET", "/v1/patterns/kept", None),
    "put_pattern": ({"operate"}, "PUT", "/v1/patterns/kept", PATTERN),
    "delete_pattern": ({"operate"}, "DELETE", "/v1/patterns/other", None),
    "list_flows": ({"view"}, "GET", "/v1/flows", None),
    "get_flow": ({"view"}, "GET", "/v1/flows/{flow}", None),
    "publish_flow": ({"publish"}, "POST", "/v1/flows", {"members": [{"queue": "jobs.a", "message": {"payload": 1}}]}),
    "replay_flow": ({"operate"}, "POST", "/v1/flows/{flow}/replay", {}),
    "cancel_flow": ({"operate"}, "POST", "/v1/flows/{cancelled}/cancel", None),
    "list_reviews": ({"view", "review"}, "GET", "/v1/reviews", None),
    "get_review": ({"view", "review"}, "GET", "/v1/reviews/{review}", None),
    "preview_review": ({"view"}, "POST", "/v1/reviews/preview", {"pattern": "kept"}),
    "comment_review": ({"review"}, "POST", "/v1/reviews/{review}/comment", {"text": "hm"}),
    "reassign_review": ({"review"}, "POST", "/v1/reviews/{review}/reassign", {"roles": []}),
    "decide_review": ({"review"}, "POST", "/v1/reviews/{review}/decide", {"option": "approve"}),
    "claim_review": ({"review"}, "POST", "/v1/reviews/{claimed}/claim", {}),
    "ask_review": ({"consume"}, "POST", "/v1/reviews", {"id": ID, "receipt": "jobs.a/1.1", "review": {}}),
    "put_config": ({"operate"}, "PATCH", CONFIG, {"lease": 5}),
    "reset_config": ({"operate"}, "DELETE", CONFIG, None),
    "pause": ({"operate"}, "POST", "/v1/queues/jobs.a/pause", None),
    "resume": ({"operate"}, "POST", "/v1/queues/jobs.a/resume", None),
    "drain": ({"operate"}, "POST", "/v1/queues/jobs.a/drain", None),
    "close": ({"operate"}, "POST", "/v1/queues/jobs.a/close", None),
    "cancel": ({"operate"}, "POST", "/v1/messages/cancel", {"ids": ["{id}"]}),
    "free": ({"operate", "review"}, "POST", "/v1/messages/free", {"ids": ["{id}"]}),
    "replay": ({"operate"}, "POST", "/v1/queues/jobs.a/replay", {"where": {}}),
    "purge": ({"operate"}, "POST", "/v1/queues/jobs.a/purge", {"states": ["dead"]}),
    "remove_queue": ({"operate"}, "DELETE", "/v1/queues/jobs.old?force=true", None),
    "list_schedules": ({"view"}, "GET", "/v1/schedules", None),
    "get_schedule": ({"view"}, "GET", "/v1/schedules/tick", None),
    "put_schedule": (set(), "PUT", "/v1/schedules/tick", SCHEDULE),
    "pause_schedule": ({"operate"}, "POST", "/v1/schedules/tick/pause", None),
    "resume_schedule": ({"operate"}, "POST", "/v1/schedules/tick/resume", None),
    "fire_schedule": (set(), "POST", "/v1/schedules/tick/fire", {}),
    "delete_schedule": ({"operate"}, "DELETE", "/v1/schedules/tick", None),
    "check": ({"operate*"}, "GET", "/v1/check", None),
    "spark_documents": ({"consume"}, "POST", "/v1/spark/documents", {"kind": "deliveries", "name": "jobs.a/c"}),
    "spark_changes": ({"publish"}, "POST", "/v1/spark/changes", {"changes": [SPARK_JOB]}),
    "spark_queue": ({"view", "publish", "consume"}, "GET", "/v1/spark/queues/jobs.a", None),
    "spark_place": ({"view", "publish", "consume"}, "GET", "/v1/spark/place", None),
    "spark_journal": ({"view"}, "GET", "/v1/spark/journal?partition=0&after=0&upto=1", None),
    "spark_plan": ({"view"}, "POST", "/v1/spark/plan", {"query": {"columns": ["id"]}}),
    "spark_messages": ({"view"}, "POST", "/v1/spark/messages", {"piece": "{piece}"}),
    "spark_deliveries": ({"view", "consume"}, "POST", "/v1/spark/deliveries", {"ids": ["{id}"]}),
    "list_keys": ({"admin*"}, "GET", "/v1/keys", None),
    "create_key": ({"admin*"}, "POST", "/v1/keys", {"name": "k", "grants": [{"permissions": ["view"]}]}),
    "rotate_key": ({"admin*"}, "POST", "/v1/keys/{key}/rotate", {}),
    "revoke_key": ({"admin*"}, "DELETE", "/v1/keys/{key}", None),
}
"""By operation: the permissions that allow it (with ``*``: only for all queues), and a request. None: it takes more
than one, so of those that are alone only admin."""


def rows_of(raw: bytes) -> list[dict[str, Any]]:
    """The rows of an Arrow stream."""
    rows: list[dict[str, Any]] = pa.ipc.open_stream(raw).read_all().to_pylist()
    return rows


def _operations() -> dict[str, str]:
    paths = framework().openapi()["paths"]
    return {op["operationId"]: path for path, ops in paths.items() for op in ops.values()}


def _fill(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, dict):
        return {k: _fill(v, names) for k, v in value.items()}
    return [_fill(v, names) for v in value] if isinstance(value, list) else value


_OF_EACH = {
    "cancel": "not_found", "free": "not_found",
    "settle": "lease_lost", "extend": "lease_lost", "write_note": "lease_lost",
}  # fmt: skip


_OF_MANY = {
    "queues": "queues", "stats": "queues", "list_schedules": "schedules", "journal": "transitions",
    "list_schemas": "schemas", "list_rules": "rules", "list_subscriptions": "subscriptions",
    "list_holds": "holds", "list_erasures": "erasures", "list_alerts": "alerts",
    "alert_status": "firing", "list_patterns": "patterns", "list_reviews": "reviews",
    "list_flows": "flows",
    "list_dead": "messages", "group_dead": "groups", "list_dead_replays": "replays",
    "replay_dead": "count", "purge_dead": "count",
}  # fmt: skip


def _shows_nothing(operation: str, answer: Any) -> bool:
    """A success that tells nothing of what the caller may not see."""
    if operation in ("events", "ask_review"):
        return b"data:" not in answer.raw if operation == "events" else bool(answer.code == "lease_lost")
    if operation.startswith("spark"):
        return _shows_no_rows(operation, answer)
    body = answer.json
    if operation in _OF_MANY:
        return body[_OF_MANY[operation]] in ([], 0)
    if operation.startswith("delete_"):
        return body["deleted"] is False
    if operation == "audit":
        body = {"keys": [{"name": record["target"]} for record in body["records"]]}
    if operation in _OF_EACH:
        items = body.get("outcomes") or body.get("leases") or [body]
        return [item["error"]["code"] for item in items] == [_OF_EACH[operation]]
    others = {"victim", "jobs.kept", "tick"}
    return operation in ("list_keys", "audit") and not others & {key["name"] for key in body["keys"]}


def _shows_no_rows(operation: str, answer: Any) -> bool:
    if operation in ("spark_journal", "spark_deliveries"):
        return rows_of(answer.raw) == []
    if operation == "spark_place":
        return all("/" not in partition for partition in answer.json["latest"])
    if operation == "spark_documents":
        return bool(answer.json["documents"] == [])
    return operation == "spark_plan" and answer.json["pieces"] == []


def test_every_route_is_in_the_matrix() -> None:
    assert set(_operations()) == set(NEEDS) | OPEN | ANY | OF_THE_STORE | OF_A_REPLAY | OF_A_MEMBER


@pytest.fixture
def filled(web: Web) -> dict[str, str]:
    """Messages, a key, and what else others would like to reach."""
    message = web.post("/v1/queues/jobs.a/messages", {"n": 1}, tampu_hold="wait").json
    web.post("/v1/queues/jobs.kept/messages", {"n": 2})
    web.request("PATCH", "/v1/queues/jobs.kept/config", {"lease": 77})
    job = {"changes": [{**SPARK_JOB, "value": "c28gZmFy"}]}
    assert web.post("/v1/spark/changes", job).status == 200
    assert web.post("/v1/atomic", {"operations": [DOCUMENT]}).status == 200
    key = web.post("/v1/keys", {"name": "victim", "grants": [{"permissions": ["view"]}]}).json["key"]
    assert web.request("PUT", "/v1/schedules/tick", SCHEDULE).status == 200
    for schema in ("order", "other"):
        body = {"schema": {"title": "any"}, "queues": ["jobs.a"]}
        assert web.request("PUT", f"/v1/schemas/{schema}", body).status == 200
    for one in (KEPT, OTHER):
        assert web.request("PUT", f"/v1/subscriptions/jobs.a@{one['subscriber']}", one).status == 200
    for alert in ("kept", "other"):
        assert web.request("PUT", f"/v1/alerts/{alert}", ALERT).status == 200
    for rule in ("kept", "other"):
        assert web.request("PUT", f"/v1/rules/{rule}", RULE).status == 200
        assert web.request("PUT", f"/v1/holds/{rule}", HOLD).status == 200
    erasure = web.post("/v1/erasures", {"key": "nobody"}).json["id"]
    for pattern in ("kept", "other"):
        assert web.request("PUT", f"/v1/patterns/{pattern}", PATTERN).status == 200
    asking = {"messages": [{"payload": 1, "review": "kept"}, {"payload": 2, "review": "kept"}]}
    reviews = web.post("/v1/queues/jobs.a/publish", asking).json["messages"]
    flow = {"members": [{"queue": "jobs.a", "message": {"payload": 1}}]}
    flows = {name: web.post("/v1/flows", flow).json["id"] for name in ("flow", "cancelled")}
    plan = {"query": {"columns": ["id"], "queues": ["jobs.a"]}}
    (piece,) = web.post("/v1/spark/plan", plan).json["pieces"]
    return (
        {"id": message["id"], "key": key["id"], "piece": piece, "erasure": erasure}
        | flows
        | {name: one["id"] for name, one in zip(("review", "claimed"), reviews, strict=True)}
    )


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_permission_allows_its_routes_and_no_others(web: Web, filled: dict[str, str], permission: str) -> None:
    inside, outside = web.as_key(web.key(f"{permission}:jobs.*")), web.as_key(web.key(f"{permission}:other.*"))
    everywhere = web.as_key(web.key(permission))
    for operation, (allowed, method, path, body) in NEEDS.items():
        asked = (method, _fill(path, filled), _fill(body, filled))
        may = permission == "admin" or permission in {name.rstrip("*") for name in allowed}
        only_everywhere = any(name.endswith("*") for name in allowed)
        for who, expected in ((outside, False), (inside, may and not only_everywhere), (everywhere, may)):
            if operation == "revoke_key" and expected:
                continue  # tested below; the others still need it
            web.post("/v1/queues/jobs.old/messages", {"n": 3})  # it may have been removed just before
            web.request("PUT", "/v1/schemas/other", {"schema": {"title": "any"}, "queues": ["jobs.a"]})
            web.request("PUT", "/v1/rules/other", RULE)
            web.request("PUT", "/v1/holds/other", HOLD)
            web.request("PUT", "/v1/alerts/other", ALERT)
            web.request("PUT", "/v1/patterns/other", PATTERN)
            web.request("PUT", "/v1/subscriptions/jobs.a@other", OTHER)
            answer = who.request(*asked)
            if expected:
                found = answer.status in (200, 201) or (operation == "ask_review" and answer.code == "lease_lost")
                assert found, (operation, answer.raw)
            else:
                hidden = answer.status in (403, 404) or (answer.status == 200 and _shows_nothing(operation, answer))
                assert hidden, (operation, permission, answer.status, answer.raw)
        web.post("/v1/queues/jobs.a/resume")


def test_without_a_key_every_route_is_closed(web: Web, filled: dict[str, str]) -> None:
    nobody = web.as_key(None)
    for operation, (_, method, path, body) in NEEDS.items():
        answer = nobody.request(method, _fill(path, filled), _fill(body, filled))
        assert (answer.status, answer.code) == (401, "unauthorized"), operation
        assert answer.headers["www-authenticate"] == "Bearer"
    assert nobody.get("/v1/me").status == 401


ELSEWHERE = {
    "publish_flow",
    "publish", "publish_many", "claim", "get_config", "put_config", "reset_config", "resume", "drain", "close",
    "put_schedule", "atomic", "check", "spark_queue", "spark_changes", "spark_place", "create_key", "config_sources",
    "put_schema", "delete_schema", "put_rule", "delete_rule",
    "put_subscription", "delete_subscription", "put_alert", "delete_alert", "list_alerts",
    "export_topology", "apply_topology", "erase", "put_hold", "delete_hold", "put_pattern", "delete_pattern",
    "has_webhook_secret", "put_webhook_secret",
}  # fmt: skip
"""Asked from another tenant they are about that tenant's own queue, schedule or key, whatever its name."""


def test_an_admin_of_another_tenant_reaches_nothing_of_this_one(web: Web, filled: dict[str, str]) -> None:
    """Every operation, as the admin of another tenant: nothing is shown, and nothing of this tenant is changed."""
    other = web.as_key(web.as_key(web.headers["authorization"][7:], **{"tampu-tenant": "other"}).key("admin"))
    assert other.get("/v1/me").json["tenant"] == "other"
    before = _all_of(web, filled)
    for operation, (_, method, path, body) in NEEDS.items():
        if operation not in ELSEWHERE:
            answer = other.request(method, _fill(path, filled), _fill(body, filled))
            hidden = answer.status == 404 and answer.code == "not_found"
            assert hidden or _shows_nothing(operation, answer), (operation, answer.status, answer.raw)
    for operation in sorted(ELSEWHERE):
        _, method, path, body = NEEDS[operation]
        answer = other.request(method, _fill(path, filled), _fill(body, filled))
        assert answer.status in (200, 201, 404), (operation, answer.raw)
        assert filled["id"].encode() not in answer.raw, operation
        assert b"jobs.kept" not in answer.raw, operation
    assert other.get("/v1/me", tampu_tenant="default").code == "forbidden"
    assert _all_of(web, filled) == before


def _all_of(web: Web, filled: dict[str, str]) -> list[Any]:
    """What there is of a tenant."""
    paths = (
        "/v1/queues", "/v1/queues/jobs.a/messages", "/v1/messages/{id}", "/v1/messages/{id}/note", CONFIG,
        "/v1/schedules", "/v1/spark/queues/jobs.a", "/v1/queues/jobs.kept/config", "/v1/queues/jobs.kept/messages",
    )  # fmt: skip
    answers = [web.get(_fill(path, filled)).json for path in paths]
    job = {"kind": SPARK_JOB["kind"], "name": SPARK_JOB["name"]}
    keys = [(key["id"], key["name"], key.get("rotated_at")) for key in web.get("/v1/keys").json["keys"]]
    moves = web.get("/v1/journal").json["transitions"]
    return [*answers, web.post("/v1/spark/documents", job).json, keys, moves]


def test_a_schedule_takes_operate_and_publish_in_its_queue(web: Web, filled: dict[str, str]) -> None:
    """Else it would publish for somebody who may not."""
    both = web.as_key(web.key("operate,publish:jobs.*"))
    assert both.request("PUT", "/v1/schedules/tick", SCHEDULE).status == 200
    assert both.post("/v1/schedules/tick/fire", {}).status == 200
    assert both.request("PUT", "/v1/schedules/new", {**SCHEDULE, "queue": "other.a"}).status == 403
    for grant in ("operate:jobs.*", "publish:jobs.*"):
        one = web.as_key(web.key(grant))
        assert one.request("PUT", "/v1/schedules/new", SCHEDULE).status == 403
        assert one.post("/v1/schedules/tick/fire", {}).status in (403, 404)
    elsewhere = web.as_key(web.key("operate,publish:other.*"))
    assert elsewhere.request("PUT", "/v1/schedules/tick", {**SCHEDULE, "queue": "other.a"}).status == 403
    assert [s["queue"] for s in web.get("/v1/schedules").json["schedules"]] == ["jobs.a"]


def test_settings_of_a_scope_take_the_permission_in_all_its_queues(web: Web) -> None:
    shop = web.as_key(web.key("operate,view:shop.*"))
    assert shop.request("PATCH", "/v1/queues/shop.*/config", {"lease": 5}).status == 200
    assert shop.request("PATCH", "/v1/queues/shop.mail.*/config", {"lease": 5}).status == 200
    assert shop.get("/v1/queues/shop.mail.*/config/sources").json["sources"]["lease"] == "shop.mail.*"
    for scope in ("*", "shopping.*", "sho.*"):
        assert shop.request("PATCH", f"/v1/queues/{scope}/config", {"lease": 5}).status == 403
    one = web.as_key(web.key("operate,view:shop.emails"))
    assert one.request("PATCH", "/v1/queues/shop.*/config", {"lease": 5}).status == 403
    web.post("/v1/queues/shop.emails/messages", {"n": 1})
    web.post("/v1/queues/shop.letters/messages", {"n": 1})
    assert [stats["queue"] for stats in one.get("/v1/stats?scope=shop.*").json["queues"]] == ["shop.emails"]
    assert one.get("/v1/stats?scope=shop").code == "invalid_message"


def test_a_key_cannot_give_what_it_has_not_got(web: Web) -> None:
    some = web.as_key(web.key("admin:jobs.*"))
    assert (
        some.post("/v1/keys", {"name": "k", "grants": [{"permissions": ["view"], "queues": ["jobs.a"]}]}).status == 403
    )
    tenant_admin = web.as_key(web.key("admin"))
    body = {"name": "k", "grants": [{"permissions": ["view"]}], "all_tenants": True}
    assert tenant_admin.post("/v1/keys", body).code == "forbidden"
    assert web.post("/v1/keys", body).status == 201


def test_a_claim_from_several_queues_needs_all_of_them(web: Web) -> None:
    some = web.as_key(web.key("consume:jobs.*"))
    assert some.post("/v1/claim", {"queues": ["jobs.a", "jobs.b"]}).status == 200
    assert some.post("/v1/claim", {"queues": ["jobs.a", "other"]}).code == "forbidden"
    mixed = {"settlements": [{"verb": "ack", "receipt": "jobs.a/1.1"}, {"verb": "ack", "receipt": "other/1.1"}]}
    assert some.post("/v1/settle", mixed).code == "forbidden"


def test_who_sees_some_queues_sees_only_those(web: Web) -> None:
    for queue in ("jobs.a", "jobs.b", "other"):
        web.post(f"/v1/queues/{queue}/messages", {"n": 1})
    some = web.as_key(web.key("view:jobs.*"))
    assert some.get("/v1/queues").json["queues"] == ["jobs.a", "jobs.b"]
    assert [row["queue"] for row in some.get("/v1/stats").json["queues"]] == ["jobs.a", "jobs.b"]
    assert {t["queue"] for t in some.get("/v1/journal").json["transitions"]} == {"jobs.a", "jobs.b"}
    assert some.get("/v1/queues/*/config").status == 403


def test_where_each_queue_has_a_part_of_the_journal_the_names_of_others_are_not_shown(start: Start) -> None:
    node = start(url=redis.redis.url())
    web = Web(node.url, node.token)
    rival = web.as_key(node.token, **{"tampu-tenant": "rival"})
    for _ in range(3):
        web.post("/v1/queues/secret/messages", {"n": 1})
        web.post("/v1/queues/jobs/messages", {"n": 1})
    rival.post("/v1/queues/theirs/messages", {"n": 1})
    some = web.as_key(web.key("view:jobs"))
    first = some.get("/v1/journal?limit=2").json
    assert [t["queue"] for t in first["transitions"]] == ["jobs"] * 2, "others do not fill the page"
    assert (first["position"], first["latest"]) == ({"default/jobs": 2}, {"default/jobs": 3})
    after = "&".join(f"after={p}={offset}" for p, offset in first["position"].items())
    rest = some.get(f"/v1/journal?{after}").json
    assert ([t["queue"] for t in rest["transitions"]], rest["position"]) == (["jobs"], {"default/jobs": 3})
    assert (
        some.get("/v1/journal?after=rival/theirs=0&after=default/secret=0&limit=9").json["position"] == rest["position"]
    )

    def status(of: Web, partition: str) -> int:
        return of.get(f"/v1/spark/journal?partition={partition}&after=0&upto=1").status

    assert status(some, "default/jobs") == status(web, "rival/theirs") == 200
    assert {status(some, name) for name in ("rival/theirs", "rival/none", "default/secret", "default/none")} == {404}
