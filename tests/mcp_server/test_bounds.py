"""Answers have bounds, whatever the store has, and bad arguments are refused with what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from mcp.shared.exceptions import MCPError

import tampu
from tampu.mcp.tools import MOST_BYTES
from tests.mcp_server.clients import Tools, in_memory


def with_tools(fill: Callable[[tampu.Store], Any], run: Callable[[Tools, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        with tampu.open("memory://", maintenance=False) as store:
            made = fill(store)
            async with in_memory(store) as tools:
                await run(tools, made)

    asyncio.run(main())


def test_large_messages_are_cut_and_say_so() -> None:
    def fill(store: tampu.Store) -> list[str]:
        big = {"text": "x" * 200_000}
        labels = {f"label{n}": "y" * 100 for n in range(16)}
        for _ in range(50):
            store.publish("big", big, type="t" * 100, labels=labels, max_attempts=1)
        for lease in store.claim("big", limit=50):
            store.nack(lease, error="boom " + "z" * 50_000)
        deep = "[" * 900 + "]" * 900
        odd = store.publish("odd", tampu.NewMessage(b"\x00\xff" * 10, content_type="application/octet-stream").payload)
        nested = store.publish("odd", msgspec.json.decode(deep))
        return [odd.id, nested.id]

    async def run(tools: Tools, ids: list[str]) -> None:
        for name, arguments in (
            ("list_messages", {"queue": "big", "limit": 50}),
            ("search_messages", {"limit": 50}),
            ("list_dead", {"limit": 50}),
            ("dead_groups", {}),
            ("overview", {}),
        ):
            answer = await tools(name, **arguments)
            assert len(msgspec.json.encode(answer)) < MOST_BYTES, name
        first = (await tools("list_messages", queue="big", limit=1))["messages"][0]
        assert first["payload"].endswith("characters)")
        whole = await tools("get_message", id=first["id"])
        assert whole["payload_text"].endswith("characters)")
        assert "payload" not in whole
        assert len(msgspec.json.encode(await tools("explain_failure", id=first["id"]))) < MOST_BYTES
        for id in ids:
            assert (await tools("get_message", id=id))["state"] == "ready"
        assert len((await tools("list_messages", queue="odd"))["messages"]) == 2

    with_tools(fill, run)


def test_long_lists_have_a_cursor_that_reaches_everything_once() -> None:
    def fill(store: tampu.Store) -> list[str]:
        ids = []
        for n in range(7):
            made = store.publish_many(f"q{n}", [tampu.NewMessage(i, type="a" if i % 2 else "b") for i in range(5)])
            ids += [m.id for m in made if m.type == "a"]
        return sorted(ids)

    async def run(tools: Tools, ids: list[str]) -> None:
        for limit in (1, 3, 4, 50):
            found, cursor = [], None
            while True:
                page = await tools("search_messages", type="a", limit=limit, cursor=cursor)
                assert len(page["messages"]) <= limit
                found += [one["id"] for one in page["messages"]]
                cursor = page.get("cursor")
                if cursor is None:
                    break
            assert sorted(found) == ids, limit
        names, cursor = [], None
        while True:
            page = await tools("list_queues", limit=3, cursor=cursor)
            names += [one["queue"] for one in page["queues"]]
            if (cursor := page.get("cursor")) is None:
                break
            assert page["more"] == 7 - len(names)
        assert names == [f"q{n}" for n in range(7)]
        assert "search again" in (await tools.error("search_messages", cursor="nonsense"))["hint"]

    with_tools(fill, run)


def test_a_search_of_several_queues_goes_on_where_large_messages_ended_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tampu.broker.admin.verbs._PAGE_BYTES", 1)
    monkeypatch.setattr("tampu.broker.admin.verbs._FIRST", 1)

    def fill(store: tampu.Store) -> list[str]:
        return sorted(m.id for n in range(3) for m in store.publish_many(f"q{n}", ["x" * 100] * 3))

    async def run(tools: Tools, ids: list[str]) -> None:
        found, cursor = [], None
        while True:
            page = await tools("search_messages", limit=50, cursor=cursor)
            found += [one["id"] for one in page["messages"]]
            if (cursor := page.get("cursor")) is None:
                break
        assert sorted(found) == ids

    with_tools(fill, run)


def test_bad_arguments_are_refused_by_name_with_what_there_is() -> None:
    async def run(tools: Tools, _: Any) -> None:
        assert (await tools.error("list_messages", queue="x", limit=1000))["field"] == "limit"
        assert "arguments of list_messages: queue, state" in (await tools.error("list_messages", que="x"))["hint"]
        assert (await tools.error("list_messages"))["code"] == "invalid_message"
        assert (await tools.error("no_such_tool"))["hint"] == "list the tools"
        assert (await tools.error("search_messages", created_after="2026-01-01T00:00:00"))["field"] == "created_after"
        assert "settings are" in (await tools.error("change_settings", queue="x", settings={"nope": 1}))["hint"]
        assert (await tools.error("put_schedule", name="s", queue="x", cron="nope"))["code"] == "invalid_message"
        assert (await tools.error("get_message", id="x" * 100))["field"] == "id"
        for uri in ("tampu://nothing", "tampu://queues/", "tampu://messages/nope", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await tools.client.read_resource(uri)
        for name, arguments in (("nope", {}), ("why_did_this_fail", {}), ("night_report", {"x": "y"})):
            with pytest.raises(MCPError):
                await tools.client.get_prompt(name, arguments)

    with_tools(lambda _: None, run)


def test_queue_names_are_escaped_in_uris() -> None:
    async def run(tools: Tools, _: Any) -> None:
        uris = [str(one.uri) for one in (await tools.client.list_resources()).resources]
        assert uris == ["tampu://queues/news", "tampu://queues/news%40billing"]
        (contents,) = (await tools.client.read_resource(uris[1])).contents
        assert '"news@billing"' in contents.text  # type: ignore[union-attr]  # it is text

    def fill(store: tampu.Store) -> None:
        store.queues.put("news", consumer_mode="broadcast")
        store.subscriptions.put("news", "billing")
        store.publish("news", 1)

    with_tools(fill, run)
