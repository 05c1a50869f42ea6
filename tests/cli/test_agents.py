"""`tampu agents`: list, show, run, pause, resume; the leader is another process."""

from __future__ import annotations

import tampu
from tests.cli.run_command import Command


def test_agents_are_listed_paused_and_resumed(command: Command) -> None:
    with command.queue() as store:
        store.publish("jobs", 1)
    names = [one["name"] for one in command.ok("agents", "list")["agents"]]
    assert names == ["expiry", "retention", "schedules", "reorder"]
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
