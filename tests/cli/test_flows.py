"""`tampu flow`: list, show, cancel and replay."""

from __future__ import annotations

from tampu import FlowMember, NewMessage
from tests.cli.run_command import Command


def test_a_flow_is_listed_drawn_replayed_and_cancelled(command: Command) -> None:
    with command.queue() as store:
        parts = [FlowMember(queue="images", message=NewMessage(n, type="shrink")) for n in range(20)]
        zip_all = FlowMember(queue="zips", message=NewMessage({}, type="zip"), after=[(0, 20)], on_failure="skip")
        id = store.flows.publish([*parts, zip_all], name="thumbnails")
    (listed,) = command.ok("flow", "list")["flows"]
    assert (listed["id"], listed["status"], listed["counts"]) == (id, "running", {"open": 21})
    assert command.ok("flow", "list", "--status", "done")["flows"] == []
    assert "thumbnails" in command("flow", "list").out
    drawn = command("flow", "show", id).out.splitlines()
    assert f"thumbnails {id}  running, 21 members" in drawn[0]
    assert "images 20 × shrink 20 ready" in drawn[1]  # noqa: RUF001 - the sign for times
    assert "zips zip held  after 20  on failure: skip" in drawn[2]
    assert drawn[2].index("zips") > drawn[1].index("images")
    assert "only the first 2 of 21 members" in command("flow", "show", id, "--limit", "2").err
    assert len(command.ok("flow", "show", id)["members"]) == 21
    assert command.ok("flow", "replay", id)["count"] == 0
    again = command.ok("flow", "replay", id, "--all")["id"]
    assert command.ok("flow", "cancel", again)["total"] == 21
    assert command("flow", "show", "fe5e0fc4-eaa0-8f10-bc5a-700000000000").code == 3
