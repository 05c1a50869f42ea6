"""What a node tells Prometheus and load balancers."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import tampu
from tampu.broker import followers, journal_readers
from tampu.broker.followers import Effects
from tampu.broker.policies.alerts.state import AlertState, Since, saving
from tampu.engines.sqlite import SqliteEngine
from tampu.maintenance import follower
from tampu.model.journal import Transition
from tampu.model.reasons import DEAD_LETTER_REASONS
from tampu.server.metrics import registry
from tests.conformance.harness import until
from tests.server.conftest import Start
from tests.server.web import Web
from tests.servers.http import Stall

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scrape:
    """One reading of /metrics."""

    def __init__(self, web: Web) -> None:
        self.text = web.as_key(None).get("/metrics").raw.decode()
        families = list(text_string_to_metric_families(self.text))
        self.names = {family.name for family in families}
        self._samples = [sample for family in families for sample in family.samples]

    def of(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels."""
        return sum(s.value for s in self._samples if s.name == name and labels.items() <= s.labels.items())

    def values(self, name: str, label: str) -> set[str]:
        return {s.labels[label] for s in self._samples if s.name == name}


def _work(web: Web, queue: str, verb: str, **more: Any) -> None:
    (lease,) = web.post("/v1/claim", {"queues": queue}).json["leases"]
    answer = web.post("/v1/settle", {"settlements": [{"verb": verb, "receipt": lease["receipt"], **more}]})
    assert "error" not in answer.json["outcomes"][0], answer.json


def test_everything_that_is_promised_is_measured(web: Web) -> None:
    web.post("/v1/queues/jobs/messages", {"n": 1})
    _work(web, "jobs", "ack")
    assert Scrape(web).names >= {
        "tampu_messages",  # depth
        "tampu_oldest_ready_seconds",
        "tampu_published", "tampu_claimed", "tampu_settled",  # rates
        "tampu_wait_seconds", "tampu_work_seconds",  # publish, claim, settle
        "tampu_retries",
        "tampu_dead_letters",
        "tampu_commit_calls", "tampu_commit_seconds",  # the coalescer
        "tampu_maintenance_lag_seconds", "tampu_maintenance_leader", "tampu_maintenance_idle_seconds",
        "tampu_follower_lag", "tampu_follower_parked", "tampu_alert_firing",
        "tampu_durability",
        "tampu_http_requests", "tampu_http_seconds", "tampu_refused",
        "tampu_long_polls", "tampu_event_streams", "tampu_worker_streams",
    }  # fmt: skip


def test_messages_are_counted_on_their_way(web: Web) -> None:
    for n in range(3):
        web.post("/v1/queues/jobs/messages", {"n": n})
    web.post("/v1/queues/other/publish", {"messages": [{"payload": 1}, {"payload": 2}]})
    _work(web, "jobs", "ack")
    _work(web, "jobs", "release")
    seen = Scrape(web)
    assert (seen.of("tampu_published_total", queue="jobs"), seen.of("tampu_published_total", queue="other")) == (3, 2)
    assert seen.of("tampu_claimed_total", tenant="default", queue="jobs") == 2
    assert seen.of("tampu_settled_total", queue="jobs", verb="ack", outcome="done") == 1
    assert seen.of("tampu_settled_total", queue="jobs", verb="release", outcome="ready") == 1
    assert seen.of("tampu_wait_seconds_count") == 2
    assert seen.of("tampu_work_seconds_count") == 2
    assert seen.of("tampu_commit_calls_count") == seen.of("tampu_commit_seconds_count") >= 6
    assert seen.of("tampu_commit_calls_sum") >= seen.of("tampu_commit_calls_count")
    assert seen.of("tampu_messages", queue="jobs", state="ready") == 2
    assert seen.of("tampu_durability", mode="memory") == 1
    assert seen.of("tampu_http_requests_total", route="/v1/queues/{queue}/messages", status="201") == 3


def test_retries_and_dead_letters_are_counted_by_a_bounded_reason(web: Web) -> None:
    for _ in range(4):
        web.post("/v1/queues/jobs/messages?max_attempts=2", {"n": 1})
    _work(web, "jobs", "nack", error="boom", delay=0)
    web.post("/v1/queues/jobs/purge", {"states": ["delayed"]})
    _work(web, "jobs", "reject", reason="schema_invalid")
    _work(web, "jobs", "reject")
    for n in range(3):
        web.post("/v1/queues/own/messages", {"n": n})
        _work(web, "own", "reject", reason=f"customer-{n}")
    web.post("/v1/queues/last/messages?max_attempts=1", {"n": 1})
    _work(web, "last", "nack")
    seen = Scrape(web)
    assert seen.of("tampu_retries_total", queue="jobs", cause="nack") == 1
    assert seen.values("tampu_dead_letters_total", "reason") <= DEAD_LETTER_REASONS | {"other"}
    assert seen.of("tampu_dead_letters_total", reason="schema_invalid") == 1
    assert seen.of("tampu_dead_letters_total", reason="unrecoverable") == 1
    assert seen.of("tampu_dead_letters_total", queue="own", reason="other") == 3
    assert seen.of("tampu_dead_letters_total", queue="last", reason="retries_exhausted") == 1


def test_reasons_of_the_worker_are_counted_by_their_names(start: Start) -> None:
    node = start()
    web = Web(node.url, node.token)
    app = tampu.App(node.url, token=node.token)

    @app.task
    def odd(n: int) -> object:
        if n == 1:
            raise tampu.Reject("customer-17")
        if n == 2:
            raise tampu.Reject
        return object()

    with app.store as store:
        ids = [store.publish("default", {"n": n}, type=odd.name).id for n in ("x", 0, 1, 2)]
        ids += [store.publish("default", {}, type="unheard.of").id]
        with tampu.working(app, unknown="reject"):
            given = [store.result(id, wait=60).reason for id in ids]
    assert given == ["decode_failed", "result_invalid", "customer-17", "unrecoverable", "unknown_task"]
    seen = Scrape(web)
    expected = {"decode_failed", "result_invalid", "other", "unrecoverable", "unknown_task"}
    assert seen.values("tampu_dead_letters_total", "reason") == expected
    assert all(seen.of("tampu_dead_letters_total", reason=reason) == 1 for reason in expected)


def test_a_cancelled_message_is_neither_retried_nor_dead(web: Web) -> None:
    web.post("/v1/queues/jobs/messages", {"n": 1})
    (lease,) = web.post("/v1/claim", {"queues": "jobs"}).json["leases"]
    web.post("/v1/messages/cancel", {"ids": [lease["message"]["id"]]})
    answer = web.post("/v1/settle", {"settlements": [{"verb": "nack", "receipt": lease["receipt"]}]})
    assert answer.json["outcomes"][0]["state"] == "cancelled"
    seen = Scrape(web)
    assert (seen.of("tampu_retries_total"), seen.of("tampu_dead_letters_total")) == (0, 0)


def test_leases_that_ran_out_are_counted_too(web: Web) -> None:
    web.post("/v1/queues/jobs/messages", {"n": 1})
    web.post("/v1/queues/jobs/messages?max_attempts=1", {"n": 2})
    assert len(web.post("/v1/claim", {"queues": "jobs", "limit": 2, "lease": 0.05}).json["leases"]) == 2
    until(lambda: Scrape(web).of("tampu_dead_letters_total", queue="jobs", reason="lease_expired") == 1)
    until(lambda: Scrape(web).of("tampu_retries_total", queue="jobs", cause="lease_expired") == 1)


def test_labels_stay_few_however_many_names_are_asked_for(web: Web, monkeypatch: Any) -> None:
    monkeypatch.setattr(registry, "MOST_QUEUES", 3)
    for n in range(20):
        web.as_key(None).get(f"/v1/nowhere/{n}")
        web.post(f"/v1/queues/q{n}/messages", {"n": n})
    seen = Scrape(web)
    assert "/v1/nowhere" not in seen.text
    assert seen.values("tampu_published_total", "queue") == {"q0", "q1", "q2", "other"}
    assert seen.of("tampu_published_total", tenant="other", queue="other") == 17


def test_leases_that_are_never_settled_here_are_forgotten(web: Web, stall: Stall, monkeypatch: Any) -> None:
    monkeypatch.setattr(registry, "MOST_OPEN", 5)
    web.post("/v1/queues/jobs/publish", {"messages": [{"payload": n} for n in range(20)]})
    leases = web.post("/v1/claim", {"queues": "jobs", "limit": 20}).json["leases"]
    assert len(stall.state.metrics._open) == 5
    web.post("/v1/settle", {"settlements": [{"verb": "ack", "receipt": lease["receipt"]} for lease in leases]})
    assert Scrape(web).of("tampu_work_seconds_count") == 5


class Failing:
    name = "failing"

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        raise ValueError("not today")


def test_a_follower_that_is_behind_and_parked_shows(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "ATTEMPTS", 1)
    node = start(maintenance=False)
    web = Web(node.url, node.token)
    with followers.registered(Failing()):
        following = follower.Follower(node.core)
        following.turn()
        web.post("/v1/queues/jobs/messages", {"n": 1})
        seen = Scrape(web)
        assert (seen.of("tampu_follower_lag", follower="failing"), seen.of("tampu_follower_parked")) == (1, 0)
        following.turn()
        assert Scrape(web).of("tampu_follower_parked", follower="failing") == 1
        ((_, _, detail),) = journal_readers.findings(node.core.engine)
        assert detail.startswith("follower:failing is parked, 1 transitions behind: ValueError: not today")
        assert detail.endswith("tampu followers resume failing")


def test_a_lag_of_maintenance_shows(start: Start) -> None:
    node = start(maintenance=False)
    web = Web(node.url, node.token)
    assert Scrape(web).of("tampu_maintenance_lag_seconds") == 0
    web.post("/v1/queues/jobs/messages?delay=0.01", {"n": 1})
    until(lambda: Scrape(web).of("tampu_maintenance_lag_seconds") > 0)
    assert "tampu_maintenance_leader" not in Scrape(web).names, "this node has none"


def test_metrics_need_a_key_away_from_loopback(start: Start) -> None:
    node = start(host="0.0.0.0")
    assert Web(node.url).get("/metrics").status == 401
    assert Web(node.url, node.token).get("/metrics").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_proto": "https"}, {"x_forwarded_for": "203.0.113.7"}, {"forwarded": "for=203.0.113.7"},
        {"via": "1.1 proxy"}, {"x_real_ip": "203.0.113.7"}, {"host": "queues.example"}, {"host": "a@localhost"},
        {"host": "localhost@queues.example"}, {"host": "localhost/x"}, {"host": "localhost:80:80"}, {"host": ""},
    ],
    ids=str,
)  # fmt: skip
def test_metrics_need_a_key_behind_a_proxy_whatever_host_says(start: Start, headers: dict[str, str]) -> None:
    node = start()
    given = {"host": "localhost", **headers}
    assert Web(node.url).get("/metrics").status == 200
    assert Web(node.url).get("/metrics", **given).status == 401
    assert Web(node.url, node.token).get("/metrics", **given).status == 200
    nobody = Web(start(auth=False).url)
    assert nobody.get("/v1/queues", **given).code == "forbidden", "nor is a server without auth open"
    assert nobody.get("/v1/queues", host="localhost").status == 200


# -- health and ready


def test_a_node_that_can_work_is_ready(web: Web, stall: Stall) -> None:
    nobody = web.as_key(None)
    assert nobody.get("/health").json == {"status": "ok"}
    until(lambda: nobody.get("/ready").status == 200)
    assert nobody.get("/ready").json == {
        "ready": True, "durability": "memory", "schema": stall.core.engine.schema, "atomic": "isolated",
        "checks": [],
    }  # fmt: skip


def test_a_node_with_a_full_disk_stays_ready_and_says_so(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers must still reach it: they make room."""
    until(lambda: web.get("/ready").status == 200)
    monkeypatch.setattr(SqliteEngine, "is_full", lambda _: True)
    ready = web.get("/ready")
    assert (ready.status, ready.json["ready"]) == (200, True)
    assert [(check["what"], check["level"]) for check in ready.json["checks"]] == [("space", "warn")]


def test_a_node_is_not_ready_without_its_store_or_its_maintenance(web: Web, stall: Stall, monkeypatch: Any) -> None:
    nobody = web.as_key(None)
    until(lambda: nobody.get("/ready").status == 200)
    maintenance: Any = stall.core.maintenance
    stuck = threading.Event()
    monkeypatch.setattr(maintenance, "_turn", lambda: stuck.wait(60) and 1.0)
    monkeypatch.setattr("tampu.server.server_state.STALE_SECONDS", 0.0)
    answer = nobody.get("/ready")
    assert (answer.status, [check["what"] for check in answer.json["checks"]]) == (503, ["maintenance"])
    monkeypatch.undo()
    stuck.set()
    stall.core.engine.close()
    answer = nobody.get("/ready")
    assert answer.status == 503
    assert re.search("cannot be reached", answer.json["checks"][0]["note"])


def _queues_shown(web: Web, **headers: str) -> set[tuple[str, str]]:
    """(tenant, queue) of every row that names one."""
    answer = web.get("/metrics", **headers)
    assert answer.status == 200, answer.raw
    families = text_string_to_metric_families(answer.raw.decode())
    return {(s.labels["tenant"], s.labels["queue"]) for f in families for s in f.samples if "tenant" in s.labels}


def test_a_key_sees_the_queues_it_may_view(start: Start) -> None:
    node = start(host="0.0.0.0")
    admin = Web(node.url, node.token)
    rival = admin.as_key(node.token, **{"tampu-tenant": "rival"})
    for web, queue in ((admin, "orders.new"), (admin, "mail"), (rival, "orders.secret")):
        web.post(f"/v1/queues/{queue}/messages", {"n": 1})
        _work(web, queue, "nack")
    assert _queues_shown(admin) == {("default", "orders.new"), ("default", "mail"), ("rival", "orders.secret")}
    assert _queues_shown(admin.as_key(rival.key("view"))) == {("rival", "orders.secret")}
    some = admin.as_key(admin.key("view:orders.*"))
    assert _queues_shown(some) == {("default", "orders.new")}
    assert "tampu_commit_calls_count" in some.get("/metrics").raw.decode()
    assert _queues_shown(admin.as_key(admin.key("view:orders.*", all_tenants=True))) == {("default", "orders.new")}
    assert admin.as_key(admin.key("publish")).get("/metrics").code == "forbidden"
    assert admin.as_key(None).get("/metrics").code == "unauthorized"


def test_without_a_key_metrics_are_for_this_machine_not_for_who_comes_over_a_proxy_on_it(web: Web) -> None:
    web.post("/v1/queues/jobs/messages", {"n": 1})
    nobody = web.as_key(None)
    assert _queues_shown(nobody) == _queues_shown(nobody, host="localhost:8400") == {("default", "jobs")}
    assert nobody.get("/metrics", host="queues.example").code == "unauthorized"
    assert _queues_shown(web, host="queues.example") == {("default", "jobs")}


def test_the_proxy_of_the_example_passes_no_metrics_on() -> None:
    example = (Path(__file__).parents[2] / "docs" / "how-to" / "serve.md").read_text()
    assert "location = /metrics { deny all; }" in example


def test_alerts_that_fire_show_in_their_tenant(start: Start) -> None:
    node = start()
    web = Web(node.url, node.token)
    web.post("/v1/queues/jobs/messages", {"n": 1})
    state = AlertState({"jobs": Since(1, 70.0), "shop": Since(1, 80.0)}, 1)
    node.core.do(saving("default", "old", state, 0))
    assert Scrape(web).of("tampu_alert_firing", tenant="default", alert="old") == 2
    assert [one["target"] for one in web.get("/v1/alerts/status").json["firing"]] == ["jobs", "shop"]
    viewer = web.as_key(web.key("view:jobs"))
    assert [one["target"] for one in viewer.get("/v1/alerts/status").json["firing"]] == ["jobs"]
    assert "tampu_alert_firing{" not in viewer.get("/metrics", x_forwarded_for="203.0.113.7").raw.decode()
    lag = {"measure": "lag", "above": 60}
    assert web.as_key(web.key("admin")).request("PUT", "/v1/alerts/lag", lag).code == "forbidden"
    assert web.request("PUT", "/v1/alerts/lag", lag).status == 200
