"""Silver computed anew when old days were let go: what has not ended is still known."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import tampu
from tampu.lake import maintenance, state
from tests.conformance.harness import FakeClock
from tests.lake.pipeline_harness import Rig

DAY = 86_400
SECOND_DAY = date(2026, 1, 2)


def test_messages_that_wait_since_a_day_that_was_let_go_stay_in_silver(tmp_path: Path) -> None:
    clock, url = FakeClock(), str(tmp_path / "jobs.db")
    rig = Rig(url, str(tmp_path / "jobs.lake"))
    with tampu.open(url, maintenance=False, clock=clock) as q:
        q.publish_many("jobs", range(5))
        clock.advance(DAY)
        q.publish("other", 1)
        q.ack(q.claim("other")[0])
        rig.run()
        maintenance.drop_days(rig.lake, SECOND_DAY)
        rig.pipeline().backfill(rig.session, [SECOND_DAY], layer="silver")
        assert state.table(rig.lake, state.WAITING).open().arrow().to_table()["n"].to_pylist() == [5]
        assert {depth for queue, depth in rig.rows("gold.queue_minutes", "queue", "depth") if queue == "jobs"} == {5}
        q.ack(q.claim("jobs")[0])
        rig.run()
    assert [row for row in rig.rows("silver.attempts", "queue", "wait") if row[0] == "jobs"] == [("jobs", DAY)]
