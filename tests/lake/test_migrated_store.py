"""A store that was moved: its messages are in a lake that begins there, and a lake that goes on has them once."""

from __future__ import annotations

from pathlib import Path

import pytest

import tampu
from tests.broker.transfer.stores import move
from tests.conformance.harness import FakeClock
from tests.lake.pipeline_harness import SILVER, Rig


class Harness:
    """One that is worked in, moved, and worked in again."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.old, self.new = str(folder / "old.db"), str(folder / "new.db")
        self.ids: dict[str, str] = {}

    def work(self) -> None:
        with tampu.open(self.old, maintenance=False, clock=self.clock) as store:
            for n, name in enumerate(("done", "dead", "buried", "ready", "waiting")):
                self.ids[name] = store.publish("jobs", n).id
            done, dead, buried = store.claim("jobs", limit=3)
            store.ack(done)
            store.reject(dead, "bad")
            store.reject(buried, "worse")
            self.clock.advance(60)

    def move(self) -> None:
        move(self.old, self.new, self.clock, ended=True)
        self.clock.advance(60)

    def go_on(self) -> None:
        with tampu.open(self.new, maintenance=False, clock=self.clock) as store:
            store.replay("jobs", ids=[self.ids["dead"]])
            self.clock.advance(60)
            store.ack(store.claim("jobs")[0])


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    found = Harness(tmp_path)
    found.work()
    return found


def test_a_lake_that_begins_after_a_move_has_what_came_and_one_that_goes_on_has_every_end_once(
    harness: Harness, tmp_path: Path
) -> None:
    rig = Rig(harness.old, str(tmp_path / "lake"))
    rig.run()
    before = [rig.rows(name) for name in ("bronze.messages", "silver.messages", "silver.attempts")]
    harness.move()
    rig.url = harness.new
    rig.run_until(SILVER)
    assert [rig.rows(name) for name in ("bronze.messages", "silver.messages", "silver.attempts")] == before

    begun = Rig(harness.new, str(tmp_path / "begun"))
    begun.run(name="begun")
    ends = {row[0]: row[1:] for row in begun.rows("bronze.messages", "id", "state", "reason", "payload")}
    assert ends == {
        harness.ids["done"]: ("done", None, b"0"),
        harness.ids["dead"]: ("dead", "bad", b"1"),
        harness.ids["buried"]: ("dead", "worse", b"2"),
    }
    assert {row[0] for row in begun.rows("silver.messages", "id")} == set(ends)
    assert {row[0] for row in begun.rows("gold.queue_minutes", "depth")} == {2}

    harness.go_on()
    rig.run()
    begun.run(name="begun")
    ended = {harness.ids[name] for name in ("done", "buried", "ready")}
    for lake in (rig, begun):
        assert {row[0] for row in lake.rows("silver.messages", "id")} == ended, "the dead one was replayed"
    waits = dict(rig.rows("silver.attempts", "id", "wait"))
    assert waits[harness.ids["ready"]] == 180.0, "it had been ready in the old store"
    assert begun.rows("silver.attempts", "id", "wait") == [(harness.ids["ready"], 120.0)]
    depths = [lake.rows("gold.queue_minutes", "minute", "depth")[-1] for lake in (rig, begun)]
    assert depths[0] == depths[1]
