"""What changes much is done in two calls: the second one needs the confirmation of exactly what the first has shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

import msgspec
import pytest

import tampu
from tampu.mcp.confirmations import SECONDS, Confirmations
from tests.mcp_server.clients import Tools, in_memory
from tests.mcp_server.walk import prepare


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store() -> Iterator[tampu.Store]:
    with tampu.open("memory://", maintenance=False) as made:
        prepare(made)
        yield made


def with_tools(store: tampu.Store, run: Callable[[Tools], Awaitable[None]], clock: Clock | None = None) -> None:
    async def main() -> None:
        async with in_memory(store, confirmations=Confirmations(clock=clock or Clock())) as tools:
            await run(tools)

    asyncio.run(main())


def dead_in(store: tampu.Store) -> int:
    return int(store.stats("emails").dead)


def test_the_first_step_changes_nothing(store: tampu.Store) -> None:
    async def run(tools: Tools) -> None:
        for name, arguments in (
            ("replay_dead", {"queue": "*"}),
            ("purge_dead", {"queue": "emails"}),
            ("purge_queue", {"queue": "emails", "states": ["dead", "ready"]}),
            ("cancel_messages", {"ids": [store.messages("emails", state="ready").messages[0].id]}),
            ("change_settings", {"queue": "emails", "settings": {"max_attempts": 9}}),
            ("put_schedule", {"name": "new", "queue": "reports", "cron": "0 1 * * *"}),
            ("delete_schedule", {"name": "nightly"}),
        ):
            answer = await tools(name, **arguments)
            assert answer["preview"], name
            assert answer["expires_in_seconds"] == SECONDS, name
            assert name in answer["next"], name

    before = [*store.journal(limit=1000).transitions]
    with_tools(store, run)
    assert [*store.journal(limit=1000).transitions] == before
    assert store.queues.get("emails").max_attempts == 2
    assert [one.name for one in store.schedules.list()] == ["nightly"]


def test_a_confirmation_is_for_these_arguments_and_this_tool(store: tampu.Store) -> None:
    async def run(tools: Tools) -> None:
        token = (await tools("purge_dead", queue="emails", error="mailbox 2"))["confirm"]
        for name, arguments in (
            ("purge_dead", {"queue": "emails"}),
            ("purge_dead", {"queue": "*", "error": "mailbox 2"}),
            ("replay_dead", {"queue": "emails", "error": "mailbox 2"}),
        ):
            refused = await tools.error(name, **arguments, confirm=token)
            assert (refused["code"], refused["field"]) == ("invalid_message", "confirm"), (name, arguments)
        other = "B" if token[0] == "A" else "A"
        for broken in ("", "x", "é", token[:-2], other + token[1:], token * 30):
            refused = await tools.error("purge_dead", queue="emails", error="mailbox 2", confirm=broken)
            assert refused["field"] == "confirm", broken
            assert "without confirm" in refused["hint"]

    with_tools(store, run)
    assert dead_in(store) == 2


def test_a_confirmation_expires(store: tampu.Store) -> None:
    clock = Clock()

    async def run(tools: Tools) -> None:
        token = (await tools("purge_dead", queue="emails"))["confirm"]
        clock.now += SECONDS + 1
        assert "expired" in (await tools.error("purge_dead", queue="emails", confirm=token))["message"]
        clock.now -= 2
        assert (await tools("purge_dead", queue="emails", confirm=token))["count"] == 2

    with_tools(store, run, clock)


def test_a_confirmation_works_once(store: tampu.Store) -> None:
    async def run(tools: Tools) -> None:
        token = (await tools("replay_dead", queue="emails"))["confirm"]
        assert (await tools("replay_dead", queue="emails", confirm=token))["count"] == 2
        assert (await tools.error("replay_dead", queue="emails", confirm=token))["code"] == "invalid_state"
        token = (await tools("change_settings", queue="emails", settings={"max_attempts": 9}))["confirm"]
        arguments = {"queue": "emails", "settings": {"max_attempts": 9}, "confirm": token}
        await tools("change_settings", **arguments)
        assert (await tools.error("change_settings", **arguments))["code"] == "invalid_state"

    with_tools(store, run)


@pytest.mark.parametrize("name", ["replay_dead", "purge_dead"])
def test_a_confirmation_for_ids_is_not_for_messages_that_died_again(store: tampu.Store, name: str) -> None:
    async def run(tools: Tools) -> None:
        ids = [store.messages("emails", state="dead").messages[0].id]
        token = (await tools(name, ids=ids))["confirm"]
        store.dead.replay(ids)
        while store.get(ids[0]).state != "dead":
            for lease in store.claim("emails", limit=10):
                store.reject(lease, error="again")
        assert "has changed since" in (await tools.error(name, ids=ids, confirm=token))["message"]
        assert (await tools(name, ids=ids, confirm=(await tools(name, ids=ids))["confirm"]))["count"] == 1

    with_tools(store, run)


def test_what_was_added_or_taken_since_the_preview_is_noticed(store: tampu.Store) -> None:
    async def run(tools: Tools) -> None:
        token = (await tools("purge_dead", queue="emails"))["confirm"]
        one = store.messages("emails", state="dead").messages[0].id
        store.dead.replay([one])
        refused = await tools.error("purge_dead", queue="emails", confirm=token)
        assert "has changed since" in refused["message"]

        token = (await tools("purge_queue", queue="emails", states=["ready"]))["confirm"]
        store.publish("emails", 1)
        assert (
            "has changed since"
            in (await tools.error("purge_queue", queue="emails", states=["ready"], confirm=token))["message"]
        )

        token = (await tools("change_settings", queue="emails", settings={"max_attempts": 9}))["confirm"]
        store.queues.put("emails", max_attempts=5)
        arguments = {"queue": "emails", "settings": {"max_attempts": 9}, "confirm": token}
        assert "has changed since" in (await tools.error("change_settings", **arguments))["message"]

    with_tools(store, run)
    assert store.queues.get("emails").max_attempts == 5


def test_what_dies_after_the_preview_is_not_among_what_is_purged(store: tampu.Store) -> None:
    async def run(tools: Tools) -> None:
        token = (await tools("purge_dead", queue="*"))["confirm"]
        later = store.publish("emails", "later", max_attempts=1, priority=9)
        for lease in store.claim("emails", limit=10):
            store.nack(lease, error="later")
        assert (await tools("purge_dead", queue="*", confirm=token))["count"] == 2
        assert store.get(later.id).state == "dead"

    with_tools(store, run)


def test_a_changed_schedule_keeps_what_the_tool_does_not_say(store: tampu.Store) -> None:
    before = store.schedules.put(
        "own", queue="reports", every="1h", jitter="5s", delay="2m", labels={"a": "b"}, priority=3,
        headers={"h": "1"}, limit=9, missed="skip", key="k",
    )  # fmt: skip

    async def run(tools: Tools) -> None:
        arguments = {"name": "own", "queue": "reports", "every": "2h"}
        await tools("put_schedule", **arguments, confirm=(await tools("put_schedule", **arguments))["confirm"])
        after = store.schedules.get("own")
        assert after.every == timedelta(hours=2)
        for field in ("start", "end", "limit", "jitter", "missed"):
            assert getattr(after, field) == getattr(before, field), field
        assert msgspec.structs.replace(after.message, payload=None) == msgspec.structs.replace(
            before.message, payload=None
        )

        token = (await tools("put_schedule", name="own", queue="reports", every="3h"))["confirm"]
        store.schedules.put("own", queue="reports", every="2h", labels={"a": "c"})
        refused = await tools.error("put_schedule", name="own", queue="reports", every="3h", confirm=token)
        assert "has changed since" in refused["message"]

    with_tools(store, run)


def test_everything_must_be_asked_for(store: tampu.Store) -> None:
    async def run(tools: Tools) -> None:
        for name in ("purge_dead", "replay_dead"):
            refused = await tools.error(name)
            assert 'queue="*"' in refused["hint"], name

    with_tools(store, run)
