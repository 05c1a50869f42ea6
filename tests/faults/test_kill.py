"""Processes are killed at random moments under load: nothing acknowledged is lost, and every duplicate has a reason."""

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import tampu
from tests.faults.crew import QUEUES, Nursery
from tests.faults.evidence import Logs, check_story, stories

LATER = 3600 * 1_000_000


class Ahead:
    """A clock an hour ahead: every lease and delay that was left behind is over."""

    def now(self) -> int:
        return time.time_ns() // 1000 + LATER


def test_killed_processes_lose_nothing_and_explain_every_duplicate(tmp_path: Path, seed: int, long: int):
    rng = random.Random(seed)
    url, logs = tmp_path / "jobs.db", tmp_path / "logs"
    logs.mkdir()
    with tampu.open(url, keepers=False) as q:
        q.queues.put("lanes", group_order=True)
    roles = ["publish", "work", "work", "work"]
    kills = 0
    with Nursery(url, logs) as nursery:
        crew = {nursery.start(role, rng.randrange(10**9)): role for role in roles}
        for _ in range(40 * long):
            time.sleep(rng.uniform(0.01, 0.3))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(sorted(crew), rng.choice((1, 1, 2, len(roles)))):
                nursery.kill(pid)
                role = crew.pop(pid)
                crew[nursery.start(role, rng.randrange(10**9))] = role
                kills += 1
    examine(url, Logs.read(logs), kills)


def examine(url: Path, logs: Logs, kills: int) -> None:
    db = sqlite3.connect(url)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    with tampu.open(url, keepers=False, clock=Ahead()) as q:
        assert [finding for finding in q.check() if finding[1] == "bad"] == []
        left = drain(q)
        told = stories(q)
        assert [finding for finding in q.check() if finding[1] == "bad"] == []
        messages = {m.id: m for name in QUEUES for m in all_of(q, name)}
    assert logs.published <= messages.keys(), "what publish acknowledged is there"
    assert messages.keys() == told.keys()
    for id, message in messages.items():
        assert message.state in ("done", "dead"), "no lease, delay or hold is left for ever"
        check_story(told[id], message.max_attempts)
        assert (id in logs.acked) <= (told[id][-1].verb == "ack"), "what ack acknowledged is done, once"
    claimed = {(t.id, t.attempt, t.at_us) for story in told.values() for t in story if t.verb == "claim"}
    receipts = [receipt for _, _, receipt, _ in logs.claims]
    assert len(set(receipts)) == len(receipts), "receipts never repeat"
    assert {(id, attempt) for id, attempt, _, _ in logs.claims} <= {(id, attempt) for id, attempt, _ in claimed}
    print(f"{kills} kills, {len(messages)} messages, {len(claimed)} deliveries, {len(logs.acked)} acks, {left} left")
    assert kills > 0
    assert logs.acked, "the crew did some work"


def drain(q: tampu.Queue) -> int:
    """Work through all that is left; how much that was."""
    total = 0
    while leases := q.claim(QUEUES, limit=1000):
        total += len(leases)
        assert all(outcome.ok for outcome in q.settle([tampu.Ack(lease) for lease in leases]))
    return total


def all_of(q: tampu.Queue, name: str) -> list[tampu.Message]:
    page = q.messages(name, limit=10_000)
    found = list(page)
    while page.cursor is not None:
        page = q.messages(name, limit=10_000, after=page.cursor)
        found.extend(page)
    return found


def test_a_worker_stopped_past_its_lease_changes_nothing(tmp_path: Path):
    url = tmp_path / "jobs.db"
    with tampu.open(url) as q, Nursery(url, tmp_path) as nursery:
        message = q.publish("work", 1)
        sleeper = nursery.start("sleep_on_it")
        nursery.wait_stopped(sleeper)
        (lease,) = q.claim("work", lease=60, wait=20, worker="other")
        assert (lease.id, lease.attempt) == (message.id, 2)
        before = q.journal().latest
        os.kill(sleeper, signal.SIGCONT)
        nursery.wait_ended(sleeper)
        (log,) = tmp_path.glob("*.log")
        assert log.read_text().splitlines() == [
            f'["lost", "{verb}"]' for verb in ("ack", "nack", "reject", "release", "extend")
        ]
        assert q.journal().latest == before
        assert q.get(message.id).state == "leased"
        q.ack(lease)
        assert q.get(message.id).state == "done"
