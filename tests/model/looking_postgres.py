"""What must be true of the PostgreSQL engine's tables after every step."""

from __future__ import annotations

from typing import Any

from tampu.engines.postgres.commit import unpack_claim
from tampu.engines.postgres.reading import load
from tampu.engines.postgres.statements import in_schema
from tests.model.reference import Model

INDEXES = ("ready", "delayed", "leased", "held", "dead", "ended")


def tables_agree(engine: Any, model: Model) -> None:
    """Each message in exactly one index, marks only where they belong."""

    def ask(sql: str) -> list[Any]:
        rows: list[Any] = engine._db.connection.execute(in_schema(sql, engine.place.schema)).fetchall()
        return rows

    places = " UNION ALL ".join(f"SELECT seq FROM tampu.{table}" for table in INDEXES)
    assert ask(f"SELECT seq FROM ({places}) p GROUP BY seq HAVING count(*) > 1") == [], "in more than one index"
    assert ask(f"SELECT seq FROM tampu.message EXCEPT ({places})") == [], "in no index"
    assert ask(f"SELECT count(*) FROM ({places}) p")[0][0] == len(model.entries), "rows without a message"
    ranks = "SELECT r.seq FROM tampu.ready r JOIN tampu.message m USING (seq) WHERE (r.q, r.rank) <> (m.q, m.rank)"
    assert ask(ranks) == [], "a rank that is not the message's"
    _every_lease_is_watched(ask)
    _holders(engine, ask, model)
    turns = {(e.tenant, e.queue, e.group) for e in model.entries.values() if e.has_turn}
    lanes = ask("SELECT q.tenant, q.name, l.lane FROM tampu.lane l JOIN tampu.queue q USING (q)")
    assert {(tenant, name, lane.decode()) for tenant, name, lane in lanes} == turns, "whose turn it is"
    waiting = sum(e.state in ("ready", "delayed", "held") and e.expires is not None for e in model.entries.values())
    assert ask("SELECT count(*) FROM tampu.expiry")[0][0] == waiting, "what may expire"


def _holders(engine: Any, ask: Any, model: Model) -> None:
    """Each key has the holder the model says; of two that came back together the engine may choose."""
    held = {(e.tenant, e.queue, e.key): e for e in model.entries.values() if e.has_key}
    rows = ask("SELECT q.tenant, q.name, k.key, k.seq FROM tampu.key k JOIN tampu.queue q USING (q)")
    assert {(tenant, name, key.decode()) for tenant, name, key, _ in rows} == held.keys(), "who has the key"
    for tenant, queue, key, seq in rows:
        holder = held[tenant, queue, key.decode()]
        entry = model.entries[tenant, load(engine._db, engine.house, [seq])[seq].id]
        if entry is not holder:
            assert entry.waits_since == holder.waits_since, "the key has the wrong holder"
            holder.has_key, entry.has_key = False, True


def _every_lease_is_watched(ask: Any) -> None:
    """The reaper will look at each lease no later than it ends."""
    watched = {
        (seq, lease): until
        for until, lease, seqs in ask("SELECT until, lease, seqs FROM tampu.claim ORDER BY until DESC")
        for seq in unpack_claim(seqs)
    }
    for seq, lease, until in ask("SELECT seq, lease, until FROM tampu.leased"):
        assert watched.get((seq, lease), until + 1) <= until, "a lease that nobody watches"
