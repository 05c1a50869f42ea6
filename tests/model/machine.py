"""The engine and the reference model, driven side by side by Hypothesis with a fake clock."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tampu
from tampu.engines.port import Sweep, Trim
from tests.model import looking
from tests.model.reference import LIVE, SECOND, Entry, Model, New, Refused, Rules

START = 1_750_000_000 * SECOND
TENANTS = ("north", "south")
QUEUES = {
    "fifo": Rules(),
    "urgent": Rules(ordering="priority"),
    "aged": Rules(ordering="priority", ageing=5 * SECOND),
    "due": Rules(ordering="deadline", max_attempts=2),
    "lanes": Rules(group_order=True),
    "narrow": Rules(max_in_flight=2, retention=15 * SECOND),
    "small": Rules(max_depth=4, ttl=30 * SECOND),
}
HERE = {("north", name): rules for name, rules in QUEUES.items()} | {
    ("south", name): QUEUES[name] for name in ("fifo", "lanes", "small")
}
OWN_IDS = [str(uuid.UUID(int=n)) for n in (1, 2)]
VERBS = {"ack": tampu.Ack, "nack": tampu.Nack, "reject": tampu.Reject, "release": tampu.Release}

places = st.sampled_from(sorted(HERE))
seconds = st.sampled_from([0.001, 0.5, 1, 2, 3, 5, 8, 10, 11, 20, 35, 70]).map(lambda s: round(s * SECOND))
some = st.integers(0, 30)
rarely = st.integers(0, 9).map(lambda n: n == 9)


def often_none(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, None, *values])


def times(*values: float) -> st.SearchStrategy[Any]:
    return often_none(*(round(v * SECOND) for v in values))


new_messages = st.builds(
    New,
    payload=st.integers(0, 2),
    priority=st.integers(-2, 2),
    delay=times(0, 1, 3, 20),
    ttl=times(1, 4, 15, 60),
    deadline=times(1, 5, 30),
    key=often_none("a", "b"),
    idempotency_key=st.sampled_from([None, None, None, "x", "y"]),
    max_attempts=often_none(1, 2),
    group=st.sampled_from(["g", "g", "h", None]),
    hold=st.sampled_from([None] * 6 + ["wait"]),
    id=st.sampled_from([None] * 6 + OWN_IDS),
)
plain_messages = st.builds(New, payload=st.integers(0, 2), priority=st.integers(-2, 2), delay=times(1, 3))


class FakeClock:
    def __init__(self) -> None:
        self.at = START

    def now(self) -> int:
        return self.at


class SideBySide(RuleBasedStateMachine):
    """Every rule does one thing to both and compares the answers; the invariants compare everything else."""

    on_disk: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.model = Model(dict(HERE), self.clock.at)
        self.folder = Path(tempfile.mkdtemp(prefix="tampu-model-")) if self.on_disk else None
        self.path = str(self.folder / "jobs.db") if self.folder else "memory://"
        self.receipts: list[tuple[str, str, str]] = []
        """(tenant, id, receipt) of every claim there ever was."""
        self.open()

    def open(self) -> None:
        first = tampu.open(
            self.path, tenant=TENANTS[0], keepers=False, clock=self.clock, durability="process" if self.folder else None
        )
        second = tampu.Queue(first._core, TENANTS[1], on_close=lambda: None)
        self.q = dict(zip(TENANTS, (first, second), strict=True))

    @initialize()
    def configure(self) -> None:
        for q in self.q.values():
            q.queues.put(
                "*", max_attempts=3, lease=10, backoff=[2, 5], idempotency_window=30, result_ttl=20, retention=60
            )
        for (tenant, name), rules in HERE.items():
            self.q[tenant].queues.put(name, **changes(rules))

    def teardown(self) -> None:
        try:
            looking.same_when_asked_for(self.q, self.model)
            looking.journal_tells_the_same(self.q, self.model)
            findings = {what: grade for what, grade, _ in self.q[TENANTS[0]].check()}
            assert findings["indexes"] == findings["file"] == "ok"
        finally:
            self.q[TENANTS[0]].close()
            if self.folder is not None:
                shutil.rmtree(self.folder)

    @invariant()
    def engine_and_model_agree(self) -> None:
        if self.q[TENANTS[0]].queues.list():
            looking.same_messages(self.q, self.model)
            engine: Any = self.q[TENANTS[0]]._core.engine
            looking.tables_agree(engine._db, self.model)

    # -- publish

    @rule(place=places, new=new_messages)
    def publish(self, place: tuple[str, str], new: New) -> None:
        self._publish(place, [new])

    @rule(place=places, news=st.lists(new_messages, min_size=1, max_size=4))
    def publish_many(self, place: tuple[str, str], news: list[New]) -> None:
        self._publish(place, news)

    @rule(place=places, news=st.lists(plain_messages, min_size=1, max_size=5))
    def publish_plain(self, place: tuple[str, str], news: list[New]) -> None:
        self._publish(place, news)

    def _publish(self, place: tuple[str, str], news: list[New]) -> None:
        news = [replace(n, deadline=None if n.deadline is None else self.clock.at + n.deadline) for n in news]
        tenant, queue = place
        try:
            made = self.q[tenant].publish_many(queue, [written(new) for new in news])
        except tampu.TampuError as error:
            try:
                self.model.publish(tenant, queue, news, None)
            except Refused as refused:
                assert error.code == refused.code
                return
            raise AssertionError(f"refused without a reason: {error}") from error
        known = set(self.model.entries)
        expected = self.model.publish(tenant, queue, news, [m.id for m in made])
        for message, entry in zip(made, expected, strict=True):
            id = entry.id if isinstance(entry, Entry) else entry
            assert message.id == id
            assert message.duplicate == (id in known or isinstance(entry, str)), "says if it was there before"
            known.add(id)

    # -- claim

    @rule(place=places, limit=st.integers(1, 5), lease=often_none(1, 4, 25), more=st.lists(places, max_size=2))
    def claim(self, place: tuple[str, str], limit: int, lease: int | None, more: list[tuple[str, str]]) -> None:
        tenant = place[0]
        queues = list(dict.fromkeys([place[1], *(name for owner, name in more if owner == tenant), "nowhere"]))
        lease_us = None if lease is None else lease * SECOND
        leases = self.q[tenant].claim(queues, limit=limit, lease=lease, worker="w")
        if all(self.model.status.get((tenant, queue)) in ("paused", "closed") for queue in queues):
            assert leases == []
            return
        self.model.sweep()
        self._adopt_expired(tenant, queues)
        left = list(leases)
        for queue in queues:
            expected = self.model.claimable(tenant, queue, limit - (len(leases) - len(left)))
            got = [self.model.entries[lease.id] for lease in left[: len(expected)]]
            assert [(e.queue, e.rank, e.place) for e in got] == [(e.queue, e.rank, e.place) for e in expected]
            for lease_, entry in zip(left, got, strict=False):
                self.model.lease(entry, lease_.receipt, lease_us)
                assert (lease_.attempt, lease_.until_us) == (entry.attempts, entry.until)
                assert lease_.payload == entry.payload
                assert lease_.receipt not in {receipt for _, _, receipt in self.receipts}, "receipts never repeat"
                self.receipts.append((tenant, entry.id, lease_.receipt))
            del left[: len(expected)]
        assert left == [], "claimed more than there was"

    def _adopt_expired(self, tenant: str, queues: list[str]) -> None:
        late = self.model.late(tenant, [queue for queue in queues if (tenant, queue) in HERE])
        self.model.expire(e for e in late if self.q[tenant].get(e.id).state == "expired")

    # -- settle

    @precondition(lambda self: self.receipts)
    @rule(
        picks=st.lists(
            st.tuples(st.sampled_from(sorted(VERBS)), some, rarely, times(0, 3)), min_size=1, max_size=4
        ),
        foreign=rarely,
    )
    def settle(self, picks: list[tuple[str, int, bool, int | None]], foreign: bool) -> None:
        chosen = [(verb, *self._receipt(pick, stale), extra) for verb, pick, stale, extra in picks]
        tenant = chosen[0][1]
        tenant = TENANTS[1 - TENANTS.index(tenant)] if foreign else tenant
        items = [(verb, id, receipt, extra) for verb, _, id, receipt, extra in chosen]
        outcomes = self.q[tenant].settle([settlement(*item) for item in items])
        assert [said(outcome) for outcome in outcomes] == self.model.settle(tenant, items)

    @precondition(lambda self: self.receipts)
    @rule(verb=st.sampled_from(sorted(VERBS)), pick=some, stale=rarely, twice=st.booleans())
    def settle_one(self, verb: str, pick: int, stale: bool, twice: bool) -> None:
        tenant, id, receipt = self._receipt(pick, stale)
        for _ in range(1 + twice):
            expected = self.model.settle(tenant, [(verb, id, receipt, None)])
            try:
                getattr(self.q[tenant], verb)(receipt, **({"reason": "bad"} if verb == "reject" else {}))
                assert expected != ["lease_lost"]
            except tampu.LeaseLost:
                assert expected == ["lease_lost"]

    def _receipt(self, pick: int, stale: bool) -> tuple[str, str, str]:
        """A current lease; now and then, or when there is none, any receipt there ever was."""
        current = [r for r in self.receipts if r[1] in self.model.entries and self.model.entries[r[1]].receipt == r[2]]
        choices = self.receipts if stale or not current else current
        return choices[-1 - pick % len(choices)]

    @precondition(lambda self: self.receipts)
    @rule(pick=some, stale=rarely, by=often_none(0.5, 2, 6, 15, 40))
    def extend(self, pick: int, stale: bool, by: float | None) -> None:
        tenant, id, receipt = self._receipt(pick, stale)
        try:
            entry = self.model.extend(tenant, id, receipt, None if by is None else round(by * SECOND))
        except Refused:
            entry = None
        try:
            self.q[tenant].extend(receipt, by)
            assert entry is not None, "a stale receipt was extended"
        except tampu.LeaseLost:
            assert entry is None

    # -- time

    @rule(step=seconds)
    def wait(self, step: int) -> None:
        self.clock.at += step
        self.model.now = self.clock.at

    @rule()
    def sweep(self) -> None:
        swept = self.q[TENANTS[0]]._core.coalescer.submit(Sweep(1000))
        self.model.sweep()
        assert swept.next_us is None or swept.next_us > self.clock.at or self._came_back_late()

    def _came_back_late(self) -> bool:
        return any(self.model.late(tenant, [queue]) for tenant, queue in HERE)

    @rule()
    def trim(self) -> None:
        retention = {place: rules.retention for place, rules in HERE.items()}
        self.q[TENANTS[0]]._core.coalescer.submit(Trim(retention, 60 * SECOND, 10**15, 10_000))
        self.model.trim()

    # -- people

    @precondition(lambda self: self.model.entries)
    @rule(picks=st.lists(some, min_size=1, max_size=3))
    def cancel(self, picks: list[int]) -> None:
        chosen = [self._entry(pick) for pick in picks]
        tenant = chosen[0].tenant
        outcomes = self.q[tenant].cancel(*(e.id for e in chosen))
        assert [said(o) for o in outcomes] == [self.model.cancel(tenant, e.id) for e in chosen]

    @precondition(lambda self: any(e.state == "held" for e in self.model.entries.values()))
    @rule(pick=some)
    def free(self, pick: int) -> None:
        entry = self._entry(pick, "held")
        (outcome,) = self.q[entry.tenant].free(entry.id)
        assert said(outcome) == self.model.free(entry.tenant, entry.id)

    @precondition(lambda self: any(e.state == "dead" for e in self.model.entries.values()))
    @rule(pick=some, by_id=st.booleans(), limit=st.sampled_from([None, 1, 2]))
    def replay(self, pick: int, by_id: bool, limit: int | None) -> None:
        entry = self._entry(pick, "dead")
        q = self.q[entry.tenant]
        if by_id:
            assert len(q.replay(entry.queue, ids=[entry.id])) == 1
            self.model.replay(entry)
            return
        dead = self.model.of(entry.tenant, entry.queue, "dead")[:limit]
        assert len(q.replay(entry.queue, where={}, limit=limit)) == len(dead)
        for each in dead:
            self.model.replay(each)

    def _entry(self, pick: int, *states: str) -> Entry:
        entries = [e for e in self.model.entries.values() if not states or e.state in states]
        return entries[-1 - pick % len(entries)]

    @rule(place=places, state=st.sampled_from(["done", "dead", "cancelled", "expired", "ready", "delayed", "held"]))
    def purge(self, place: tuple[str, str], state: str) -> None:
        assert self.q[place[0]].purge(place[1], state=state) == self.model.purge(*place, state)

    @rule(place=places, status=st.sampled_from(["pause", "drain", "close_queue", "resume", "resume", "resume"]))
    def steer(self, place: tuple[str, str], status: str) -> None:
        getattr(self.q[place[0]], status)(place[1])
        self.model.status[place] = {"pause": "paused", "drain": "draining", "close_queue": "closed"}.get(status, "open")

    # -- reopen

    @precondition(lambda self: self.on_disk)
    @rule(abruptly=st.booleans())
    def reopen(self, abruptly: bool) -> None:
        """Close and open; or, as after a kill, open what is on the disk at this moment."""
        looking.journal_tells_the_same(self.q, self.model)
        old = self.q[TENANTS[0]]
        if abruptly:
            path = Path(self.path)
            self.path = str(path.with_name(f"again-{path.name}"[-100:]))
            for end in ("", "-wal"):
                if Path(f"{path}{end}").exists():
                    shutil.copyfile(f"{path}{end}", f"{self.path}{end}")
        old.close()
        self.open()


def changes(rules: Rules) -> dict[str, Any]:
    """What differs from the defaults, as `queues.put` takes it."""
    standard = Rules()
    wanted: dict[str, Any] = {}
    for name in ("ordering", "group_order", "max_in_flight", "max_depth", "max_attempts"):
        if getattr(rules, name) != getattr(standard, name):
            wanted[name] = getattr(rules, name)
    for name in ("ageing", "ttl", "retention"):
        if getattr(rules, name) != getattr(standard, name):
            wanted[name] = getattr(rules, name) / SECOND
    return wanted


def written(new: New) -> tampu.NewMessage:
    return tampu.NewMessage(
        new.payload,
        priority=new.priority,
        delay=None if new.delay is None else timedelta(microseconds=new.delay),
        ttl=None if new.ttl is None else timedelta(microseconds=new.ttl),
        deadline=None if new.deadline is None else datetime.fromtimestamp(new.deadline // SECOND, UTC),
        key=new.key,
        idempotency_key=new.idempotency_key,
        max_attempts=new.max_attempts,
        group=new.group,
        hold=new.hold,
        id=new.id,
    )


def settlement(verb: str, _id: str, receipt: str, extra: int | None) -> Any:
    """``extra`` is the delay of a nack (in microseconds) or the result of an ack."""
    if verb == "ack":
        return tampu.Ack(receipt, result=extra)
    if verb == "nack":
        return tampu.Nack(receipt, error="boom", delay=None if extra is None else extra / SECOND)
    return tampu.Reject(receipt, reason="bad") if verb == "reject" else tampu.Release(receipt)


def said(outcome: tampu.Outcome) -> str:
    """The state of an outcome, or the code of its error."""
    return str(outcome.state) if outcome.error is None else outcome.error.code


__all__ = ["LIVE", "SideBySide"]
