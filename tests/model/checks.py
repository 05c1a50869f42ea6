"""What must be true after every step: the engine's answers and tables against the model."""

from __future__ import annotations

from typing import Any

import tampu
from tampu.engines.sql.commit import unpack_claim
from tampu.engines.sql.read import load
from tampu.model.states import FINAL, State
from tampu.model.transitions import allowed
from tests.model.entries import Entry
from tests.model.reference import ENDED, Model

INDEXES = ("tampu_delayed", "tampu_leased", "tampu_held", "tampu_dead", "tampu_ended")


def same_messages(
    tenants: dict[str, tampu.Store], model: Model, unordered: tuple[str, ...] = ENDED, *, everywhere: bool = False
) -> None:
    """Every queue lists what the model has, state by state, in the same order; its counts say the same.

    Only states that either of the two knows something in are listed, unless it is ``everywhere``: a message that is
    nowhere counted is noticed by its row.
    """
    counted = {(tenant, stats.queue): stats.counts for tenant, store in tenants.items() for stats in store.stats()}
    for tenant, name in model.rules:
        counts = counted[tenant, name]
        known = {e.state for e in model.entries.values() if e.queue == name and e.tenant == tenant}
        listed = {
            state: list(tenants[tenant].messages(name, state=state, limit=10_000))
            if everywhere or counts[state] or state in known
            else []
            for state in tampu.State
        }
        choose_tokens(listed, model, tenant, name)
        for state, messages in listed.items():
            if not (messages or counts[state] or state in known):
                continue
            where = f"{state} of {tenant}/{name}"
            expected = model.of(tenant, name, state)
            assert counts[state] == len(expected), f"the count of {where}"
            ids = [m.id for m in messages]
            assert len(set(ids)) == len(ids), f"twice in {where}"
            assert set(ids) == {e.id for e in expected}, where
            if state == "ready":
                choose_among_equals([model.entries[tenant, id] for id in ids], where)
            elif state not in unordered:
                assert ids == [e.id for e in expected], f"order of {where}"
            for message in messages:
                same_message(message, model)


def choose_among_equals(entries: list[Entry], where: str) -> None:
    """The order of the index is the order of the model; where the model leaves it open, it takes over the engine's."""
    for flow in {e.flow for e in entries}:
        keys = [(e.rank, e.place) for e in entries if e.flow == flow]
        assert keys == sorted(keys), f"order of {where}"
    turns = [e.turn for e in entries if e.turn is not None]
    assert turns == sorted(turns), f"turns of {where}"
    for i, entry in enumerate(entries):
        entry.place = (entry.place[0], i)
        entry.turn = None if entry.flow is None else i


def choose_tokens(listed: dict[tampu.State, list[tampu.Message]], model: Model, tenant: str, name: str) -> None:
    """Which of those that came back together gets which token is the engine's choice."""
    seen = {m.id: m for messages in listed.values() for m in messages}
    ties: dict[tuple[int, str], list[Entry]] = {}
    for entry in model.of(tenant, name, "ready", "delayed"):
        if entry.tied is not None:
            ties.setdefault(entry.tied, []).append(entry)
    for entries in ties.values():
        given = sorted(((e.run_at or 0, e.state, e.has_turn, e.place) for e in entries), reverse=True)
        for entry in sorted(
            entries, key=lambda e: (-(seen[e.id].run_us or 0), e.place[::-1]) if e.id in seen else (0,)
        ):
            run_at, entry.state, entry.has_turn, entry.place = given.pop(0)
            entry.run_at = run_at or None
    for entry in model.of(tenant, name, *tampu.State):
        entry.tied = None


def same_message(message: tampu.Message, model: Model) -> None:
    entry = model.entries[message.tenant, message.id]
    seen = (
        message.tenant, message.queue, message.state, message.attempts, message.max_attempts, message.payload,
        message.expires_us, message.run_us, message.cancel_requested, message.reason,
    )  # fmt: skip
    run_us = entry.run_at if entry.state in ("delayed", "held") else None
    expected = (
        entry.tenant, entry.queue, entry.state, entry.attempts, entry.max_attempts, entry.payload,
        entry.expires, run_us, entry.asked, entry.reason,
    )  # fmt: skip
    assert seen == expected
    assert message.attempts <= message.max_attempts


def same_when_asked_for(tenants: dict[str, tampu.Store], model: Model) -> None:
    """`get` of every id, with failures and result; what was removed, or is another tenant's, is not found."""
    for (owner, id), entry in model.entries.items():
        message = tenants[owner].get(id)
        same_message(message, model)
        assert len(message.failures) == entry.failures
        assert message.result == (entry.result if entry.result_until > model.now else None)
    known = model.entries.keys() | model.removed
    for tenant, store in tenants.items():
        for _, id in known:
            assert (tenant, id) in model.entries or not_found(store, id)


def not_found(store: tampu.Store, id: str) -> bool:
    try:
        store.get(id)
    except tampu.NotFound:
        return True
    return False


def tables_agree(engine: Any, model: Model) -> None:
    """Of the SQLite engine's tables: each message in exactly one index, marks only where they belong."""
    engine.readers.run(lambda db: _tables_agree(db, engine, model))


def _tables_agree(db: Any, engine: Any, model: Model) -> None:
    ready = (
        "SELECT m.seq FROM tampu_ready r JOIN tampu_message m ON m.seq BETWEEN r.seq AND r.last"
        " AND (m.seq - r.seq) % 2 = 0"
    )
    places = " UNION ALL ".join([ready, *(f"SELECT seq FROM {table}" for table in INDEXES)])
    members = db.execute("SELECT sum((last - seq) / 2 + 1) FROM tampu_ready").fetchone()[0] or 0
    assert members == db.execute(f"SELECT count(*) FROM ({ready})").fetchone()[0], "a run with holes"
    several = db.execute(f"SELECT seq FROM ({places}) GROUP BY seq HAVING count(*) > 1").fetchall()
    assert several == [], "in more than one index"
    lost = db.execute(f"SELECT seq FROM tampu_message EXCEPT SELECT seq FROM ({places})").fetchall()
    assert lost == [], "in no index"
    total = db.execute(f"SELECT count(*) FROM ({places})").fetchone()[0]
    assert total == len(model.entries), "rows without a message"
    choose_holders(db, engine, model)
    every_lease_is_watched(db)
    turns = {(e.tenant, e.queue, e.group) for e in model.entries.values() if e.has_turn}
    groups = db.execute("SELECT q.tenant, q.name, l.lane FROM tampu_lane l JOIN tampu_queue q USING (q)").fetchall()
    assert set(groups) == turns, "whose turn it is"
    waiting = sum(e.state in ("ready", "delayed", "held") and e.expires is not None for e in model.entries.values())
    assert db.execute("SELECT count(*) FROM tampu_expiry").fetchone()[0] == waiting, "what may expire"


def choose_holders(db: Any, engine: Any, model: Model) -> None:
    """Each key has the holder the model says; of two that came back together the engine may choose."""
    held = {(e.tenant, e.queue, e.key): e for e in model.entries.values() if e.has_key}
    rows = db.execute("SELECT q.tenant, q.name, k.key, k.seq FROM tampu_key k JOIN tampu_queue q USING (q)").fetchall()
    assert {row[:3] for row in rows} == held.keys(), "who has the key"
    for tenant, queue, key, seq in rows:
        holder = held[tenant, queue, key]
        entry = model.entries[tenant, load(db, engine.registry, [seq])[seq].id]
        if entry is not holder:
            assert entry.waits_since == holder.waits_since, "the key has the wrong holder"
            holder.has_key, entry.has_key = False, True


def every_lease_is_watched(db: Any) -> None:
    """The reaper will look at each lease no later than it ends."""
    watched = {
        (seq, lease): until
        for until, lease, seqs in db.execute("SELECT until, lease, seqs FROM tampu_claim ORDER BY until DESC")
        for seq in unpack_claim(seqs)
    }
    for seq, lease, until in db.execute("SELECT seq, lease, until FROM tampu_leased"):
        assert watched.get((seq, lease), until + 1) <= until, "a lease that nobody watches"


def in_the_table(before: State | None, transition: tampu.Transition) -> bool:
    """Retention removes final messages without a word; then an id may be published again."""
    if before in FINAL and transition.verb == "publish":
        before = None
    return allowed(transition.verb, before, transition.state)


def journal_tells_the_same(tenants: dict[str, tampu.Store], model: Model) -> None:
    """The journal from its beginning, folded by id, ends in the states that are."""
    for tenant, store in tenants.items():
        last: dict[str, tampu.Transition] = {}
        position: dict[str, int] | None = None
        while True:
            page = store.journal(after=position, limit=37)
            for transition in page.transitions:
                assert transition.offset > (position or {}).get(transition.partition, 0)
                assert transition.tenant == tenant
                before = last.get(transition.id)
                assert in_the_table(None if before is None else before.state, transition), (before, transition)
                last[transition.id] = transition
            position = page.position
            if not page.transitions:
                break
        for (owner, id), entry in model.entries.items():
            if owner == tenant:
                latest = last.pop(id)
                assert (latest.state, latest.attempt, latest.queue) == (entry.state, entry.attempts, entry.queue), (
                    latest
                )
        assert all(latest.state is None or latest.state in ENDED for latest in last.values())
