"""Databases and users: where the tables are, who may use them, how they change; and what the server promises."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest

import tampu
from tampu import Ack
from tampu.broker import access
from tampu.engines.encoding import TAIL_BITS
from tampu.engines.mariadb import migrations
from tests.cli.run_command import Command
from tests.servers.mariadb import FAST, MariaDb

CHANGE = """
ALTER TABLE tampu_message ADD COLUMN IF NOT EXISTS colour text;
CREATE TABLE IF NOT EXISTS tampu_extra (n int);
"""
NOW = migrations.migrations()[-1][0]
STEP = (NOW + 1, CHANGE)


def _run(db: Any, sql: str) -> Any:
    with db.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


@pytest.fixture
def database(db: Any) -> Iterator[str]:
    name = f"s{secrets.token_hex(6)}"
    _run(db, f"CREATE DATABASE {name}")
    yield name
    _run(db, f"DROP DATABASE {name}")


@pytest.fixture
def user(db: Any, database: str) -> Iterator[str]:
    """Who may log in, and nothing else."""
    name = f"u{database}"
    _run(db, f"CREATE USER {name}@'%'")
    yield name
    _run(db, f"DROP USER {name}@'%'")


def _use(url: str) -> None:
    with tampu.open(url, maintenance=False) as store:
        store.publish_many("jobs", range(3))
        store.settle([Ack(lease) for lease in store.claim("jobs", limit=2)])
        store.publish("jobs", 1, key="k", idempotency_key="i", delay=5, ttl=50)
        assert [finding for finding in store.check() if finding[1] == "bad"] == []
        assert len(store.journal().transitions) == 8


def test_databases_of_one_server_do_not_know_each_other(server: MariaDb, database: str, url: str) -> None:
    with tampu.open(url, maintenance=False) as one, tampu.open(server.url(database), maintenance=False) as two:
        message = one.publish("jobs", 1)
        assert two.claim("jobs") == []
        with pytest.raises(tampu.NotFound):
            two.get(message.id)


@pytest.mark.parametrize(
    "url",
    [
        "mariadb://root@localhost", "mariadb://root@localhost/a`b", "mariadb://root@localhost/a?colour=red",
        "mariadb://root@localhost:port/a", "mariadb://root@localhost/a?durability=perhaps",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(tampu.InvalidConfig):
        tampu.open(url)


def test_a_user_with_rights_on_the_database_needs_nothing_else(
    server: MariaDb, db: Any, database: str, user: str
) -> None:
    rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, ALTER"
    _run(db, f"GRANT {rights} ON {database}.* TO {user}@'%'")
    _use(server.url(database, user=user))


def test_a_user_with_rights_on_rows_only_can_use_the_tables_that_are_there(
    server: MariaDb, db: Any, database: str, user: str
) -> None:
    migrations.migrate(db, database)
    _run(db, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO {user}@'%'")
    _use(server.url(database, user=user))


def test_a_user_without_rights_gets_an_error(server: MariaDb, database: str, user: str) -> None:
    with pytest.raises(tampu.Forbidden):
        tampu.open(server.url(database, user=user))


def test_many_that_open_a_new_database_at_once_make_the_tables_once(server: MariaDb, database: str) -> None:
    def use(n: int) -> str:
        with tampu.open(server.url(database), maintenance=False) as store:
            return store.publish("jobs", n).id

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(use, range(6)))) == 6


def test_tables_whose_making_was_interrupted_anywhere_are_made_to_the_end(
    server: MariaDb, db: Any, database: str
) -> None:
    """MariaDB commits with each: whoever comes next repeats the step."""
    steps = migrations.script(database)
    for kept in range(0, len(steps), 7):
        for statement in steps[:kept]:
            _run(db, statement)
        whole = sum("'schema'" in statement for statement in steps[:kept])
        assert migrations.version_of(db, database) == whole, "a step counts when all of it is done"
    _use(server.url(database))


def test_the_next_version_is_reached_from_this_one_with_messages_in_it(server: MariaDb, db: Any, database: str) -> None:
    with tampu.open(server.url(database), maintenance=False) as store:
        message = store.publish("jobs", 1)
        assert migrations.migrate(db, database, [*migrations.migrations(), STEP]) == NOW + 1
        assert store.get(message.id).payload == 1, "a process that was there goes on"
    _run(db, f"SELECT n FROM {database}.tampu_extra")


def test_this_code_works_on_the_next_version_unless_that_says_no(server: MariaDb, db: Any, database: str) -> None:
    migrations.migrate(db, database, [*migrations.migrations(), STEP])
    _use(server.url(database))
    _run(db, f"INSERT INTO {database}.tampu_meta VALUES ('least', '{NOW + 1}')")
    with pytest.raises(tampu.SchemaMismatch, match="upgrade"):
        tampu.open(server.url(database))


def test_a_step_that_fails_leaves_the_version_as_it_was(db: Any, database: str) -> None:
    migrations.migrate(db, database)
    with pytest.raises(pymysql.Error):
        migrations.migrate(db, database, [*migrations.migrations(), (NOW + 1, "SELECT * FROM tampu_nowhere;\n")])
    assert migrations.version_of(db, database) == NOW


def test_the_command_makes_the_tables_once_and_prints_how(
    server: MariaDb, db: Any, database: str, tmp_path: Path
) -> None:
    command, place = Command(tmp_path / "none.db"), server.url(database)
    printed = command("migrate", "--sql", "--url", place)
    assert printed.code == 0
    assert _run(db, f"SHOW TABLES IN {database}") == ()
    assert command.ok("migrate", "--url", place) == {"schema": f"{database}: version {NOW}, was 0"}
    assert command.ok("migrate", "--url", place) == {"schema": f"{database}: version {NOW}"}
    assert command.ok("migrate", "--sql", "--url", place)["statements"] == []
    _run(db, f"DROP DATABASE {database}")
    _run(db, f"CREATE DATABASE {database}")
    for statement in printed.out.split(";\n"):
        if statement.strip():
            _run(db, statement)
    _use(place)


def test_doctor_does_not_show_a_password(server: MariaDb, db: Any, database: str, user: str, tmp_path: Path) -> None:
    _run(db, f"GRANT ALL ON {database}.* TO {user}@'%' IDENTIFIED BY 'hush'")
    answer = Command(tmp_path / "none.db")("doctor", "--url", server.url(database, user=f"{user}:hush"))
    assert "hush" not in answer.out + answer.err
    assert "MariaDB" in answer.out


@pytest.mark.parametrize(
    ("settings", "gives"),
    [
        ({}, "full"),
        ({"innodb_flush_log_at_trx_commit": "2"}, "process"),
        ({"innodb_flush_log_at_trx_commit": "0"}, "none"),
        ({"log_bin": "changes", "sync_binlog": "0"}, "process"),
        ({"log_bin": "changes", "sync_binlog": "1"}, "full"),
    ],
)
def test_what_a_crash_may_take_is_named(settings: dict[str, str], gives: str) -> None:
    with MariaDb({**FAST, **settings}) as server:
        with tampu.open(server.url(), maintenance=False) as store:
            assert access.engine(store).durability == gives
            ((level, said),) = [(level, said) for what, level, said in store.check() if what == "durability"]
            assert level == ("ok" if gives == "full" else "warn")
            assert said.startswith(gives)
            store.publish_many("jobs", range(3))
            assert len(store.claim("jobs", limit=5)) == 3
        if gives != "full":
            with pytest.raises(tampu.InvalidConfig, match=gives):
                tampu.open(server.url(durability="full"))


def test_groups_that_wait_go_on_after_the_second_version(server: MariaDb, db: Any, database: str) -> None:
    with tampu.open(server.url(database), maintenance=False) as store:
        store.queues.put("jobs", group_order=True)
        store.publish_many("jobs", [tampu.NewMessage(n, group="a") for n in range(3)])
    _run(db, f"ALTER TABLE {database}.tampu_lane DROP PRIMARY KEY, ADD PRIMARY KEY (q, lane)")
    _run(db, f"ALTER TABLE {database}.tampu_queue DROP COLUMN places, DROP COLUMN pace, DROP COLUMN pace_burst")
    _run(db, f"DROP TABLE {database}.tampu_fair, {database}.tampu_pace")
    _run(db, f"UPDATE {database}.tampu_meta SET value = '1' WHERE name = 'schema'")
    with tampu.open(server.url(database), maintenance=False) as store:
        for n in range(3):
            (lease,) = store.claim("jobs", limit=10)
            assert lease.payload == n
            store.ack(lease)
    assert migrations.version_of(db, database) == NOW


def test_idempotency_keys_of_the_third_version_are_those_of_their_queues(
    server: MariaDb, db: Any, database: str
) -> None:
    url = server.url(database)
    with tampu.open(url, maintenance=False) as q:
        kept = q.publish("jobs", 1, idempotency_key="x")
        slash = q.publish("other", 2, idempotency_key="jobs/x")
        gone = q.publish("gone", 3, idempotency_key="y")
        q.purge("gone", state="ready")
    _run(
        db,
        f"UPDATE {database}.tampu_idempotency SET tenant = 'default', word = SUBSTR(word, LOCATE('/', word) + 1)",
    )
    _run(
        db,
        f"ALTER TABLE {database}.tampu_idempotency MODIFY tenant varchar(128) CHARACTER SET utf8mb4"
        " COLLATE utf8mb4_nopad_bin, MODIFY word varbinary(2048)",
    )
    _run(db, f"UPDATE {database}.tampu_meta SET value = '3' WHERE name = 'schema'")
    with tampu.open(url, maintenance=False) as q:
        assert q.publish("jobs", 1, idempotency_key="x").id == kept.id
        assert q.publish("other", 2, idempotency_key="jobs/x").id == slash.id
        assert q.publish("gone", 3, idempotency_key="y").id == gone.id
        assert not q.publish("other", 3, idempotency_key="y").duplicate
        assert not q.publish("other", 1, idempotency_key="x").duplicate


def test_leases_of_the_sixth_version_go_on_and_new_messages_are_found_by_correlation_id(
    server: MariaDb, db: Any, database: str
) -> None:
    url = server.url(database)
    with tampu.open(url, maintenance=False) as store:
        store.publish("jobs", 1, correlation_id="c")
        (lease,) = store.claim("jobs", worker="ada")
        _run(db, f"DROP TABLE {database}.tampu_correlation")
        _run(db, f"ALTER TABLE {database}.tampu_leased DROP COLUMN since, DROP COLUMN extended")
        _run(db, f"UPDATE {database}.tampu_meta SET value = '6' WHERE name = 'schema'")
    with tampu.open(url, maintenance=False) as store:
        held = store.get(lease.id)
        assert (held.worker, held.started_at, held.updated_at) == ("ada", None, None)
        store.extend(lease, 60)
        assert store.get(lease.id).updated_at is not None
        store.ack(lease)
        new = store.publish("jobs", 2, correlation_id="c")
        assert [message.id for message in store.trace("c")] == [new.id]


def test_ids_of_the_fourth_version_go_on_and_new_ones_have_secret_tails(
    server: MariaDb, db: Any, database: str
) -> None:
    url = server.url(database)
    tampu.open(url, maintenance=False).close()
    _run(db, f"UPDATE {database}.tampu_meta SET value = '{1 << 51}' WHERE name = 'since'")
    with tampu.open(url, maintenance=False) as q:
        old = [message.id for message in q.publish_many("jobs", range(3))]
    _run(db, f"DELETE FROM {database}.tampu_meta WHERE name IN ('secret', 'since')")
    _run(db, f"UPDATE {database}.tampu_meta SET value = '4' WHERE name = 'schema'")
    with tampu.open(url, maintenance=False) as q:
        new = [message.id for message in q.publish_many("jobs", range(3, 6))]
        assert [q.get(id).payload for id in old + new] == list(range(6))
        assert [lease.id for lease in q.claim("jobs", limit=10)] == old + new
    tails = [uuid.UUID(id).int & (1 << TAIL_BITS) - 1 for id in old + new]
    assert len(set(tails[:3])) == 1
    assert len(set(tails[3:])) > 1
