"""The reference model: what a store must do, in plain lists and sorts, with no thought of speed.

It knows nothing of SQL or of any engine. Where the promises leave the order open (which of two leases that ran out
together comes back first), messages share a place, and the test lets the engine choose among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tampu.model.states import FINAL, LIVE, WAITING
from tests.model.entries import Entry, New, Rules

ENDED = FINAL


class Refused(Exception):
    """The call must be refused with this code, and change nothing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Model:
    rules: dict[tuple[str, str], Rules]
    now: int
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    """By (tenant, id)."""
    removed: set[tuple[str, str]] = field(default_factory=set)
    status: dict[tuple[str, str], str] = field(default_factory=dict)
    remembered: dict[tuple[str, str, str], tuple[str, tuple[Any, ...], int]] = field(default_factory=dict)
    """Idempotency keys: (tenant, key) → (id, body, until)."""
    spent: dict[tuple[str, str, str | None], int] = field(default_factory=dict)
    """Of groups with a rate: when all their tokens are there again."""
    _ticks: int = 0
    _counter: int = 0
    _tied: bool = False

    # -- looking

    def of(self, tenant: str, queue: str, *states: str) -> list[Entry]:
        """Messages of a queue in these states; of one state, in the order of its index."""
        found = [e for e in self.entries.values() if (e.tenant, e.queue) == (tenant, queue) and e.state in states]
        return sorted(found, key=self._order) if len(states) == 1 else found

    @staticmethod
    def _order(entry: Entry) -> tuple[Any, ...]:
        if entry.state == "ready":
            return (entry.rank, entry.place)
        if entry.state == "delayed":
            return (entry.run_at, entry.n)
        return (entry.at, entry.n) if entry.state == "dead" else (entry.n,)

    def find(self, tenant: str, id: str) -> Entry | None:
        return self.entries.get((tenant, id))

    # -- moves

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What becomes ready inside comes at one moment: its order is not promised."""
        self._ticks += 1
        self._tied = True
        yield
        self._tied = False

    def _back(self) -> tuple[int, int]:
        if not self._tied:
            self._ticks += 1
        return (self._ticks, 0)

    def _start(self, entry: Entry) -> None:
        if entry.run_at is not None and entry.run_at > self.now:
            entry.state = "delayed"
        else:
            entry.state, entry.run_at, entry.place, entry.turn = "ready", None, self._back(), None

    def _admit(self, entry: Entry) -> None:
        """In a queue with group order, only one message of a group goes on; with a limit, as many as that."""
        rules = self.rules[entry.tenant, entry.queue]
        later = entry.run_at is not None and entry.run_at > self.now
        if entry.group is not None and (rules.group_order or not later):
            if self._is_full(entry):
                entry.state, entry.reason, entry.waits_turn = "held", "group", True
                return
            self._leader(entry)
        self._start(entry)

    def _is_full(self, entry: Entry) -> bool:
        rules = self.rules[entry.tenant, entry.queue]
        taken = sum(e.has_turn and self._same_group(e, entry) for e in self.entries.values())
        places = 1 if rules.group_order else rules.group_concurrency or float("inf")
        return taken >= places or bool(rules.group_every and self._waiting(entry) >= rules.group_burst)

    def _waiting(self, entry: Entry) -> int:
        """How many others of its group may go and have not been claimed."""
        others = [e for e in self.entries.values() if e is not entry and self._same_group(e, entry)]
        return sum(e.has_turn and e.state != "leased" for e in others)

    def _leader(self, entry: Entry) -> None:
        """It may go as soon as there is a token for it, after the others that wait for theirs."""
        entry.has_turn = True
        self._wait_for_token(entry, self._waiting(entry) + 1)

    def _wait_for_token(self, entry: Entry, place: int) -> None:
        rules = self.rules[entry.tenant, entry.queue]
        if rules.group_every:
            spent = max(self.spent.get((entry.tenant, entry.queue, entry.group), 0), self.now)
            due = spent - (rules.group_burst - place) * rules.group_every
            if due > self.now:
                entry.run_at = max(entry.run_at or 0, due)

    def spend(self, claimed: Sequence[Entry]) -> None:
        """These were claimed: each costs a token, and the next of its group may go when there is another."""
        with self._together():
            groups: dict[tuple[str, str, str], Entry] = {}
            for entry in claimed:
                rules = self.rules[entry.tenant, entry.queue]
                if entry.group is not None and rules.group_every:
                    group = (entry.tenant, entry.queue, entry.group)
                    self.spent[group] = max(self.spent.get(group, 0), self.now) + rules.group_every
                    entry.has_turn = rules.group_order
                    groups[group] = entry
            for entry in groups.values():  # all tokens are spent before the next get theirs
                self._fill(entry)

    def _resume(self, entry: Entry) -> None:
        """Its time has come."""
        entry.run_at = None
        if entry.group is None or entry.has_turn:
            if entry.group is not None and self.rules[entry.tenant, entry.queue].group_order:
                self._wait_for_token(entry, 1)
            self._start(entry)
            return
        self._admit(entry)
        if entry.waits_turn:
            entry.settled = None

    @staticmethod
    def _same_group(a: Entry, b: Entry) -> bool:
        return (a.tenant, a.queue, a.group) == (b.tenant, b.queue, b.group)

    def _pass_turn(self, entry: Entry) -> None:
        if not entry.has_turn:
            return
        entry.has_turn = False
        self._fill(entry)

    def _fill(self, entry: Entry) -> None:
        """Who waits for a place of this one's group goes on, while there are any."""
        waiting = [e for e in self.entries.values() if e.waits_turn and self._same_group(e, entry)]
        for next_leader in sorted(waiting, key=lambda e: e.n):
            if self._is_full(next_leader):
                break
            next_leader.waits_turn, next_leader.reason = False, None
            self._leader(next_leader)
            self._start(next_leader)

    def _take_marks(self, entry: Entry) -> None:
        """It waits (again): the key is its own unless another message that waits has it."""
        entry.waits_since = self._ticks
        if entry.key is not None and self._key_holder(entry.tenant, entry.queue, entry.key) is None:
            entry.has_key = True

    def _key_holder(self, tenant: str, queue: str, key: str) -> Entry | None:
        holders = [e for e in self.of(tenant, queue, *WAITING) if e.has_key and e.key == key]
        assert len(holders) <= 1, "a key has one holder"
        return holders[0] if holders else None

    def _end(self, entry: Entry, state: str, reason: str | None = None) -> None:
        entry.state, entry.at, entry.reason, entry.run_at = state, self.now, reason, None
        entry.has_key = entry.waits_turn = entry.asked = False
        self._pass_turn(entry)

    # -- publish

    def publish(self, tenant: str, queue: str, news: Sequence[New], ids: Sequence[str] | None) -> list[Entry | str]:
        """All or none. ``ids`` are what the engine answered; None when it refused. Known ids answer as text."""
        if self.status.get((tenant, queue)) in ("draining", "closed"):
            raise Refused("queue_closed")
        with self._all_or_none():
            answered = ids if ids is not None else [new.id or f"refused-{i}" for i, new in enumerate(news)]
            return [self._publish(tenant, queue, new, id) for new, id in zip(news, answered, strict=True)]

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        before = (dict(self.entries), {e: dict(vars(e)) for e in self.entries.values()}, dict(self.remembered))
        try:
            yield
        except Refused:
            self.entries, saved, self.remembered = before
            for entry, values in saved.items():
                vars(entry).update(values)
            raise

    def hand_on(
        self, tenant: str, id: str, receipt: str, queue: str, news: Sequence[New], ids: Sequence[str] | None
    ) -> list[Entry | str]:
        """An ack and a publish as one unit. Refused with all codes that may be the reason."""
        entry = self.find(tenant, id)
        lost = entry is None or entry.state != "leased" or entry.receipt != receipt
        with self._all_or_none():
            if not lost:
                self.settle(tenant, [("ack", id, receipt, None)])
            try:
                made = self.publish(tenant, queue, news, ids)
            except Refused as refused:
                raise Refused(f"{refused.code} lease_lost" if lost else refused.code) from None
            if lost:
                raise Refused("lease_lost")
            return made

    def _publish(self, tenant: str, queue: str, new: New, id: str) -> Entry | str:
        rules = self.rules[tenant, queue]
        known = self._known(tenant, queue, new)
        if known is not None:
            return known
        if new.key is not None:
            waiting = self._key_holder(tenant, queue, new.key)
            if waiting is not None:
                waiting.payload = new.payload
                self._remember(tenant, queue, new, waiting.id, rules)
                return waiting
        if rules.max_depth and len(self.of(tenant, queue, *LIVE)) >= rules.max_depth:
            raise Refused("queue_full")
        assert (tenant, id) not in self.entries, "a new message has a new id"
        assert new.id in (None, id)
        self._counter += 1
        ttl = rules.ttl if new.ttl is None else new.ttl
        ends = [self.now + ttl] if ttl else []
        if rules.on_deadline != "keep" and new.deadline is not None:
            ends.append(new.deadline)
        entry = Entry(
            id, tenant, queue, self._counter, new.payload,
            rank=self._rank(rules, new),
            max_attempts=new.max_attempts or rules.max_attempts,
            expires=min(ends) if ends else None,
            key=new.key,
            group=new.group if rules.group_order or rules.group_concurrency or rules.group_every else None,
            flow=(new.group or "") if rules.ordering == "fair" else None,
            run_at=self.now + new.delay if new.delay else None,
            dead_at=new.deadline if rules.on_deadline == "dead" else None,
            own_attempts=new.max_attempts is not None,
        )  # fmt: skip
        self.entries[tenant, id] = entry
        self._take_marks(entry)
        self._remember(tenant, queue, new, id, rules)
        if new.hold:
            entry.state, entry.reason = "held", new.hold
        else:
            self._admit(entry)
        return entry

    def _known(self, tenant: str, queue: str, new: New) -> Entry | str | None:
        if new.idempotency_key is not None:
            first = self.remembered.get((tenant, queue, new.idempotency_key))
            if first is not None and first[2] > self.now:
                if first[1] != new.body():
                    raise Refused("idempotency_conflict")
                return first[0]
        found = None if new.id is None else self.find(tenant, new.id)
        if found is not None and found.queue != queue:
            raise Refused("idempotency_conflict")
        return found

    def _remember(self, tenant: str, queue: str, new: New, id: str, rules: Rules) -> None:
        if new.idempotency_key is not None:
            self.remembered[tenant, queue, new.idempotency_key] = (id, new.body(), self.now + rules.idempotency)

    def _rank(self, rules: Rules, new: New) -> float:
        if rules.ordering == "priority":
            return self.now - new.priority * rules.ageing if rules.ageing else -new.priority
        if rules.ordering == "deadline":
            return float("inf") if new.deadline is None else new.deadline
        return 0

    # -- time

    def sweep(self) -> None:
        """Expire, reap, promote, over all tenants."""
        with self._together():
            self._expire(self._all(lambda e: e.state in WAITING and e.expires is not None and e.expires <= self.now))
        with self._together():
            for entry in self._all(lambda e: e.state == "leased" and e.until <= self.now):
                self._reap(entry)
        due = self._all(lambda e: e.state == "delayed" and e.run_at <= self.now)
        for entry in sorted(due, key=lambda e: (e.run_at, e.n)):
            self._resume(entry)

    def lets_choose(self) -> bool:
        """Will the sweep reap messages of a group with a rate? Who gets which token then is not promised."""
        return any(
            e.state == "leased"
            and e.until <= self.now
            and e.group is not None
            and self.rules[e.tenant, e.queue].group_every
            for e in self.entries.values()
        )

    def _all(self, wanted: Any) -> list[Entry]:
        return [e for e in self.entries.values() if wanted(e)]

    def _reap(self, entry: Entry) -> None:
        entry.failures += 1
        entry.settled = entry.receipt = None
        if entry.asked:
            self._end(entry, "cancelled")
        elif entry.attempts >= entry.max_attempts:
            self._end(entry, "dead", "lease_expired")
        else:
            self._return(entry)

    def _return(self, entry: Entry) -> None:
        entry.receipt = None
        entry.state = ""
        self._take_marks(entry)
        rules = self.rules[entry.tenant, entry.queue]
        if entry.group is not None and rules.group_every and entry.run_at is None:
            place = self._waiting(entry) + 1
            entry.has_turn = place <= rules.group_burst
            entry.tied = (self._ticks, entry.group)
            self._wait_for_token(entry, place)
        self._start(entry)

    def late(self, tenant: str, queues: Iterable[str]) -> list[Entry]:
        """Ready, and past their expiry: their leases ran out, and no sweep has come by since."""
        ready = [e for queue in queues for e in self.of(tenant, queue, "ready")]
        return [e for e in ready if e.expires is not None and e.expires <= self.now]

    def expire(self, entries: Iterable[Entry]) -> None:
        with self._together():
            self._expire(list(entries))

    def _expire(self, entries: Sequence[Entry]) -> None:
        """All of them, before anybody goes on in their places."""
        left = self._leaving(entries)
        for entry in entries:
            entry.settled = None
            if entry.dead_at is not None and entry.dead_at == entry.expires:
                self._end(entry, "dead", "deadline_passed")
            else:
                self._end(entry, "expired")
        for entry in left:
            self._fill(entry)

    @staticmethod
    def _leaving(entries: Iterable[Entry]) -> list[Entry]:
        """Who of these has a turn; they have none any more."""
        left = [entry for entry in entries if entry.has_turn]
        for entry in left:
            entry.has_turn = False
        return left

    # -- claim

    def claimable(self, tenant: str, queue: str, limit: int) -> list[Entry]:
        """What a claim may take from a queue, first in line first."""
        rules = self.rules.get((tenant, queue))
        if rules is None or self.status.get((tenant, queue)) in ("paused", "closed"):
            return []
        if rules.max_in_flight:
            limit = min(limit, rules.max_in_flight - len(self.of(tenant, queue, "leased")))
        ready = [e for e in self.of(tenant, queue, "ready") if e.expires is None or e.expires > self.now]
        return ready[: max(limit, 0)]

    def in_line(self, got: list[Entry], tenant: str, queue: str) -> None:
        """These were the first of a queue. In a fair one each group keeps its order and nobody's turn changes; among
        those that have become ready since the last look, whose turn it is is the engine's to say."""
        ready = self.claimable(tenant, queue, len(self.entries))
        if self.rules[tenant, queue].ordering != "fair":
            assert [(e.rank, e.place) for e in got] == [(e.rank, e.place) for e in ready[: len(got)]]
            return
        for flow in {e.flow for e in got}:
            mine = [e.place for e in got if e.flow == flow]
            assert mine == [e.place for e in ready if e.flow == flow][: len(mine)], f"order of group {flow}"
        turns = [e.turn for e in got if e.turn is not None]
        assert turns == sorted(e.turn for e in ready if e.turn is not None)[: len(turns)], "whose turn it was"

    def lease(self, entry: Entry, receipt: str, lease: int | None) -> None:
        assert entry.state == "ready", "only ready messages are delivered"
        assert entry.expires is None or entry.expires > self.now, "nothing past its expiry is delivered"
        entry.state, entry.receipt, entry.settled = "leased", receipt, None
        entry.attempts += 1
        assert entry.attempts <= entry.max_attempts, "at most max_attempts deliveries"
        entry.until = self.now + (lease or self.rules[entry.tenant, entry.queue].lease)
        entry.has_key = entry.asked = False

    # -- settle and extend

    def settle(self, tenant: str, items: Sequence[tuple[str, str, str, Any]]) -> list[str]:
        """Items are (verb, id, receipt, delay, result or hold); the state each is in then, or ``lease_lost``."""
        with self._together():
            return [self._settle(tenant, *item) for item in items]

    def _settle(self, tenant: str, verb: str, id: str, receipt: str, extra: Any) -> str:
        entry = self.find(tenant, id)
        if entry is None:
            return "lease_lost"
        if entry.state != "leased" or entry.receipt != receipt:
            return entry.state if entry.settled == (receipt, verb) else "lease_lost"
        entry.receipt = None
        entry.settled = (receipt, verb)
        if verb == "ack":
            if extra is not None:
                entry.result = extra
                entry.result_until = self.now + self.rules[tenant, entry.queue].result_ttl
            self._end(entry, "done")
        elif verb == "release":
            entry.attempts -= 1
            if entry.asked:
                self._end(entry, "cancelled")
            elif isinstance(extra, str):
                self._hold(entry, extra)
            else:
                self._return(entry)
        else:
            self._fail(entry, verb, extra)
        return entry.state

    def _hold(self, entry: Entry, reason: str) -> None:
        """Its lease ends, and it waits for somebody to free it: its place in its group is another's."""
        entry.state = ""
        self._take_marks(entry)
        entry.state, entry.reason, entry.run_at = "held", reason, None
        self._pass_turn(entry)

    def _fail(self, entry: Entry, verb: str, delay: int | None) -> None:
        entry.failures += 1
        if verb == "reject":
            self._end(entry, "dead", "bad")
        elif entry.asked:
            self._end(entry, "cancelled")
        elif entry.attempts >= entry.max_attempts:
            self._end(entry, "dead", "retries_exhausted")
        else:
            delays = self.rules[entry.tenant, entry.queue].delays
            wait = delays[min(entry.attempts, len(delays)) - 1] if delay is None else delay
            entry.run_at = self.now + wait if wait else None
            self._return(entry)
            if wait and not self.rules[entry.tenant, entry.queue].group_order:
                self._pass_turn(entry)

    def extend(self, tenant: str, id: str, receipt: str, by: int | None) -> Entry:
        entry = self.find(tenant, id)
        if entry is None or entry.state != "leased" or entry.receipt != receipt:
            raise Refused("lease_lost")
        entry.until = self.now + (by or self.rules[tenant, entry.queue].lease)
        return entry

    # -- people

    def cancel(self, tenant: str, ids: Sequence[str], dead: str | None = None) -> list[str]:
        """With ``dead``, what waits is dead for this reason, and leases stay as they are."""
        known = [self.find(tenant, id) for id in dict.fromkeys(ids)]
        left = self._leaving(entry for entry in known if entry is not None and entry.state in WAITING)
        said = [self._cancel(tenant, id) if dead is None else self._kill(tenant, id, dead) for id in ids]
        for entry in left:
            self._fill(entry)
        return said

    def _cancel(self, tenant: str, id: str) -> str:
        entry = self.find(tenant, id)
        if entry is None:
            return "not_found"
        if entry.state in WAITING:
            entry.settled = None
            self._end(entry, "cancelled")
        elif entry.state == "leased":
            entry.asked = True
        elif entry.state != "cancelled":
            return "invalid_state"
        return entry.state

    def _kill(self, tenant: str, id: str, reason: str) -> str:
        entry = self.find(tenant, id)
        if entry is None:
            return "not_found"
        if entry.state in WAITING:
            entry.settled = None
            entry.failures += 1
            self._end(entry, "dead", reason)
        return "dead" if (entry.state, entry.reason) == ("dead", reason) else "invalid_state"

    def free(self, tenant: str, id: str) -> str:
        entry = self.find(tenant, id)
        if entry is None:
            return "not_found"
        if entry.state != "held" or entry.waits_turn:
            return "invalid_state"
        entry.reason = entry.settled = None
        self._admit(entry)
        return entry.state

    def replay(self, entry: Entry) -> None:
        assert entry.state == "dead"
        entry.attempts, entry.settled, entry.reason, entry.state = 0, None, None, ""
        if not entry.own_attempts:
            entry.max_attempts = self.rules[entry.tenant, entry.queue].max_attempts
        if entry.expires is not None and entry.expires <= self.now:
            entry.expires = None
        self._take_marks(entry)
        self._admit(entry)

    def purge(self, tenant: str, queue: str, state: str) -> int:
        gone = self.of(tenant, queue, state)
        self._remove(gone)
        with self._together():
            for entry in gone:
                self._pass_turn(entry)
        return len(gone)

    def trim(self) -> None:
        self._remove(
            e
            for e in list(self.entries.values())
            if e.state in ENDED and e.at <= self.now - self.rules[e.tenant, e.queue].retention
        )
        self.remembered = {k: v for k, v in self.remembered.items() if v[2] > self.now}

    def _remove(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            del self.entries[entry.tenant, entry.id]
            self.removed.add((entry.tenant, entry.id))
