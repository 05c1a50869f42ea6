"""`tampu agents` and `tampu alert`: the leader is another process."""

from __future__ import annotations

import json

import tampu
from tampu.broker import access
from tampu.broker.policies.alerts.state import AlertState, Since, saving
from tests.cli.run_command import Command


def test_agents_are_listed_paused_and_resumed(command: Command) -> None:
    with command.queue() as store:
        store.publish("jobs", 1)
    names = [one["name"] for one in command.ok("agents", "list")["agents"]]
    assert names == [
        "expiry",
        "retention",
        "schedules",
        "reorder",
        "replays",
        "alerts",
        "webhooks",
        "timers",
        "recovery",
    ]
    assert command.ok("agents", "pause", "expiry")["status"] == "paused"
    assert "paused" in command("agents", "list").out
    assert "status: paused" in command("agents", "show", "expiry").out
    assert "it runs when it is resumed" in command("agents", "run", "expiry", "--wait", "0").out
    assert command.ok("agents", "resume", "expiry")["status"] == "active"
    assert "as soon as a process" in command("agents", "run", "expiry", "--wait", "0").out
    assert command("agents", "pause", "nothing").code == 3


def test_a_run_is_waited_for(command: Command) -> None:
    with tampu.open(command.path):
        asked = command("agents", "run", "reorder", "--wait", "60")
    assert (asked.code, asked.out.strip()) == (0, "reorder has run")


def test_alerts_are_put_listed_and_deleted(command: Command) -> None:
    made = command.ok("alert", "put", "old", "oldest", "--above", "60", "--lasting", "5m", "--queue", "shop.*")
    assert (made["measure"], made["above"], made["lasting"], made["queues"]) == ("oldest", 60, "5m", ["shop.*"])
    names = [one["name"] for one in command.ok("alert", "list")["alerts"]]
    assert names == ["dead-letters", "old", "old-messages"]
    assert command.ok("alert", "delete", "dead-letters")["deleted"]
    assert command("alert", "show", "dead-letters").code == 3
    assert command("alert", "put", "bad", "oldest", "--above", "-1").code == 2
    assert command.ok("alert", "status") == {"firing": []}
    with command.queue() as store:
        core = access.core(store)
        state = AlertState({"jobs": Since(core.engine.now(), 70.0)}, 1)
        core.do(saving("default", "old", state, 0))
    (found,) = command.ok("alert", "status")["firing"]
    assert (found["alert"], found["target"], found["value"]) == ("old", "jobs", 70)
    assert "jobs" in command("alert", "status").out


def test_the_secret_of_webhooks_is_set_and_never_shown(command: Command) -> None:
    assert command.ok("webhook", "secret", input="0123456789abcdef\n") == {"signed": True}
    assert "are signed" in command("webhook", "status").out
    assert "0123456789abcdef" not in json.dumps(command.ok("audit"))
    assert command.ok("webhook", "secret", "--remove") == {"signed": False}
    assert command.ok("webhook", "status") == {"signed": False}
    assert command("webhook", "secret", input="short").code == 2
