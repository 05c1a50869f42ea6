"""A reference of flows in memory: a random graph, and what becomes of each member by the rules in one place."""

from __future__ import annotations

import random

import tampu
from tampu import FlowMember, NewMessage

_OVER = {"done", "dead", "cancelled", "skipped"}


class FlowModel:
    """Messages go to one queue, in the order of their numbers; each is worked on or cancelled at random."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        size = chance.randint(5, 14)
        self._parents = [
            sorted(chance.sample(range(n), chance.randint(0, min(n, 4)))) if n else [] for n in range(size)
        ]
        self._policies = [chance.choice(("fail", "fail", "skip", "run")) for _ in range(size)]
        self._states = ["held" if parents else "ready" for parents in self._parents]
        self._gone: set[int] = set()
        """Cancelled by somebody, or because of one that was."""
        self.freed = 0
        self._replays = 3

    def members(self) -> list[FlowMember]:
        return [
            FlowMember(
                queue=f"q{n % 3}", message=NewMessage(n), after=parents, on_failure=policy,  # type: ignore[arg-type]  # one of the three
                into="" if parents and n % 2 else None,
            )
            for n, (parents, policy) in enumerate(zip(self._parents, self._policies, strict=True))
        ]  # fmt: skip

    def states(self) -> list[str]:
        return self._states

    def dead(self) -> list[int]:
        return [n for n, state in enumerate(self._states) if state == "dead"] if self._replays else []

    def status(self) -> str:
        open_ones = [state for state in self._states if state not in _OVER and state != "blocked"]
        if open_ones:
            return "running"
        waited_for = {parent for parents in self._parents for parent in parents}
        bad = [
            n
            for n, state in enumerate(self._states)
            if state == "blocked" or (n not in waited_for and state in ("dead", "cancelled"))
        ]
        return "failed" if bad else "done"

    def step(self, store: tampu.Store, ids: list[str]) -> None:
        """Something happens to one member, in the store and here."""
        chance = self._chance
        ready = [n for n, state in enumerate(self._states) if state == "ready"]
        waiting = [n for n, state in enumerate(self._states) if state in ("held", "blocked")]
        dead = self.dead()
        if dead and (not ready or chance.random() < 0.3):
            self._replays -= 1
            n = chance.choice(dead)
            store.replay(f"q{n % 3}", ids=[ids[n]])
            self._set(n, "ready")
        elif waiting and chance.random() < 0.08:
            n = chance.choice(waiting)
            store.cancel(ids[n])
            self._set(n, "cancelled")
        elif ready:
            n = chance.choice(ready)
            if chance.random() < 0.1:
                store.cancel(ids[n])
                self._set(n, "cancelled")
                return
            lease = self._claimed(store, n, ids)
            if chance.random() < 0.25:
                store.reject(lease, "broken")
                self._set(n, "dead")
            else:
                store.ack(lease, n)
                self._set(n, "done")

    def _claimed(self, store: tampu.Store, n: int, ids: list[str]) -> tampu.Lease:
        """The lease of this member; others of its queue are given back."""
        leases = store.claim(f"q{n % 3}", limit=100)
        mine = next(lease for lease in leases if lease.id == ids[n])
        for lease in leases:
            if lease is not mine:
                store.release(lease)
        return mine

    def _set(self, n: int, state: str) -> None:
        self._states[n] = state
        if state == "cancelled":
            self._gone.add(n)
        while self._follow():
            pass

    def _follow(self) -> bool:
        """Apply the rules once; True if something has changed."""
        for n, parents in enumerate(self._parents):
            if self._states[n] not in ("held", "blocked") or not parents:
                continue
            found = [self._states[parent] for parent in parents]
            new = self._verdict(n, found)
            if new != self._states[n]:
                self.freed += new == "ready"
                if new == "cancelled":
                    self._gone.add(n)
                self._states[n] = new
                return True
        return False

    def _verdict(self, n: int, parents: list[str]) -> str:
        if any(state not in _OVER and state != "blocked" for state in parents):
            return "held"
        if all(state == "done" for state in parents) or self._policies[n] == "run":
            return "ready"
        if self._policies[n] == "skip":
            return "skipped"
        if "dead" in parents or "blocked" in parents:
            return "blocked"
        return "cancelled" if "cancelled" in parents else "skipped"
