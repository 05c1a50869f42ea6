"""Who may do what: the same keys, tenants and permissions as over HTTP, and only the tools that a key may use."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import tampu
from tests.mcp_server.clients import over_http, over_stdio
from tests.mcp_server.walk import prepare
from tests.server.conftest import Start
from tests.server.web import Web
from tests.servers.http import Stall

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
BOTH = "application/json, text/event-stream"


def test_a_key_sees_only_the_tools_that_it_may_use_and_the_others_are_refused(stall: Stall, web: Web) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        prepare(store)

    async def run() -> None:
        async with over_http(stall.url, web.key("view:emails")) as tools:
            names = set(await tools.names())
            assert {"overview", "list_messages", "explain_failure", "trace"} <= names
            assert names.isdisjoint({"publish", "replay_dead", "purge_queue", "list_audit", "list_agents", "insights"})
            for one in (await tools.client.list_tools()).tools:
                assert one.annotations is not None
                assert one.annotations.read_only_hint, one.name
            assert [one["queue"] for one in (await tools("list_queues"))["queues"]] == ["emails"]
            assert [str(one.uri) for one in (await tools.client.list_resources()).resources] == [
                "tampu://queues/emails"
            ]
            refused = await tools.error("purge_queue", queue="emails", states=["dead"])
            assert (refused["code"], refused["hint"]) == ("forbidden", "use a key with the permission operate")
            assert (await tools.error("list_messages", queue="loans"))["code"] == "forbidden"
            assert (await tools("list_reviews"))["reviews"] == []
        async with over_http(stall.url, web.key("publish:emails")) as tools:
            assert await tools.names() == ["publish"]
            assert (await tools("publish", queue="emails", payload=1))["state"] == "ready"
            assert (await tools.error("publish", queue="loans", payload=1))["code"] == "forbidden"
            assert (await tools.client.list_resources()).resources == []
            assert (await tools.client.list_prompts()).prompts == []
        async with over_http(stall.url, web.key("operate,view:emails")) as tools:
            assert (await tools.error("change_settings", queue="loans", settings={"max_attempts": 3}))[
                "code"
            ] == "forbidden"
            assert (await tools.error("change_settings", queue="*", settings={"max_attempts": 3}))[
                "code"
            ] == "forbidden"
            seen = (await tools("purge_dead", queue="*"))["preview"]
            assert seen["queues"] == {"emails": 2}

    asyncio.run(run())


def test_destructive_tools_say_so_and_have_two_steps(stall: Stall) -> None:
    async def run() -> None:
        async with over_http(stall.url, stall.token) as tools:
            listed = {one.name: one for one in (await tools.client.list_tools()).tools}
            destructive = {name for name, one in listed.items() if one.annotations and one.annotations.destructive_hint}
            assert destructive == {
                "replay_dead", "purge_dead", "purge_queue", "cancel_messages", "change_settings", "put_schedule",
                "delete_schedule", "decide_review",
            }  # fmt: skip
            for name, one in listed.items():
                assert ("confirm" in one.input_schema["properties"]) is (name in destructive), name
                assert one.input_schema["type"] == "object", name
                assert one.input_schema["additionalProperties"] is False, name
                assert one.description, name

    asyncio.run(run())


def test_another_tenant_is_out_of_reach(stall: Stall, web: Web) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        ids = prepare(store)
    theirs = web.as_key(stall.token, **{"tampu-tenant": "rival"}).key("admin")

    async def run() -> None:
        async with over_http(stall.url, theirs) as tools:
            assert (await tools("list_queues"))["queues"] == []
            assert (await tools("search_messages"))["messages"] == []
            assert (await tools("insights"))["transitions"] == 0
            assert (await tools("list_audit"))["records"] == [] or "emails" not in str(await tools("list_audit"))
            for name in ("get_message", "explain_failure", "trace", "get_review"):
                assert (await tools.error(name, id=ids["bad"]))["code"] == "not_found", name
            assert (await tools.error("replay_dead", ids=[ids["bad"]]))["code"] == "invalid_state"
            assert "list_agents" not in await tools.names()  # they are of all tenants
        with pytest.raises(BaseExceptionGroup):
            async with over_http(stall.url, theirs, tampu_tenant="default") as tools:
                await tools.names()

    asyncio.run(run())


def test_a_key_of_all_tenants_chooses_one_by_header(stall: Stall) -> None:
    with tampu.open(stall.url, token=stall.token, tenant="rival") as store:
        store.publish("theirs", 1)

    async def run() -> None:
        async with over_http(stall.url, stall.token, tampu_tenant="rival") as tools:
            assert [one["queue"] for one in (await tools("list_queues"))["queues"]] == ["theirs"]

    asyncio.run(run())


def test_without_a_valid_key_nothing_is_answered(web: Web) -> None:
    for nobody in (web.as_key(None), web.as_key("tampu_abcdefghijkl_" + "x" * 43)):
        answer = nobody.post("/mcp", INITIALIZE, accept=BOTH)
        assert (answer.status, answer.code) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert web.post("/mcp", INITIALIZE, accept=BOTH).json["result"]["serverInfo"]["name"] == "tampu"


def test_a_revoked_key_is_refused(web: Web) -> None:
    token = web.key("view")
    mine = web.as_key(token)
    assert mine.post("/mcp", INITIALIZE, accept=BOTH).status == 200
    web.request("DELETE", f"/v1/keys/{token.split('_')[1]}")
    until = time.monotonic() + 60
    while mine.post("/mcp", INITIALIZE, accept=BOTH).status != 401:  # nodes look for changes ten times a second
        assert time.monotonic() < until


def test_a_page_of_another_site_cannot_use_it(start: Start, web: Web) -> None:
    answer = web.post("/mcp", INITIALIZE, accept=BOTH, origin="https://evil.example")
    assert (answer.status, answer.code) == (403, "forbidden")
    open_to_all = Web(start(auth=False).url)
    assert open_to_all.post("/mcp", INITIALIZE, accept=BOTH).status == 200
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}, {"sec_fetch_site": "cross-site"}):
        assert open_to_all.post("/mcp", INITIALIZE, accept=BOTH, **headers).status == 403, headers


def test_requests_are_bounded_and_only_posts_are_answered(start: Start) -> None:
    small = start(max_body=10_000)
    web = Web(small.url, small.token)
    answer = web.post("/mcp", b'{"jsonrpc": "' + b"x" * 20_000, accept=BOTH, content_type="application/json")
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert web.post("/mcp", b"{", accept=BOTH, content_type="application/json").status == 400
    for method in ("GET", "DELETE", "PUT"):
        refused = web.request(method, "/mcp")
        assert (refused.status, refused.code) == (405, "method_not_allowed"), method


def test_a_rate_limit_counts_calls(start: Start) -> None:
    slow = start(key_rate=0.01, key_burst=2)
    web = Web(slow.url, slow.token)
    assert [web.post("/mcp", INITIALIZE, accept=BOTH).status for _ in range(3)] == [200, 200, 429]


def test_read_only_offers_no_tool_that_changes_something(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with tampu.open(path, maintenance=False) as store:
        prepare(store)

    async def run() -> None:
        async with over_stdio("--url", str(path), "--read-only") as tools:
            listed = (await tools.client.list_tools()).tools
            assert len(listed) > 15
            assert all(one.annotations and one.annotations.read_only_hint for one in listed)
            assert (await tools.error("publish", queue="emails", payload=1))["code"] == "forbidden"

    asyncio.run(run())


def test_two_nodes_take_the_confirmations_of_each_other(start: Start, tmp_path: Path) -> None:
    url = str(tmp_path / "jobs.db")
    first = start(url=url)
    second = start(url=url, key_file=first.settings.key_file)
    with tampu.open(first.url, token=first.token) as store:
        prepare(store)

    async def run() -> None:
        async with over_http(first.url, first.token) as here, over_http(second.url, first.token) as there:
            token = (await here("purge_dead", queue="emails"))["confirm"]
            assert (await there("purge_dead", queue="emails", confirm=token))["count"] == 2

    asyncio.run(run())


def test_a_confirmation_of_another_key_is_refused(stall: Stall, web: Web) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        prepare(store)

    async def run() -> None:
        async with over_http(stall.url, web.key("admin")) as mine, over_http(stall.url, web.key("admin")) as theirs:
            token = (await mine("purge_dead", queue="emails"))["confirm"]
            assert (await theirs.error("purge_dead", queue="emails", confirm=token))["field"] == "confirm"

    asyncio.run(run())
