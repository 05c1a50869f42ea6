"""The engine and the reference model, driven side by side by Hypothesis with a fake clock."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import ClassVar
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tampu
from tampu.broker import access
from tampu.engines.port import Cancel, Settle, SettleItem, Sweep, Trim
from tampu.model.states import WAITING
from tests.model import checks
from tests.model.entries import SECOND, Entry, New
from tests.model.reference import Model, Refused
from tests.model.stores import Place
from tests.model.strategies import (
    HERE,
    START,
    TENANTS,
    VERBS,
    changes,
    mostly_none,
    new_messages,
    now_and_then,
    places,
    plain_messages,
    rarely,
    said,
    seconds,
    settlement,
    some,
    times,
    written,
)


class FakeClock:
    def __init__(self) -> None:
        self.at = START

    def now(self) -> int:
        return self.at


class SideBySide(RuleBasedStateMachine):
    """Every rule does one thing to both and compares the answers; the invariants compare everything else."""

    place_of: ClassVar[type[Place]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.model = Model(dict(HERE), self.clock.at)
        self.place = self.place_of()
        self.favourites: list[tuple[str, str]] = []
        self.receipts: list[tuple[str, str, str]] = []
        """(tenant, id, receipt) of every claim there ever was."""
        # Receipts decide in which order leases that ran out together come back: a replay must draw the same ones.
        self.dice = mock.patch("secrets.randbits", random.Random(1).getrandbits)
        self.dice.start()
        self.open()

    def open(self) -> None:
        first = tampu.open(
            self.place.url, tenant=TENANTS[0], maintenance=False, clock=self.clock, durability=self.place.durability
        )
        self.place.opened(access.engine(first))
        second = tampu.Store(access.core(first), TENANTS[1], on_close=lambda: None)
        self.store = dict(zip(TENANTS, (first, second), strict=True))

    @initialize(favourites=st.lists(places, min_size=1, max_size=3, unique=True))
    def configure(self, favourites: list[tuple[str, str]]) -> None:
        """A run keeps mostly to a few queues, so that much happens in each."""
        self.favourites = favourites
        for store in self.store.values():
            store.queues.put(
                "*", max_attempts=3, lease=10, backoff=[2, 5], idempotency_window=30, result_ttl=20, retention=60
            )
        for (tenant, name), rules in HERE.items():
            self.store[tenant].queues.put(name, **changes(rules))

    def teardown(self) -> None:
        try:
            if self.store[TENANTS[0]].queues.list():
                checks.same_messages(self.store, self.model, self.place.unordered, everywhere=True)
            checks.same_when_asked_for(self.store, self.model)
            checks.journal_tells_the_same(self.store, self.model)
            findings = {what: grade for what, grade, _ in self.store[TENANTS[0]].check()}
            assert findings["indexes"] == findings.get("file", "ok") == "ok"
        finally:
            self.dice.stop()
            self.store[TENANTS[0]].close()
            self.place.remove()

    @invariant()
    def engine_and_model_agree(self) -> None:
        if self.store[TENANTS[0]].queues.list():
            checks.same_messages(self.store, self.model, self.place.unordered)
            self.place.agree(access.engine(self.store[TENANTS[0]]), self.model)

    # -- publish

    @rule(pick=some, new=new_messages)
    def publish(self, pick: int, new: New) -> None:
        self._publish(self._favourite(pick), [new])

    @rule(pick=some, news=st.lists(new_messages, min_size=1, max_size=4))
    def publish_many(self, pick: int, news: list[New]) -> None:
        self._publish(self._favourite(pick), news)

    @rule(pick=some, news=st.lists(plain_messages, min_size=1, max_size=5))
    def publish_plain(self, pick: int, news: list[New]) -> None:
        self._publish(self._favourite(pick), news)

    @rule(place=places, new=new_messages)
    def publish_anywhere(self, place: tuple[str, str], new: New) -> None:
        self._publish(place, [new])

    def _favourite(self, pick: int) -> tuple[str, str]:
        return self.favourites[pick % len(self.favourites)]

    def _publish(self, place: tuple[str, str], news: list[New]) -> None:
        news = [replace(n, deadline=None if n.deadline is None else self.clock.at + n.deadline) for n in news]
        tenant, queue = place
        try:
            made = self.store[tenant].publish_many(queue, [written(new) for new in news])
        except tampu.TampuError as error:
            with pytest.raises(Refused, match=f"^{error.code}$"):
                self.model.publish(tenant, queue, news, None)
            return
        known = {id for owner, id in self.model.entries if owner == tenant}
        expected = self.model.publish(tenant, queue, news, [m.id for m in made])
        for message, entry in zip(made, expected, strict=True):
            id = entry.id if isinstance(entry, Entry) else entry
            assert message.id == id
            assert message.duplicate == (id in known or isinstance(entry, str)), "says if it was there before"
            known.add(id)

    # -- claim

    @rule(pick=some, limit=st.integers(1, 2), lease=mostly_none(1, 4, 25))
    def claim(self, pick: int, limit: int, lease: int | None) -> None:
        tenant, queue = self._favourite(pick)
        self._claim(tenant, [queue], limit, lease)

    @rule(pick=some, limit=st.integers(1, 6), lease=mostly_none(1, 4, 25))
    def claim_where_something_waits(self, pick: int, limit: int, lease: int | None) -> None:
        waiting = [e for e in self.model.entries.values() if e.state == "ready"]
        entry = waiting[-1 - pick % len(waiting)] if waiting else None
        self._claim(*((entry.tenant, [entry.queue]) if entry else ("north", ["fifo"])), limit, lease)

    @rule(tenant=st.sampled_from(TENANTS), several=st.lists(places, min_size=1, max_size=4), limit=st.integers(1, 8))
    def claim_from_several(self, tenant: str, several: list[tuple[str, str]], limit: int) -> None:
        queues = [name for owner, name in [*several, *self.favourites] if owner == tenant]
        self._claim(tenant, list(dict.fromkeys([*queues, "nowhere"])), limit, None)

    def _claim(self, tenant: str, queues: list[str], limit: int, lease: int | None) -> None:
        lease_us = None if lease is None else lease * SECOND
        blocked = all(self.model.status.get((tenant, queue)) in ("paused", "closed") for queue in queues)
        chooses = self.model.lets_choose()
        if not blocked and (chooses or not self.place.sweeps_everywhere):
            access.core(self.store[tenant]).coalescer.submit(Sweep(1000))
        if not blocked and chooses:
            self.model.sweep()
            checks.same_messages(self.store, self.model, self.place.unordered)
        leases = self.store[tenant].claim(queues, limit=limit, lease=lease, worker="w")
        if blocked:
            assert leases == []
            return
        self.model.sweep()
        self._take_expired(tenant, queues)
        left = list(leases)
        for queue in queues:
            expected = self.model.claimable(tenant, queue, limit - (len(leases) - len(left)))
            got = [self.model.entries[tenant, lease.id] for lease in left[: len(expected)]]
            assert [e.queue for e in got] == [queue] * len(expected)
            if got:
                self.model.in_line(got, tenant, queue)
            for lease_, entry in zip(left, got, strict=False):
                self.model.lease(entry, lease_.receipt, lease_us)
                assert (lease_.attempt, lease_.until_us) == (entry.attempts, entry.until)
                assert lease_.payload == entry.payload
                assert lease_.receipt not in {receipt for _, _, receipt in self.receipts}, "receipts never repeat"
                self.receipts.append((tenant, entry.id, lease_.receipt))
            self.model.spend(got)
            del left[: len(expected)]
        assert left == [], "claimed more than there was"

    def _take_expired(self, tenant: str, queues: list[str]) -> None:
        late = self.model.late(tenant, [queue for queue in queues if (tenant, queue) in HERE])
        self.model.expire(e for e in late if self.store[tenant].get(e.id).state == "expired")

    # -- settle

    @precondition(lambda self: any(e.state == "leased" for e in self.model.entries.values()))
    @rule(
        picks=st.lists(st.tuples(st.sampled_from(VERBS), some, now_and_then, times(0, 3)), min_size=1, max_size=4),
        foreign=rarely,
    )
    def settle(self, picks: list[tuple[str, int, bool, int | None]], foreign: bool) -> None:
        chosen = [(verb, *self._receipt(pick, stale), extra) for verb, pick, stale, extra in picks]
        tenant = chosen[0][1]
        tenant = TENANTS[1 - TENANTS.index(tenant)] if foreign else tenant
        items = [(verb, id, receipt, extra) for verb, _, id, receipt, extra in chosen]
        outcomes = self.store[tenant].settle([settlement(*item) for item in items])
        assert [said(outcome) for outcome in outcomes] == self.model.settle(tenant, items)

    @precondition(lambda self: self.receipts)
    @rule(pick=some, stale=now_and_then, to=some, news=st.lists(plain_messages, min_size=1, max_size=3))
    def hand_on(self, pick: int, stale: bool, to: int, news: list[New]) -> None:
        """A unit: the ack of a message, and what follows from it in some queue."""
        tenant, id, receipt = self._receipt(pick, stale)
        queues = sorted(name for owner, name in HERE if owner == tenant)
        queue = queues[to % len(queues)]
        try:
            with self.store[tenant].atomic() as unit:
                acked = unit.ack(receipt)
                made = unit.publish_many(queue, [written(new) for new in news])
        except tampu.TampuError as error:
            with pytest.raises(Refused, match=rf"\b{error.code}\b"):
                self.model.hand_on(tenant, id, receipt, queue, news, None)
            return
        expected = self.model.hand_on(tenant, id, receipt, queue, news, [m.id for m in made.value])
        assert acked.value.state == "done"
        assert [m.id for m in made.value] == [e.id if isinstance(e, Entry) else e for e in expected]

    @precondition(lambda self: self.receipts)
    @rule(verb=st.sampled_from(VERBS), pick=some, stale=st.booleans(), twice=st.booleans())
    def settle_one(self, verb: str, pick: int, stale: bool, twice: bool) -> None:
        tenant, id, receipt = self._receipt(pick, stale)
        for _ in range(1 + twice):
            expected = self.model.settle(tenant, [(verb, id, receipt, None)])
            try:
                getattr(self.store[tenant], verb)(receipt, **({"reason": "bad"} if verb == "reject" else {}))
                assert expected != ["lease_lost"]
            except tampu.LeaseLost:
                assert expected == ["lease_lost"]

    @precondition(lambda self: self.receipts)
    @rule(pick=some, stale=now_and_then, twice=st.booleans())
    def hold(self, pick: int, stale: bool, twice: bool) -> None:
        """A release that holds the message, as policies ask for it."""
        tenant, id, receipt = self._receipt(pick, stale)
        queue, _, _ = receipt.rpartition("/")
        call = Settle(tenant, [SettleItem("release", queue, receipt, hold="ask")])
        for _ in range(1 + twice):
            (outcome,) = access.core(self.store[tenant]).coalescer.submit(call)
            assert [said(outcome)] == self.model.settle(tenant, [("release", id, receipt, "ask")])

    def _receipt(self, pick: int, stale: bool) -> tuple[str, str, str]:
        """A current lease, or an old receipt, best of a message that somebody else has now."""
        leased = {(e.tenant, e.id): e.receipt for e in self.model.entries.values() if e.state == "leased"}
        current = [r for r in self.receipts if leased.get(r[:2]) == r[2]]
        if stale or not current:
            choices = [r for r in self.receipts if r[:2] in leased and r not in current] or self.receipts
        else:
            choices = current
        return choices[-1 - pick % len(choices)]

    @precondition(lambda self: self.receipts)
    @rule(picks=st.lists(some, min_size=1, max_size=3), stale=st.booleans(), by=mostly_none(0.5, 2, 6, 15, 40))
    def extend(self, picks: list[int], stale: bool, by: float | None) -> None:
        for pick in picks:
            tenant, id, receipt = self._receipt(pick, stale)
            try:
                self.model.extend(tenant, id, receipt, None if by is None else round(by * SECOND))
            except Refused:
                with pytest.raises(tampu.LeaseLost):
                    self.store[tenant].extend(receipt, by)
            else:
                self.store[tenant].extend(receipt, by)

    # -- time

    @rule(step=seconds)
    def wait(self, step: int) -> None:
        self._pass(step)

    @rule(pick=st.integers(0, 3))
    def wait_for_what_is_due(self, pick: int) -> None:
        """To the moment when a lease, a delay or an expiry is over."""
        entries = self.model.entries.values()
        due = {e.until for e in entries if e.state == "leased"} | {e.run_at for e in entries if e.state == "delayed"}
        due |= {e.expires for e in entries if e.state in WAITING}
        ahead = sorted(at for at in due if at is not None and at > self.clock.at)
        if ahead:
            self._pass(ahead[min(pick, len(ahead) - 1)] - self.clock.at)

    def _pass(self, step: int) -> None:
        self.clock.at += step
        self.model.now = self.clock.at

    @rule()
    def sweep(self) -> None:
        swept = access.core(self.store[TENANTS[0]]).coalescer.submit(Sweep(1000))
        self.model.sweep()
        assert swept.next_us is None or swept.next_us > self.clock.at or self._came_back_late()

    def _came_back_late(self) -> bool:
        return any(self.model.late(tenant, [queue]) for tenant, queue in HERE)

    # -- people

    @precondition(lambda self: self.model.entries)
    @rule(picks=st.lists(some, min_size=1, max_size=3), dead=mostly_none("refused", "bad"))
    def cancel(self, picks: list[int], dead: str | None) -> None:
        chosen = [self._entry(pick) for pick in picks]
        tenant, ids = chosen[0].tenant, [e.id for e in chosen]
        outcomes = access.core(self.store[tenant]).coalescer.submit(Cancel(tenant, ids, dead))
        assert [said(o) for o in outcomes] == self.model.cancel(tenant, ids, dead)

    @precondition(lambda self: any(e.state == "held" for e in self.model.entries.values()))
    @rule(pick=some)
    def free(self, pick: int) -> None:
        entry = self._entry(pick, "held")
        (outcome,) = self.store[entry.tenant].free(entry.id)
        assert said(outcome) == self.model.free(entry.tenant, entry.id)

    @precondition(lambda self: any(e.state == "dead" for e in self.model.entries.values()))
    @rule(pick=some, by_id=st.booleans(), limit=st.sampled_from([None, 1, 2]))
    def replay(self, pick: int, by_id: bool, limit: int | None) -> None:
        entry = self._entry(pick, "dead")
        store = self.store[entry.tenant]
        if by_id:
            assert len(store.replay(entry.queue, ids=[entry.id])) == 1
            self.model.replay(entry)
            return
        dead = self.model.of(entry.tenant, entry.queue, "dead")[:limit]
        assert len(store.replay(entry.queue, where={}, limit=limit)) == len(dead)
        for each in dead:
            self.model.replay(each)

    def _entry(self, pick: int, *states: str) -> Entry:
        entries = [e for e in self.model.entries.values() if not states or e.state in states]
        return entries[-1 - pick % len(entries)]

    # -- maintenance: one rule, so that most steps move messages

    @rule(what=st.sampled_from(["purge", "purge", "trim", "steer", "steer"]), place=places, pick=some)
    def keep_harness(self, what: str, place: tuple[str, str], pick: int) -> None:
        getattr(self, f"_{what}")(self._favourite(pick) if pick % 2 else place, pick)

    def _purge(self, place: tuple[str, str], pick: int) -> None:
        state = ("done", "dead", "cancelled", "expired", "ready", "delayed", "held")[pick % 7]
        assert self.store[place[0]].purge(place[1], state=state) == self.model.purge(*place, state)

    def _trim(self, _place: tuple[str, str], _pick: int) -> None:
        retention = {place: rules.retention for place, rules in HERE.items()}
        access.core(self.store[TENANTS[0]]).coalescer.submit(Trim(retention, 60 * SECOND, 10**15, 10_000))
        self.model.trim()

    def _steer(self, place: tuple[str, str], pick: int) -> None:
        """Pause, drain or close a queue; if any is not open, that one is opened again."""
        shut = [place for place, status in self.model.status.items() if status != "open"]
        place = shut[0] if shut else place
        verb, status = (("pause", "paused"), ("drain", "draining"), ("close_queue", "closed"))[pick % 3]
        verb, status = ("resume", "open") if shut else (verb, status)
        getattr(self.store[place[0]], verb)(place[1])
        self.model.status[place] = status

    # -- reopen

    @precondition(lambda self: self.place.can_reopen)
    @rule(abruptly=st.booleans())
    def reopen(self, abruptly: bool) -> None:
        """Close and open; or, as after a kill, open what is on the disk at this moment."""
        checks.journal_tells_the_same(self.store, self.model)
        if abruptly:
            self.place.abandon()
        self.store[TENANTS[0]].close()
        self.open()
