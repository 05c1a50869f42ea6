"""After the kills: all that is left is worked through, and each message's story is held against the logs."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import tampu
from tampu.model.states import LIVE
from tests.conformance.harness import counts, until
from tests.faults.crew import QUEUES, Nursery
from tests.faults.evidence import Logs, check_story, stories

LATER = 3600 * 1_000_000
_ACKED = re.compile(rb'\["settled", "ack", [^\n]*true\]')


class Ahead:
    """A clock an hour ahead: every lease and delay that was left behind is over."""

    def now(self) -> int:
        return time.time_ns() // 1000 + LATER


def works_on(logs: Path) -> None:
    """Wait until the crew has published and acked anew: whatever was done to it, it goes on."""
    before = _done(logs)
    until(lambda: all(now > then for now, then in zip(_done(logs), before, strict=True)), 120)


def _done(logs: Path) -> tuple[int, int]:
    """How often publish, and how often ack, was heard to have worked; also while lines are being written."""
    text = b"".join(path.read_bytes() for path in logs.glob("*.log"))
    return text.count(b'["published"'), len(_ACKED.findall(text))


def examine(url: str | Path, logs: Logs, kills: int) -> None:
    """Nothing acknowledged is lost, nothing was done twice without a reason, nothing is left for ever."""
    with tampu.open(url, maintenance=False, clock=Ahead()) as store:
        assert [finding for finding in store.check() if finding[1] == "bad"] == []
        left = drain(store)
        by_message = stories(store)
        assert [finding for finding in store.check() if finding[1] == "bad"] == []
        messages = {m.id: m for name in QUEUES for m in all_of(store, name)}
    assert logs.published <= messages.keys(), "what publish acknowledged is there"
    assert messages.keys() == by_message.keys()
    for id, message in messages.items():
        assert message.state in ("done", "dead"), f"left for ever: {by_message[id]}"
        check_story(by_message[id], message.max_attempts)
        assert (id in logs.acked) <= (by_message[id][-1].verb == "ack"), "what ack acknowledged is done, once"
    claimed = {(t.id, t.attempt, t.at_us) for story in by_message.values() for t in story if t.verb == "claim"}
    receipts = [receipt for _, _, receipt, _ in logs.claims]
    assert len(set(receipts)) == len(receipts), "receipts never repeat"
    assert {(id, attempt) for id, attempt, _, _ in logs.claims} <= {(id, attempt) for id, attempt, _ in claimed}
    print(f"{kills} kills, {len(messages)} messages, {len(claimed)} deliveries, {len(logs.acked)} acks, {left} left")
    assert kills > 0
    assert logs.acked, "the crew did some work"


def drain(store: tampu.Store) -> int:
    """Work through all that is left; how much that was. A server may still be at what a dead process asked it for."""
    total = 0

    def nothing_is_left() -> bool:
        nonlocal total
        while leases := store.claim(QUEUES, limit=1000):
            total += len(leases)
            assert all(outcome.ok for outcome in store.settle([tampu.Ack(lease) for lease in leases]))
        return not any(counts(store, name).keys() & LIVE for name in QUEUES)

    until(nothing_is_left, 60)
    return total


def all_of(store: tampu.Store, name: str) -> list[tampu.Message]:
    page = store.messages(name, limit=10_000)
    found = list(page)
    while page.cursor is not None:
        page = store.messages(name, limit=10_000, after=page.cursor)
        found.extend(page)
    return found


def outlives_its_lease(url: str | Path, folder: Path) -> None:
    """A worker is stopped until its lease is over and somebody else has the message: whatever it tries then is lost."""
    with tampu.open(url) as store, Nursery(url, folder) as nursery:
        message = store.publish("work", 1)
        sleeper = nursery.start("sleep_on_it")
        nursery.wait_stopped(sleeper)
        (lease,) = store.claim("work", lease=60, wait=60, worker="other")
        assert (lease.id, lease.attempt) == (message.id, 2)
        before = store.journal().latest
        os.kill(sleeper, signal.SIGCONT)
        nursery.wait_ended(sleeper)
        (log,) = folder.glob("*.log")
        assert log.read_text().splitlines() == [
            f'["lost", "{verb}"]' for verb in ("ack", "nack", "reject", "release", "extend")
        ]
        assert store.journal().latest == before
        assert store.get(message.id).state == "leased"
        store.ack(lease)
        assert store.get(message.id).state == "done"
