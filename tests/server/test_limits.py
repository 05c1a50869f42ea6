"""Rates: shared by all nodes, a batch costs its size, and the headers tell how much is left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import tampu
from tampu.server import limits
from tampu.server.auth.bearer import Bearer, Claims
from tampu.server.auth.grants import FULL, Caller
from tests.conformance.harness import FakeClock, until
from tests.server.conftest import Start
from tests.server.web import Answer, Web


@pytest.fixture(autouse=True)
def _slices_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly the requests of a test come, none of the tokens that a node has taken are lost to it."""
    monkeypatch.setattr(limits, "_KEEP_SECONDS", 3600)


def _batch(n: int) -> dict[str, object]:
    return {"messages": [{"payload": i} for i in range(n)]}


def _room(answer: Answer) -> tuple[str, ...]:
    """What is said of the limit: (limit, remaining, reset)"""
    return tuple(answer.headers[f"ratelimit-{name}"] for name in ("limit", "remaining", "reset"))


def test_nodes_together_give_out_no_more_than_the_rate(start: Start, tmp_path: Path) -> None:
    clock = FakeClock()
    nodes = [start(url=str(tmp_path / "jobs.db"), clock=clock) for _ in range(2)]
    admin = Web(nodes[0].url, nodes[0].token)
    token = admin.key("publish", rate=10, burst=20)
    webs = [Web(node.url, token) for node in nodes]
    through = [0, 0]
    for n in range(60):
        through[n % 2] += webs[n % 2].post("/v1/queues/jobs/messages", {"n": n}).status == 201
    assert sum(through) <= 20
    assert sum(through) >= 20 - 2 * 5, "less by at most a slice for each node"
    clock.advance(1)
    again = sum(webs[0].post("/v1/queues/jobs/messages", {"n": n}).status == 201 for n in range(30))
    assert 5 <= again <= 15


def test_a_batch_costs_its_size_and_is_refused_whole(start: Start) -> None:
    node = start(clock=FakeClock(), key_rate=10, key_burst=10)
    web = Web(node.url, node.token)
    first = web.post("/v1/queues/jobs/publish", _batch(8))
    assert first.status == 200
    assert _room(first) == ("10", "2", "0")
    refused = web.post("/v1/queues/jobs/publish", _batch(5))
    assert refused.code == "rate_limited"
    assert int(refused.headers["retry-after"]) >= 1
    assert web.get("/v1/queues/jobs/stats").json["counts"]["ready"] == 8
    assert web.post("/v1/queues/jobs/publish", _batch(11)).code == "rate_limited"


def test_accepted_requests_say_how_much_is_left_of_the_whole_burst(start: Start) -> None:
    node = start(clock=FakeClock())
    admin = Web(node.url, node.token)
    web = admin.as_key(admin.key("publish,consume", rate=2, burst=5))
    left = [web.post("/v1/queues/jobs/messages", {"n": n}).headers["ratelimit-remaining"] for n in range(5)]
    assert left == ["4", "3", "2", "1", "0"], "also of what this node has not taken for itself"


def test_the_tightest_of_several_limits_is_reported(start: Start) -> None:
    node = start(clock=FakeClock(), key_rate=10, key_burst=10, tenant_rate=4, tenant_burst=4)
    web = Web(node.url, node.token)
    assert _room(web.post("/v1/queues/jobs/publish", _batch(3))) == ("4", "1", "0")
    assert _room(web.post("/v1/queues/jobs/publish", _batch(3))) == ("4", "1", "1")


def test_a_refusal_says_which_limit_it_met(start: Start) -> None:
    clock = FakeClock()
    node = start(clock=clock)
    admin = Web(node.url, node.token)
    admin.post("/v1/queues/jobs/publish", _batch(5))
    web = admin.as_key(admin.key("publish,consume,operate", rate=0.1, burst=2))
    assert web.post("/v1/queues/jobs/publish", _batch(2)).status == 200
    refused = [
        web.post("/v1/queues/jobs/messages", {"n": 1}),
        web.post("/v1/claim", {"queues": "jobs"}),
        web.post("/v1/queues/jobs/purge", {"states": ["ready"], "dry_run": True}),  # by the framework
    ]
    assert [answer.code for answer in refused] == ["rate_limited"] * 3
    assert {_room(answer) for answer in refused} == {("2", "0", "10")}
    assert all(int(answer.headers["retry-after"]) >= 10 for answer in refused)
    too_many = web.post("/v1/queues/jobs/publish", _batch(3))
    assert (too_many.code, _room(too_many)) == ("rate_limited", ("2", "0", "10"))
    assert "retry-after" not in too_many.headers, "waiting is of no use"
    clock.advance(20)
    assert _room(web.post("/v1/queues/jobs/publish", _batch(3))) == ("2", "2", "0")


def test_bad_keys_are_refused_with_their_limit(start: Start) -> None:
    node = start(login_attempts=1)
    nobody = Web(node.url, "nonsense")
    assert nobody.get("/v1/me").status == 401
    refused = nobody.get("/v1/me")
    assert refused.code == "rate_limited"
    limit, left, reset = _room(refused)
    assert (limit, left) == ("1", "0")
    assert 0 < int(reset) <= 60


def test_a_full_queue_is_429_with_a_time_to_come_back(start: Start) -> None:
    node = start()
    web = Web(node.url, node.token)
    web.request("PATCH", "/v1/queues/jobs/config", {"max_depth": 1})
    assert web.post("/v1/queues/jobs/messages", {"n": 1}).status == 201
    for path, body in (("messages", {"n": 2}), ("publish", _batch(2))):
        full = web.post(f"/v1/queues/jobs/{path}", body)
        assert (full.status, full.code) == (429, "queue_full")
        assert int(full.headers["retry-after"]) >= 1


@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "tasks"])
def test_the_client_raises_queue_full_and_rate_limited_and_asks_no_second_time(
    start: Start, asynchronous: bool
) -> None:
    node = start(clock=FakeClock())
    admin = Web(node.url, node.token)
    admin.request("PATCH", "/v1/queues/jobs/config", {"max_depth": 1})
    limited = admin.key("publish", rate=1, burst=1)

    def publish(token: str, queue: str) -> None:
        async def go() -> None:
            async with tampu.open_async(node.url, token=token) as store:
                await store.publish(queue, 1)

        if asynchronous:
            asyncio.run(go())
        else:
            with tampu.open(node.url, token=token) as store:
                store.publish(queue, 1)

    def refusals() -> int:
        counts = node.state.metrics.requests.of
        return sum(count for (route, status), count in counts.items() if "queue" in route and status == "429")

    assert admin.post("/v1/queues/jobs/messages", {"n": 1}).status == 201
    with pytest.raises(tampu.QueueFull):
        publish(node.token, "jobs")
    until(lambda: refusals() == 1)  # a request is counted when its answer has gone
    assert admin.as_key(limited).post("/v1/queues/other/messages", {"n": 1}).status == 201
    with pytest.raises(tampu.RateLimited) as refused:
        publish(limited, "other")
    assert refused.value.retry_after is not None
    assert refused.value.retry_after > 0
    until(lambda: refusals() == 2)


def test_the_keys_of_a_tenant_share_its_rate(start: Start) -> None:
    node = start(clock=FakeClock(), tenant_rate=4, tenant_burst=4)
    admin = Web(node.url, node.token)
    webs = [admin.as_key(admin.key("publish")) for _ in range(2)]
    through = sum(webs[n % 2].post("/v1/queues/jobs/messages", {"n": n}).status == 201 for n in range(10))
    assert through == 4
    other = admin.as_key(node.token, **{"tampu-tenant": "other"})
    assert other.post("/v1/queues/jobs/messages", {"n": 1}).status == 201


def test_a_claim_costs_what_it_hands_out(start: Start) -> None:
    clock = FakeClock()
    node = start(clock=clock)
    admin = Web(node.url, node.token)
    admin.post("/v1/queues/jobs/publish", _batch(50))
    web = admin.as_key(admin.key("consume", rate=10, burst=10))
    first = web.post("/v1/claim", {"queues": "jobs", "limit": 50})
    assert len(first.json["leases"]) == 10, "no more at once than the burst"
    assert first.headers["ratelimit-remaining"] == "0"
    assert web.post("/v1/claim", {"queues": "jobs"}).code == "rate_limited"
    clock.advance(0.5)
    assert len(web.post("/v1/claim", {"queues": "jobs", "limit": 50}).json["leases"]) == 10
    refused = web.post("/v1/claim", {"queues": "jobs"})
    assert refused.code == "rate_limited", "it is in debt now"
    clock.advance(0.5)
    assert web.post("/v1/claim", {"queues": "jobs"}).code == "rate_limited"
    clock.advance(0.2)
    assert len(web.post("/v1/claim", {"queues": "jobs"}).json["leases"]) == 1
    clock.advance(10)
    assert web.post("/v1/claim", {"queues": "empty", "limit": 10}).json["leases"] == []
    assert len(web.post("/v1/claim", {"queues": "jobs", "limit": 9}).json["leases"]) == 9, "nothing costs one"


@pytest.mark.parametrize("verb", ["cancel", "free", "replay", "purge"])
def test_moving_messages_costs_as_publishing_them_does(start: Start, verb: str) -> None:
    clock = FakeClock()
    node = start(clock=clock)
    admin = Web(node.url, node.token)
    admin.post("/v1/queues/jobs/publish", _batch(50))
    if verb == "replay":
        leases = admin.post("/v1/claim", {"queues": "jobs", "limit": 50}).json["leases"]
        admin.post("/v1/settle", {"settlements": [{"verb": "reject", "receipt": one["receipt"]} for one in leases]})
    ids = [m["id"] for m in admin.get("/v1/queues/jobs/messages").json["messages"]]
    web = admin.as_key(admin.key("operate", rate=10, burst=20))
    if verb in ("cancel", "free"):
        assert web.post(f"/v1/messages/{verb}", {"ids": ids}).code == "rate_limited"
        assert web.post(f"/v1/messages/{verb}", {"ids": ids[:20]}).headers["ratelimit-remaining"] == "0"
        assert web.post(f"/v1/messages/{verb}", {"ids": ids[20:21]}).code == "rate_limited"
        return
    body: dict[str, object] = {"states": ["ready"]} if verb == "purge" else {"where": {}}
    path = f"/v1/queues/jobs/{verb}"
    careful = admin.as_key(admin.key("operate", rate=1, burst=3))
    previews = [careful.post(path, {**body, "dry_run": True}).status for _ in range(4)]
    assert previews == [200, 200, 200, 429], "a preview costs one"
    assert web.post(path, body).status == 200
    assert web.post(path, body).code == "rate_limited"
    clock.advance(2)
    assert web.post(path, body).status == 200, "no more than a burst is owed"


def test_a_debt_is_one_on_every_node(start: Start, tmp_path: Path) -> None:
    clock = FakeClock()
    nodes = [start(url=str(tmp_path / "jobs.db"), clock=clock) for _ in range(2)]
    admin = Web(nodes[0].url, nodes[0].token)
    admin.post("/v1/queues/jobs/publish", _batch(50))
    token = admin.key("consume", rate=1, burst=20)
    here, there = (Web(node.url, token) for node in nodes)
    assert len(here.post("/v1/claim", {"queues": "jobs", "limit": 20}).json["leases"]) == 20
    assert there.post("/v1/claim", {"queues": "jobs"}).code == "rate_limited"


def test_a_stream_costs_what_it_pushes(start: Start) -> None:
    node = start(clock=FakeClock())
    admin = Web(node.url, node.token)
    admin.post("/v1/queues/jobs/publish", _batch(50))
    with (
        tampu.open(node.url, token=admin.key("consume", rate=1, burst=8)) as store,
        store.stream("jobs", credit=50) as stream,
    ):
        came = [stream.next(60) for _ in range(8)]
        assert all(lease is not None for lease in came)
        until(
            lambda: node.state.limits._slices != {} and all(s.tokens <= 0 for s in node.state.limits._slices.values())
        )
        assert stream.next(0.2) is None


def test_callers_with_a_token_have_a_rate_of_their_own(start: Start) -> None:
    """As keys have: by the subject, so that a new token is no new bucket."""
    node = start(clock=FakeClock(), key_rate=3, key_burst=3)
    claims = Claims("default", FULL)

    def through(subject: str) -> int:
        async def go() -> int:
            count = 0
            for _ in range(5):
                try:
                    await node.state.limits.take(Bearer(claims, subject, time.monotonic() + 60).as_tenant("default"), 1)
                    count += 1
                except tampu.RateLimited:
                    return count
            return count

        return asyncio.run(go())

    assert through("ada") == 3
    assert through("ada") == 0
    assert through("grace") == 3


def test_a_burst_that_changes_counts_from_the_next_request_on(start: Start) -> None:
    limits_of_node = start(clock=FakeClock()).state.limits

    def take(cost: int, *, burst: int) -> int:
        caller = Caller("default", "ada", FULL, bucket="key.ada", rate=10, burst=burst)
        return asyncio.run(limits_of_node.take(caller, cost)).limit

    assert take(1, burst=4) == 4
    with pytest.raises(tampu.RateLimited, match="the limit is 4"):
        take(5, burst=4)
    assert take(1, burst=20) == 20
    with pytest.raises(tampu.RateLimited, match="the limit is 20"):
        take(21, burst=20)
    with pytest.raises(tampu.RateLimited, match="the limit is 2"):
        take(3, burst=2)
