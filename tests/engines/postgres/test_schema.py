"""Schemas and roles: where the tables are, who may use them, how they change."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import tampu
from tampu import Ack
from tampu.engines.encoding import TAIL_BITS
from tampu.engines.postgres import migrations
from tests.servers.postgres import Postgres


@pytest.fixture
def schema(db: psycopg.Connection[Any]) -> Iterator[str]:
    name = f"s{secrets.token_hex(6)}"
    yield name
    db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
def role(db: psycopg.Connection[Any], schema: str) -> Iterator[str]:
    """Who may log in, and nothing else."""
    name = f"role_{schema}"
    db.execute(f"CREATE ROLE {name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE")
    yield name
    db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    db.execute(f"DROP OWNED BY {name}")
    db.execute(f"DROP ROLE {name}")


def _use(url: str) -> None:
    with tampu.open(url, maintenance=False) as store:
        store.publish_many(
            "jobs",
            range(3),
        )
        store.settle([Ack(lease) for lease in store.claim("jobs", limit=2)])
        store.publish("jobs", 1, key="k", idempotency_key="i", delay=5, ttl=50)
        assert [finding for finding in store.check() if finding[1] == "bad"] == []
        assert len(store.journal().transitions) == 8


def test_schemas_of_one_database_do_not_know_each_other(server: Postgres, schema: str, url: str) -> None:
    with tampu.open(url, maintenance=False) as one, tampu.open(server.url(schema=schema), maintenance=False) as two:
        message = one.publish("jobs", 1)
        assert two.claim("jobs") == []
        with pytest.raises(tampu.NotFound):
            two.get(message.id)


@pytest.mark.parametrize("name", ["", "pg_x", "A", "a b", 'a"b', "1a", "x" * 41])
def test_a_name_that_is_no_schema_s_is_refused(server: Postgres, name: str) -> None:
    with pytest.raises(tampu.InvalidConfig):
        tampu.open(server.url(schema=name))


def test_a_role_that_may_make_schemas_needs_nothing_else(
    server: Postgres, db: psycopg.Connection[Any], schema: str, role: str
) -> None:
    db.execute(f"GRANT CREATE ON DATABASE postgres TO {role}")
    _use(server.url(user=role, schema=schema))


def test_a_role_with_rights_on_the_tables_only_can_do_all_but_vacuum(
    server: Postgres, db: psycopg.Connection[Any], schema: str, role: str
) -> None:
    migrations.migrate(db, schema)
    db.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    db.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    db.execute(f"GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
    url = server.url(user=role, schema=schema)
    _use(url)
    with tampu.open(url, maintenance=False) as store:
        assert [level for what, level, _ in store.check() if what == "role"] == ["warn"]


def test_a_role_without_rights_gets_an_error_that_says_what_to_do(server: Postgres, schema: str, role: str) -> None:
    with pytest.raises(tampu.Forbidden, match="migrate"):
        tampu.open(server.url(user=role, schema=schema))


def test_many_that_open_a_new_schema_at_once_make_it_once(server: Postgres, schema: str) -> None:
    def use(n: int) -> str:
        with tampu.open(server.url(schema=schema), maintenance=False) as store:
            return store.publish("jobs", n).id

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(use, range(6)))) == 6


def test_printed_sql_makes_the_schema_that_opening_makes(
    server: Postgres, db: psycopg.Connection[Any], schema: str
) -> None:
    for statement in migrations.script(schema):
        db.execute(statement)
    assert migrations.version_of(db, schema) == migrations.migrations()[-1][0]
    _use(server.url(schema=schema))


NOW = migrations.migrations()[-1][0]
STEP = (NOW + 1, "ALTER TABLE tampu.message ADD COLUMN colour text;\nCREATE TABLE tampu.extra (n int);\n")


def test_the_next_version_is_reached_from_this_one_with_messages_in_it(
    server: Postgres, db: psycopg.Connection[Any], schema: str
) -> None:
    with tampu.open(server.url(schema=schema), maintenance=False) as store:
        message = store.publish("jobs", 1)
        assert migrations.migrate(db, schema, [*migrations.migrations(), STEP]) == NOW + 1
        assert store.get(message.id).payload == 1, "a process that was there goes on"
    db.execute(f"SELECT n FROM {schema}.extra")


def test_this_code_works_on_the_next_version_unless_that_says_no(
    server: Postgres, db: psycopg.Connection[Any], schema: str
) -> None:
    migrations.migrate(db, schema, [*migrations.migrations(), STEP])
    _use(server.url(schema=schema))
    db.execute(f"INSERT INTO {schema}.meta VALUES ('least', '{NOW + 1}')")
    with pytest.raises(tampu.SchemaMismatch, match="upgrade"):
        tampu.open(server.url(schema=schema))


def test_a_step_that_fails_leaves_the_schema_as_it_was(db: psycopg.Connection[Any], schema: str) -> None:
    migrations.migrate(db, schema)
    with pytest.raises(psycopg.Error):
        migrations.migrate(
            db, schema, [*migrations.migrations(), (NOW + 1, "CREATE TABLE tampu.extra (n int);\nSELECT 1/0;\n")]
        )
    assert migrations.version_of(db, schema) == NOW
    assert db.execute("SELECT to_regclass(%s)", (f"{schema}.extra",)).fetchone() == (None,)


def test_groups_that_wait_go_on_after_the_second_version(
    server: Postgres, db: psycopg.Connection[Any], schema: str
) -> None:
    with tampu.open(server.url(schema=schema), maintenance=False) as store:
        store.queues.put("jobs", group_order=True)
        store.publish_many("jobs", [tampu.NewMessage(n, group="a") for n in range(3)])
    db.execute(f"ALTER TABLE {schema}.lane DROP CONSTRAINT lane_pkey, ADD PRIMARY KEY (q, lane)")
    db.execute(f"ALTER TABLE {schema}.queue DROP COLUMN places")
    db.execute(f"ALTER TABLE {schema}.queue DROP COLUMN pace, DROP COLUMN pace_burst")
    db.execute(f"DROP TABLE {schema}.fair, {schema}.pace")
    db.execute(f"UPDATE {schema}.meta SET value = '1' WHERE name = 'schema'")
    with tampu.open(server.url(schema=schema), maintenance=False) as store:
        for n in range(3):
            (lease,) = store.claim("jobs", limit=10)
            assert lease.payload == n
            store.ack(lease)
    assert migrations.version_of(db, schema) == NOW


def test_idempotency_keys_of_the_fourth_version_are_those_of_their_queues(
    server: Postgres, db: psycopg.Connection[Any], schema: str
) -> None:
    url = server.url(schema=schema)
    with tampu.open(url, maintenance=False) as q:
        kept = q.publish("jobs", 1, idempotency_key="x")
        slash = q.publish("other", 2, idempotency_key="jobs/x")
        gone = q.publish("gone", 3, idempotency_key="y")
        q.purge("gone", state="ready")
    db.execute(
        f"UPDATE {schema}.idempotency SET tenant = 'default', key = substr(key, position('\\x2f'::bytea in key) + 1)"
    )
    db.execute(f"UPDATE {schema}.meta SET value = '4' WHERE name = 'schema'")
    with tampu.open(url, maintenance=False) as q:
        assert q.publish("jobs", 1, idempotency_key="x").id == kept.id
        assert q.publish("other", 2, idempotency_key="jobs/x").id == slash.id
        assert q.publish("gone", 3, idempotency_key="y").id == gone.id
        assert not q.publish("other", 3, idempotency_key="y").duplicate
        assert not q.publish("other", 1, idempotency_key="x").duplicate


def test_leases_of_the_seventh_version_go_on_and_new_messages_are_found_by_correlation_id(
    server: Postgres, db: psycopg.Connection[Any], schema: str
) -> None:
    url = server.url(schema=schema)
    with tampu.open(url, maintenance=False) as store:
        store.publish("jobs", 1, correlation_id="c")
        (lease,) = store.claim("jobs", worker="ada")
    db.execute(f"DROP TABLE {schema}.correlation")
    db.execute(f"ALTER TABLE {schema}.leased DROP COLUMN since, DROP COLUMN extended")
    db.execute(f"UPDATE {schema}.meta SET value = '7' WHERE name = 'schema'")
    with tampu.open(url, maintenance=False) as store:
        held = store.get(lease.id)
        assert (held.worker, held.started_at, held.updated_at) == ("ada", None, None)
        store.extend(lease, 60)
        assert store.get(lease.id).updated_at is not None
        store.ack(lease)
        new = store.publish("jobs", 2, correlation_id="c")
        assert [message.id for message in store.trace("c")] == [new.id]


def test_ids_of_the_fifth_version_go_on_and_new_ones_have_secret_tails(
    server: Postgres, db: psycopg.Connection[Any], schema: str
) -> None:
    url = server.url(schema=schema)
    tampu.open(url, maintenance=False).close()
    db.execute(f"UPDATE {schema}.meta SET value = '{1 << 51}' WHERE name = 'since'")
    with tampu.open(url, maintenance=False) as q:
        old = [message.id for message in q.publish_many("jobs", range(3))]
    db.execute(f"DELETE FROM {schema}.meta WHERE name IN ('secret', 'since')")
    db.execute(f"UPDATE {schema}.meta SET value = '5' WHERE name = 'schema'")
    with tampu.open(url, maintenance=False) as q:
        new = [message.id for message in q.publish_many("jobs", range(3, 6))]
        assert [q.get(id).payload for id in old + new] == list(range(6))
        assert [lease.id for lease in q.claim("jobs", limit=10)] == old + new
    tails = [uuid.UUID(id).int & (1 << TAIL_BITS) - 1 for id in old + new]
    assert len(set(tails[:3])) == 1
    assert len(set(tails[3:])) > 1


@pytest.mark.parametrize(
    ("settings", "asked", "gives"),
    [
        ({}, None, "full"),
        ({"synchronous_commit": "off"}, "full", "full"),  # a session's own setting is ours to make
        ({}, "process", "process"),
        ({"fsync": "off"}, None, "none"),
        ({"full_page_writes": "off"}, "process", "none"),
    ],
)
def test_what_a_crash_may_take_is_named(settings: dict[str, str], asked: str | None, gives: str) -> None:
    with Postgres(settings) as own:
        with tampu.open(own.url(), durability=asked, maintenance=False) as store:
            assert store.durability == gives
            ((level, said),) = [(level, said) for what, level, said in store.check() if what == "durability"]
            assert level == ("ok" if gives == "full" else "warn")
            assert said.startswith(gives)
        if gives == "none":
            with pytest.raises(tampu.InvalidConfig, match=next(iter(settings))):
                tampu.open(own.url(durability="full"))


PASSED_THROUGH = {
    "ready", "delayed", "leased", "claim", "held", "lane", "expiry", "key", "fair", "pace", "tally", "journal_new",
}  # fmt: skip
"""Rows of these come and go with the messages."""
KEPT = {"message", "correlation", "ended", "ending", "dead", "failure", "result", "idempotency", "journal"}
"""Rows of these are removed when they are old enough."""
FEW = {"meta", "queue", "document", "revision", "journal_end", "seat"}
"""Rows of these are as many as there are queues and settings."""
UPDATED = {"queue", "leased", "revision", "journal_end", "seat"}
"""Columns of these that no index has are updated again and again: with room on the page the update stays there."""


def test_every_table_is_vacuumed_as_often_as_its_rows_pass(db: psycopg.Connection[Any], schema: str) -> None:
    migrations.migrate(db, schema)
    found = db.execute(
        "SELECT relname, coalesce(reloptions, '{}') FROM pg_class"
        " WHERE relnamespace = %s::regnamespace AND relkind = 'r'",
        (schema,),
    )
    settings = {name: dict(option.split("=") for option in options) for name, options in found.fetchall()}
    assert set(settings) == PASSED_THROUGH | KEPT | FEW, "say here what a new table is, and set it up so"
    for name in PASSED_THROUGH:
        assert float(settings[name]["autovacuum_vacuum_scale_factor"]) <= 0.01, name
        assert int(settings[name]["autovacuum_vacuum_threshold"]) <= 5000, name
        assert float(settings[name]["autovacuum_vacuum_cost_delay"]) == 0, name
    for name in KEPT:
        assert float(settings[name]["autovacuum_vacuum_scale_factor"]) <= 0.05, name
    for name in UPDATED:
        assert int(settings[name]["fillfactor"]) <= 80, name
