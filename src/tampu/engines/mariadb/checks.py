"""The checks of `tampu doctor` on a MariaDB database."""

from __future__ import annotations

from typing import Any

import pymysql

from tampu.engines.mariadb import migrations
from tampu.engines.mariadb.database import Db
from tampu.engines.mariadb.templates import in_database
from tampu.engines.sql.base import Finding, index_finding, schema_finding

_LONG_SECONDS = 300
_MUCH_HISTORY = 1_000_000
_LEAST_PACKET = 16 << 20
_INDEXES = ("ready", "delayed", "leased", "held", None, "dead")


def check(db: Db, database: str, durability: str) -> list[Finding]:
    version = str(_row(db, "SELECT VERSION()")[0])
    newest, _ = migrations.migrations()[-1]
    return [
        ("server", "ok", f"MariaDB {version.partition('-')[0]}"),
        schema_finding(f"{database}: ", migrations.version_of(db.connection, database), newest),
        _durability(durability),
        _binary_log(db),
        _packet(db),
        _open_transactions(db),
        _indexes(db, database),
    ]


def _row(db: Db, sql: str) -> Any:
    with db.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()


def _durability(durability: str) -> Finding:
    if durability == "full":
        return ("durability", "ok", "full: acknowledged messages survive loss of power")
    lost = "none: a crash of the server loses the last second; set innodb_flush_log_at_trx_commit = 1"
    if durability == "process":
        lost = "process: a loss of power may lose the last second; set innodb_flush_log_at_trx_commit = 1"
        lost += " (and sync_binlog = 1)"
    return ("durability", "warn", lost)


def _binary_log(db: Db) -> Finding:
    on, form, galera = _row(db, "SELECT @@log_bin, @@binlog_format, @@wsrep_on")
    if int(galera):
        return ("replication", "bad", "Galera checks locks only at commit, and has no SKIP LOCKED: use one server")
    if int(on) and form == "STATEMENT":
        return ("replication", "bad", "binlog_format is STATEMENT, which READ COMMITTED cannot use: set MIXED or ROW")
    return ("replication", "ok", f"binary log in the form {form}" if int(on) else "no binary log")


def _packet(db: Db) -> Finding:
    most = int(_row(db, "SELECT @@max_allowed_packet")[0])
    text = f"max_allowed_packet is {most >> 20} MB"
    if most < _LEAST_PACKET:
        return ("packets", "warn", f"{text}: larger payloads are refused; set it to 16 MB or more")
    return ("packets", "ok", text)


def _open_transactions(db: Db) -> Finding:
    """While a transaction is open, deleted rows are not removed and claims must step over them."""
    try:
        (age,) = _row(
            db,
            "SELECT MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())) FROM information_schema.innodb_trx"
            " WHERE trx_mysql_thread_id <> CONNECTION_ID()",
        )
        history = _row(db, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'")
    except pymysql.Error:
        return ("transactions", "ok", "not checked: that needs the PROCESS privilege")
    if age is not None and int(age) > _LONG_SECONDS:
        return ("transactions", "warn", f"one has been open for {age} s and blocks purge; end it")
    if history and int(history[0]) > _MUCH_HISTORY:
        return ("transactions", "warn", f"{history[0]} changes wait to be purged: see innodb_purge_threads")
    return ("transactions", "ok", "none has been open for long")


def _indexes(db: Db, database: str) -> Finding:
    """One statement: it reads one snapshot."""
    parts = [
        f"SELECT {kind} AS kind, q, COUNT(*) AS n FROM tampu_{table} WHERE q > 0 GROUP BY q"  # noqa: S608 - constants
        for kind, table in enumerate(_INDEXES)
        if table is not None
    ]
    parts.append("SELECT state, q, COUNT(*) FROM tampu_ended GROUP BY state, q")
    sql = f"""
    SELECT (SELECT COUNT(*) FROM tampu_message),
      (SELECT COALESCE(SUM(n), 0) FROM ({" UNION ALL ".join(parts)}) AS places),
      (SELECT COUNT(*) FROM (
        SELECT kind, q FROM ({" UNION ALL ".join(parts)} UNION ALL SELECT kind, q, -n FROM tampu_tally) AS both_
        GROUP BY kind, q HAVING SUM(n) <> 0) AS differing)
    """  # noqa: S608 - constants
    messages, places, wrong = (int(value) for value in _row(db, in_database(sql, database)))
    return index_finding(messages, places, wrong)
