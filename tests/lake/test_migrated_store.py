"""A store that was moved: its messages are in a lake that begins there, and a lake that goes on has them once."""

from __future__ import annotations

from pathlib import Path

import pytest

import tampu
from tests.broker.transfer.stores import move
from tests.conformance.harness import FakeClock
from tests.lake.pipeline_harness import Rig


class Harness:
    """One that is worked in, moved, and worked in again."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.old, self.new = str(folder / "old.db"), str(folder / "new.db")
        self.ids: dict[str, str] = {}

    def work(self) -> None:
        with tampu.open(self.old, maintenance=False, clock=self.clock) as q:
            for n, name in enumerate(("done", "dead", "buried", "ready", "waiting")):
                self.ids[name] = q.publish("jobs", n).id
            done, dead, buried = q.claim("jobs", limit=3)
            q.ack(done)
            q.reject(dead, "bad")
            q.reject(buried, "worse")
            self.clock.advance(60)

    def move(self) -> None:
        move(self.old, self.new, self.clock, ended=True)
        self.clock.advance(60)

    def go_on(self) -> None:
        with tampu.open(self.new, maintenance=False, clock=self.clock) as q:
            q.replay("jobs", ids=[self.ids["dead"]])
            self.clock.advance(60)
            q.ack(q.claim("jobs")[0])


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    found = Harness(tmp_path)
    found.work()
    return found


def test_a_lake_that_begins_after_a_move_has_what_came(harness: Harness, tmp_path: Path) -> None:
    harness.move()
    rig = Rig(harness.new, str(tmp_path / "lake"))
    rig.run()
    told = {row[0]: row[1:] for row in rig.rows("bronze.messages", "id", "state", "reason", "payload")}
    assert told == {
        harness.ids["done"]: ("done", None, b"0"),
        harness.ids["dead"]: ("dead", "bad", b"1"),
        harness.ids["buried"]: ("dead", "worse", b"2"),
    }
    assert {row[0] for row in rig.rows("silver.messages", "id")} == set(told)
    assert {row[0] for row in rig.rows("gold.queue_minutes", "depth")} == {2}
    harness.go_on()
    rig.run()
    (attempt,) = rig.rows("silver.attempts", "id", "wait")
    assert attempt == (harness.ids["ready"], 120.0)
    assert harness.ids["dead"] not in {row[0] for row in rig.rows("silver.messages", "id")}, "it was replayed"


def test_a_lake_that_goes_on_after_a_move_has_every_end_once(harness: Harness, tmp_path: Path) -> None:
    rig = Rig(harness.old, str(tmp_path / "lake"))
    rig.run()
    before = [rig.rows(name) for name in ("bronze.messages", "silver.messages", "silver.attempts")]
    harness.move()
    rig.url = harness.new
    rig.run()
    assert [rig.rows(name) for name in ("bronze.messages", "silver.messages", "silver.attempts")] == before
    harness.go_on()
    rig.run()
    assert {row[0] for row in rig.rows("silver.messages", "id")} == {
        harness.ids[name] for name in ("done", "buried", "ready")
    }
    waits = dict(rig.rows("silver.attempts", "id", "wait"))
    assert waits[harness.ids["ready"]] == 180.0, "it had been ready in the old house"
    whole = Rig(harness.new, str(tmp_path / "whole"))
    whole.run(name="whole")
    assert (
        rig.rows("gold.queue_minutes", "minute", "depth")[-1] == whole.rows("gold.queue_minutes", "minute", "depth")[-1]
    )
