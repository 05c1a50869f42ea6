"""What must be true of the tables of an engine on SQL after every step."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tampu.engines.mariadb.index import place
from tampu.engines.postgres.database import in_schema
from tampu.engines.sql.commit import unpack_claim
from tampu.engines.sql.read import load
from tampu.model.rank import FAIR
from tests.model.reference import Model

INDEXES = ("ready", "delayed", "leased", "held", "dead", "ended")


Ask = Callable[[str], list[Any]]


def postgres_agrees(engine: Any, model: Model) -> None:
    def ask(sql: str) -> list[Any]:
        return _ask(engine, in_schema(sql, engine.place.schema))

    tables_agree(ask, engine, model)


def _ask(engine: Any, sql: str) -> list[Any]:
    return engine.readers.run(lambda db: list(db.execute(sql, ()).fetchall()))  # type: ignore[no-any-return]


def mariadb_agrees(engine: Any, model: Model) -> None:
    """Names differ, and what would be partial indexes are tables."""

    def ask(sql: str) -> list[Any]:
        for theirs, ours in (("tampu.", "tampu_"), (".rank", ".place"), (".key", ".word")):
            sql = sql.replace(theirs, ours)
        sql = re.sub(r"FROM (tampu_(?:ready|placed|leased))\b( [a-z]\b)?", _without_fillers, sql)
        return _ask(engine, sql)

    tables_agree(ask, engine, model)
    placed = "SELECT q, seq, place, pos FROM tampu_placed"
    ready = "SELECT q, seq, place, pos FROM tampu_ready WHERE place <> 0 OR pos <> seq"
    assert sorted(ask(placed)) == sorted(ask(ready)), "where ready messages are"
    given = "SELECT id, seq FROM tampu_message WHERE id IS NOT NULL"
    assert sorted(ask("SELECT id, seq FROM tampu_own_id")) == sorted(ask(given)), "ids that users gave"


def _without_fillers(found: re.Match[str]) -> str:
    return f"FROM (SELECT * FROM {found[1]} WHERE q > 0) AS {found[2] or found[1] + '_'}"


def tables_agree(ask: Ask, engine: Any, model: Model) -> None:
    """Each message in exactly one index, marks only where they belong."""
    places = " UNION ALL ".join(f"SELECT seq FROM tampu.{table}" for table in INDEXES)
    assert ask(f"SELECT seq FROM ({places}) p GROUP BY seq HAVING count(*) > 1") == [], "in more than one index"
    assert ask(f"SELECT seq FROM tampu.message EXCEPT SELECT seq FROM ({places}) p") == [], "in no index"
    assert ask(f"SELECT count(*) FROM ({places}) p")[0][0] == len(model.entries), "rows without a message"
    ranks = "SELECT r.seq FROM tampu.ready r JOIN tampu.message m USING (seq) WHERE (r.q, r.rank) <> (m.q, m.rank)"
    assert ask(f"{ranks} AND m.rank <> {FAIR}") == [], "a rank that is not the message's"
    _every_lease_is_watched(ask)
    _holders(engine, ask, model)
    turns = {(e.tenant, e.queue, e.group) for e in model.entries.values() if e.has_turn}
    groups = ask("SELECT q.tenant, q.name, l.lane FROM tampu.lane l JOIN tampu.queue q USING (q)")
    assert {(tenant, name, group.decode()) for tenant, name, group in groups} == turns, "whose turn it is"
    waiting = sum(e.state in ("ready", "delayed", "held") and e.expires is not None for e in model.entries.values())
    assert ask("SELECT count(*) FROM tampu.expiry")[0][0] == waiting, "what may expire"


def _holders(engine: Any, ask: Any, model: Model) -> None:
    """Each key has the holder the model says; of two that came back together the engine may choose."""
    held = {(e.tenant, e.queue, e.key): e for e in model.entries.values() if e.has_key}
    rows = ask("SELECT q.tenant, q.name, k.key, k.seq FROM tampu.key k JOIN tampu.queue q USING (q)")
    assert {(tenant, name, key.decode()) for tenant, name, key, _ in rows} == held.keys(), "who has the key"
    for tenant, queue, key, seq in rows:
        holder = held[tenant, queue, key.decode()]
        (message,) = engine.readers.run(lambda db, seq=seq: load(db, engine.registry, [seq])).values()
        entry = model.entries[tenant, message.id]
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


def index_agrees(engine: Any) -> None:
    """While Redis says that the index is whole, it has every ready message, and none but those."""
    index = engine.index
    if not index.complete or engine.readers.run(lambda db: db.row("is_index_stale"))[0]:
        return
    ready = set(_ask(engine, "SELECT q, place, pos FROM tampu_ready WHERE q > 0"))
    known = set()
    for key in index._redis.scan_iter(f"{index._base}:[0-9]*"):
        store = int(key.rpartition(b":")[2])
        known |= {(store, *place(raw)) for raw in index._redis.zrange(key, 0, -1)}
    assert known == ready, "what Redis knows"
