"""Followers over HTTP: listed, resumed and removed by keys of all tenants, and by no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest

from tampu.broker import followers
from tampu.broker.followers import Effects
from tampu.maintenance import follower as follower_module
from tampu.model.journal import Transition
from tests.conformance.harness import until
from tests.server.conftest import Start
from tests.server.web import Web


class Refusing:
    """Fails until it is mended."""

    name = "refusing"

    def __init__(self) -> None:
        self.broken = True
        self.seen: list[str] = []

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        if self.broken:
            raise ValueError("no such address")
        self.seen += [moved.id for moved in transitions]


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusing]:
    monkeypatch.setattr(follower_module, "ATTEMPTS", 1)
    handler = Refusing()
    with followers.registered(handler):
        yield handler


def listed(web: Web) -> Any:
    (found,) = web.get("/v1/followers").json["followers"]
    return found


def test_a_parked_follower_is_listed_and_resumed(refusing: Refusing, start: Start) -> None:
    node = start()
    web = Web(node.url, node.token)
    id = web.post("/v1/queues/jobs/messages", {"n": 1}).json["id"]
    until(lambda: listed(web)["status"] == "parked")
    found = listed(web)
    assert (found["name"], found["behind"], found["attempts"], found["retry_at"]) == ("refusing", 1, 1, None)
    assert found["error"] == "ValueError: no such address"
    assert datetime.fromisoformat(found["moved_at"]).tzinfo is not None
    refusing.broken = False
    assert web.post("/v1/followers/refusing/resume").json == {**found, "status": "active", "error": None, "attempts": 0}
    until(lambda: refusing.seen == [id])
    until(lambda: listed(web)["behind"] == 0)


def test_a_follower_is_removed(web: Web) -> None:
    assert web.get("/v1/followers").json == {"followers": []}
    assert web.post("/v1/followers/gone/resume").code == "not_found"
    assert web.request("DELETE", "/v1/followers/gone").json == {"deleted": False}
    assert web.request("DELETE", "/v1/followers/no%20name").code == "invalid_message"


def test_followers_are_only_for_keys_of_all_tenants(web: Web) -> None:
    routes = (("GET", ""), ("POST", "/x/resume"), ("DELETE", "/x"))
    for grant in ("admin", "view", "operate"):
        of_a_tenant = web.as_key(web.key(grant))
        assert [of_a_tenant.request(method, f"/v1/followers{path}").status for method, path in routes] == [403] * 3
    viewer = web.as_key(web.key("view", all_tenants=True))
    assert [viewer.request(method, f"/v1/followers{path}").status for method, path in routes] == [200, 403, 403]
    assert web.as_key(web.key("view:jobs.*", all_tenants=True)).get("/v1/followers").status == 403


def test_agents_are_only_for_keys_of_all_tenants(web: Web) -> None:
    routes = (("GET", ""), ("GET", "/expiry"), *(("POST", f"/expiry/{verb}") for verb in ("run", "pause", "resume")))
    for grant in ("admin", "view", "operate"):
        of_a_tenant = web.as_key(web.key(grant))
        assert {of_a_tenant.request(method, f"/v1/agents{path}").status for method, path in routes} == {403}
    for grant, allowed in (("view", 2), ("operate", 0), ("admin", 5)):
        found = web.as_key(web.key(grant, all_tenants=True))
        answers = [found.request(method, f"/v1/agents{path}").status for method, path in routes]
        assert answers == [200] * allowed + [403] * (5 - allowed)
    assert web.get("/v1/agents/nothing").code == "not_found"
    assert web.get("/v1/agents").json["agents"][0]["name"] == "expiry"
