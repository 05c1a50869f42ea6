"""`tampu dead`: dead letters of all queues, their replays and the undo."""

from __future__ import annotations

from tests.cli.run_command import Command


def test_dead_letters_are_listed_grouped_replayed_taken_back_and_purged(command: Command) -> None:
    with command.queue() as store:
        for queue in ("shop.a", "shop.b", "logs"):
            store.publish(queue, 1)
            store.reject(store.claim(queue)[0], error=f"ValueError: {queue!r} has 7 faults", reason="invalid")
        ids = {message.queue: message.id for message in store.dead.list()}
    found = command.ok("dead", "list", "--queue", "shop.*", "--since", "1h")["messages"]
    assert [message["id"] for message in found] == [ids["shop.a"], ids["shop.b"]]
    (group,) = command.ok("dead", "groups")["groups"]
    assert group["count"] == 3
    assert "ValueError" in command("dead", "groups").out
    assert command.ok("dead", "list", "--fingerprint", "none")["messages"] == []

    would = command.ok("dead", "replay", "--queue", "shop.*", "--dry-run")
    assert (would["status"], would["count"]) == ("preview", 2)
    assert "2 messages would be replayed" in command("dead", "replay", "--queue", "shop.*", "--dry-run").out
    made = command.ok("dead", "replay", "--fingerprint", group["fingerprint"], "--limit", "2")
    assert (made["status"], made["count"]) == ("done", 2)
    assert [one["id"] for one in command.ok("dead", "replays")["replays"]] == [made["id"]]
    assert command.ok("dead", "undo", made["id"])["undone"] == 2
    slow = command.ok("dead", "replay", ids["logs"], "--rate", "1/h")
    assert command.ok("dead", "cancel", slow["id"])["status"] == "cancelled"
    assert command("dead", "undo", "none").code == 3
    assert command("dead", "replay").code == 2
    assert command.ok("dead", "purge", "--reason", "invalid")["count"] >= 2
