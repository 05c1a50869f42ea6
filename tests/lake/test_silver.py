"""Silver in the cases that matter most, each a short story; and the same by the reference, in one run and in two."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from tampu.model.journal import lease_end
from tests.lake import reference
from tests.lake.journals import MIDNIGHT, Telling
from tests.lake.tables_in_memory import Keeping, assert_same

Row = dict[str, Any]
HOUR = 3600


def stories() -> tuple[Telling, int]:
    """What happened, and how many events of it the first run sees."""
    t = Telling()
    t.story("alone", ("publish", -HOUR))
    t.story("twice", ("publish", -HOUR), ("claim", -3000))
    t.tell("twice", "nack", -2990, state="dead", detail="SMTP 421", fingerprint="f1", worker="w1")
    t.story("midnight", ("publish", -60), ("claim", -30))
    t.story("unwanted", ("publish", -50))
    t.story("archived", ("publish", -50), ("claim", -49), ("ack", -48))
    t.story("parked", ("publish", -40))
    t.tell("parked", "park", -39, state="parked", detail="a verb of a later version")
    t.story("again", ("publish", -38), ("claim", -36), ("ack", -35), ("purge", -34))
    t.story("both", ("publish", -33), ("claim", -30), ("ack", -29))
    t.story("typed", ("publish", -28))
    t.tell("typed", "replace", -27, type="job.other")
    t.story("asked", ("publish", -26), ("claim", -25), ("ask_cancel", -24))
    t.story("lost", ("publish", -20), ("claim", -19))
    t.story("moved", ("adopt", -18))
    t.tell("buried", "adopt", -18, state="dead", attempt=3, detail="the old house")
    t.story("known", ("publish", -17), ("claim", -16), ("reject", -15))
    t.story("backlog", ("publish", -14))
    first = len(t.events)
    t.story("twice", ("replay", 10), ("claim", 12), ("ack", 15))
    t.story("midnight", ("ack", 30))
    t.story("unwanted", ("purge", 31))
    t.story("archived", ("purge", 32))
    t.story("parked", ("claim", 40), ("release", 41), ("claim", 45), ("ack", 46))
    t.story("again", ("publish", 50), ("claim", 51), ("ack", 53))
    t.story("both", ("publish", 54), ("expire", 56), tenant="acme")
    t.story("typed", ("claim", 60), ("ack", 61))
    t.tell("asked", "cancel", 62, detail="stopped", fingerprint="f2")
    t.tell("lost", "reap", 63, state="dead", detail=_lease_end(11), fingerprint="f3", worker="w1")
    t.story("unseen", ("publish", 64), ("claim", 65), ("ask_cancel", 66))
    t.tell("unseen", "cancel", 365, detail=_lease_end(95))
    t.story("hasty", ("publish", 66), ("claim", 67))
    t.tell("hasty", "reap", 68, state="dead", detail=_lease_end(69))
    t.story("trimmed", ("ack", 70))
    t.story("moved", ("claim", 71), ("ack", 73))
    t.tell("known", "adopt", 74, state="dead", detail="the old house")
    t.story("backlog", ("adopt", 74), ("claim", 76), ("ack", 77))
    t.tell("archive", "adopt", 78, state="done", detail="the old house")
    return t, first


def _lease_end(seconds: float) -> str:
    return lease_end(round((MIDNIGHT.timestamp() + seconds) * 1_000_000))


@pytest.fixture(scope="module")
def given() -> Telling:
    return stories()[0]


@pytest.fixture(scope="module")
def kept(given: Telling) -> Keeping:
    """After two runs."""
    found = Keeping()
    found.run_all(given.events, given.messages, [stories()[1]])
    return found


def message(kept: Keeping, id: str, tenant: str = "default") -> Row:
    (row,) = (r for r in kept.tables["silver.messages"] if (r["id"], r["tenant"]) == (id, tenant))
    return row


def attempts(kept: Keeping, id: str) -> list[Row]:
    return [r for r in kept.tables["silver.attempts"] if r["id"] == id]


def check(kept: Keeping, given: Telling) -> None:
    expected = reference.silver(given.events, given.messages)
    for name in ("silver.attempts", "silver.messages"):
        assert_same(name, kept.tables[name], expected[name])
    stays = Counter((s["tenant"], s["queue"], _minute(s["ready_at"]), _minute(s["left_at"])) for s in expected["stays"])
    facts: Counter[tuple[str, str, int, int]] = Counter()
    for row in kept.tables["_facts.stays"]:
        facts[row["tenant"], row["queue"], row["came"], row["gone"]] += row["n"]
    assert facts == {stay: n for stay, n in stays.items() if stay[2] < stay[3]}


def _minute(at: datetime) -> int:
    return int(at.timestamp() // 60)


def test_two_runs_equal_the_reference(kept: Keeping, given: Telling) -> None:
    check(kept, given)


def test_one_run_equals_the_reference(given: Telling) -> None:
    whole = Keeping()
    whole.run_all(given.events, given.messages)
    check(whole, given)
    assert {e["id"] for e in whole.tables["_state.carried"]} == {"alone"}


def test_message_that_has_not_ended_is_carried_and_nothing_else(kept: Keeping) -> None:
    assert [(e["id"], e["verb"], e["type"]) for e in kept.tables["_state.carried"]] == [("alone", "publish", "job.run")]
    assert not attempts(kept, "alone")


def test_a_lease_that_nobody_reaped_for_minutes_ran_until_its_end(kept: Keeping) -> None:
    for id, outcome, run, ended in (("lost", "reap", 30, 63), ("unseen", "cancel", 30, 365), ("hasty", "reap", 1, 68)):
        (attempt,) = attempts(kept, id)
        assert (attempt["outcome"], attempt["run"]) == (outcome, run)
        assert attempt["ended_at"] == MIDNIGHT + timedelta(seconds=ended), "when it was noticed"
        assert message(kept, id)["run"] == run


def test_message_replayed_in_a_later_run_has_one_row_as_it_ended_last(kept: Keeping) -> None:
    row = message(kept, "twice")
    assert (row["state"], row["replays"], row["deliveries"], row["day"]) == ("done", 1, 2, MIDNIGHT.date())
    assert (row["wait"], row["run"], row["total"]) == (602.0, 13.0, 3615.0)
    assert (row["error"], row["fingerprint"]) == ("SMTP 421", "f1")
    assert [a["outcome"] for a in attempts(kept, "twice")] == ["nack", "ack"]


def test_delivery_over_midnight_belongs_to_the_day_it_ended(kept: Keeping) -> None:
    (attempt,) = attempts(kept, "midnight")
    assert attempt["claimed_at"] == MIDNIGHT - timedelta(seconds=30)
    assert (attempt["wait"], attempt["run"], attempt["day"]) == (30.0, 60.0, MIDNIGHT.date())


def test_purge_ends_a_stay_and_leaves_the_record_of_what_ended(kept: Keeping) -> None:
    assert message(kept, "archived")["state"] == "done"
    assert not any(r["id"] == "unwanted" for r in kept.tables["silver.messages"])
    left = {(row["came"], row["gone"]) for row in kept.tables["_facts.stays"]}
    assert (_minute(MIDNIGHT) - 1, _minute(MIDNIGHT)) in left


def test_message_that_came_from_another_store_waits_from_then_on(kept: Keeping) -> None:
    (attempt,) = attempts(kept, "moved")
    assert (attempt["wait"], attempt["run"]) == (89.0, 2.0)
    row = message(kept, "moved")
    assert (row["deliveries"], row["wait"], row["created_at"]) == (1, 89.0, MIDNIGHT - timedelta(days=30))


def test_message_that_had_ended_elsewhere_has_a_row_without_its_deliveries(kept: Keeping) -> None:
    row = message(kept, "buried")
    assert (row["state"], row["attempts"], row["payload_bytes"]) == ("dead", 3, 2)
    assert [row[name] for name in ("deliveries", "wait", "run", "total", "first_claimed_at")] == [None] * 5


def test_adoption_of_a_message_that_the_lake_knows_changes_nothing(kept: Keeping) -> None:
    row = message(kept, "known")
    assert (row["ended_at"], row["deliveries"]) == (MIDNIGHT - timedelta(seconds=15), 1)
    (attempt,) = attempts(kept, "backlog")
    assert attempt["wait"] == 90.0


def test_verb_of_a_later_version_is_passed_over(kept: Keeping) -> None:
    first, second = attempts(kept, "parked")
    assert (first["wait"], first["outcome"], second["wait"]) == (80.0, "release", 4.0)


def test_id_published_again_after_its_message_was_removed_is_another_message(kept: Keeping) -> None:
    rows = [r for r in kept.tables["silver.messages"] if r["id"] == "again"]
    assert sorted((r["deliveries"], r["wait"], r["run"]) for r in rows) == [(1, 1.0, 2.0), (1, 2.0, 1.0)]


def test_tenants_may_use_the_same_id(kept: Keeping) -> None:
    assert (message(kept, "both")["state"], message(kept, "both", "acme")["state"]) == ("done", "expired")
    assert message(kept, "both", "acme")["worker"] is None


def test_replaced_payload_ends_no_stay_and_brings_its_type(kept: Keeping) -> None:
    (attempt,) = attempts(kept, "typed")
    assert (attempt["type"], attempt["wait"]) == ("job.other", 88.0)


def test_delivery_that_was_asked_to_cancel_ends_by_cancel(kept: Keeping) -> None:
    (attempt,) = attempts(kept, "asked")
    assert (attempt["outcome"], attempt["run"], attempt["error"]) == ("cancel", 87.0, None)


def test_lease_that_ran_out_has_no_error(kept: Keeping) -> None:
    (attempt,) = attempts(kept, "lost")
    assert (attempt["outcome"], attempt["error"], attempt["fingerprint"]) == ("reap", None, None)
    assert (message(kept, "lost")["state"], message(kept, "lost")["error"]) == ("dead", None)


def test_message_whose_beginning_was_trimmed_takes_what_its_body_knows(kept: Keeping) -> None:
    row = message(kept, "trimmed")
    assert (row["type"], row["deliveries"], row["wait"], row["payload_bytes"]) == ("from.body", 0, 0.0, 2)
    assert row["created_at"] == MIDNIGHT - timedelta(days=30)


def test_no_events_give_no_rows() -> None:
    found = Keeping()
    found.run([], [])
    assert not any(found.tables.values())
