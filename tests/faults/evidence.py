"""What the logs of killed processes and the journal of their file say, held against each other."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import tampu
from tests.faults.crew import LEASE_SECONDS


@dataclass
class Logs:
    """All that calls acknowledged."""

    published: set[str] = field(default_factory=set)
    claims: list[tuple[str, int, str, int]] = field(default_factory=list)
    """(id, attempt, receipt, until)"""
    acked: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, folder: Path) -> Logs:
        logs = cls()
        for path in folder.glob("*.log"):
            for line in path.read_bytes().split(b"\n")[:-1]:  # behind the last: what a kill has cut short, or nothing
                kind, *rest = json.loads(line)
                if kind == "published":
                    assert logs.published.isdisjoint(rest[0]), "an id was given out twice"
                    logs.published.update(rest[0])
                elif kind == "claimed":
                    logs.claims.append((rest[0], rest[1], rest[2], rest[3]))
                elif kind == "settled" and rest[0] == "ack" and rest[3]:
                    assert rest[1] not in logs.acked, "acked by two workers"
                    logs.acked.add(rest[1])
        return logs


def stories(store: tampu.Store) -> dict[str, list[tampu.Transition]]:
    """Each message's transitions, in order."""
    by_message: dict[str, list[tampu.Transition]] = defaultdict(list)
    position = None
    while True:
        page = store.journal(after=position, limit=10_000)
        if not page.transitions:
            return by_message
        for transition in page.transitions:
            by_message[transition.id].append(transition)
        position = page.position


def check_story(story: list[tampu.Transition], max_attempts: int) -> None:
    """From publish to its end: each delivery has its number, and a reason why there was another."""
    assert story[0].verb == "publish"
    attempts = 0
    leased_at: int | None = None
    for transition in story[1:]:
        where = f"{transition} in {story}"
        verb = transition.verb
        if verb == "claim":
            assert leased_at is None, f"delivered while leased: {where}"
            attempts += 1
            leased_at = transition.at_us
            assert attempts <= max_attempts, f"more deliveries than max_attempts: {where}"
        elif verb in ("ack", "nack", "release", "reap"):
            assert leased_at is not None, f"settled without a lease: {where}"
            if verb == "reap":
                assert transition.at_us >= leased_at + LEASE_SECONDS * 1_000_000, f"reaped too early: {where}"
            if verb == "release":
                attempts -= 1
            leased_at = None
        else:
            assert verb in ("promote", "free"), where
        assert transition.attempt == attempts, f"attempts are exact: {where}"
        ended = transition.state in (tampu.State.DONE, tampu.State.DEAD)
        assert ended == (transition is story[-1]), f"an end is the end, and there is one: {where}"
        if transition.state is tampu.State.DEAD:
            assert attempts == max_attempts, f"died early: {where}"
