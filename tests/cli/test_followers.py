"""`tampu followers`: list, resume, remove."""

from collections.abc import Sequence
from datetime import datetime

from tampu.broker import access, followers
from tampu.broker.followers import Effects
from tampu.maintenance.follower import ATTEMPTS, Follower
from tampu.model.journal import Transition
from tampu.testing import FakeClock
from tests.cli.run_command import Command


class Refusing:
    name = "refusing"

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        raise ValueError("no such address")


def park(command: Command) -> None:
    clock = FakeClock()
    with followers.registered(Refusing()), command.queue(clock=clock) as store:
        follower = Follower(access.core(store))
        follower.turn()
        store.publish("jobs", 1)
        for _ in range(ATTEMPTS):
            follower.turn()
            clock.advance(60)


def test_a_parked_follower_is_listed_and_resumed(command: Command) -> None:
    park(command)
    (found,) = command.ok("followers", "list")["followers"]
    assert (found["name"], found["status"], found["behind"], found["attempts"]) == ("refusing", "parked", 1, ATTEMPTS)
    assert (found["error"], found["retry_at"], found["position"]) == ("ValueError: no such address", None, {"0": 0})
    assert datetime.fromisoformat(found["moved_at"]).tzinfo is not None
    shown = command("followers", "list").out
    assert "parked" in shown
    assert "no such address" in shown
    assert command("followers", "resume", "refusing").out == "refusing is active, 1 transitions behind\n"
    assert command.ok("followers", "resume", "refusing")["status"] == "active"


def test_a_follower_is_removed(command: Command) -> None:
    park(command)
    assert command.ok("followers", "remove", "refusing") == {"name": "refusing", "deleted": True}
    assert command.ok("followers", "list") == {"followers": []}
    for verb in ("remove", "resume"):
        failed = command("followers", verb, "refusing")
        assert failed.code != 0
        assert "no follower refusing" in failed.err
