"""The checks of `tampu doctor` for a file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tampu.engines.encoding import READY
from tampu.engines.sql.base import Finding, schema_finding
from tampu.engines.sqlite import files
from tampu.engines.sqlite.database import Db
from tampu.engines.sqlite.ids import STEP
from tampu.engines.sqlite.reserve import free_space

_FIXED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))


def check(db: Db, path: str, durability: str, now: int, *, is_full: bool) -> list[Finding]:
    found = [_library()]
    (schema,) = db.execute("SELECT value FROM tampu_meta WHERE name = 'schema'").fetchone()
    found += [schema_finding("", schema, files.newest_schema()), _durability(durability)]
    if path != files.MEMORY:
        found += [folder(Path(path)), access(Path(path)), _space(path, is_full)]
    damage = [text for (text,) in db.execute("PRAGMA quick_check(5)")]
    found.append(
        ("file", "ok", "no damage found")
        if damage == ["ok"]
        else ("file", "bad", f"damaged: {'; '.join(damage)}; stop writing to it and restore a backup")
    )
    if damage == ["ok"]:
        found.extend(_indexes(db))
    (last,) = db.execute("SELECT n FROM tampu_counter WHERE q = 0 AND kind = 0").fetchone()
    ahead = (last >> 20) / 1000 - now / 1_000_000
    found.append(
        ("clock", "ok", "not behind the newest message")
        if ahead < 1
        else ("clock", "warn", f"{ahead:.0f} s behind the newest message: delays and leases last longer; set the clock")
    )
    return found


def folder(path: Path) -> Finding:
    """Check the folder of a file. The file need not exist yet."""
    place = path.absolute().parent
    if not place.is_dir():
        return ("folder", "bad", f"{place} does not exist; create it first")
    if not os.access(place, os.W_OK):
        return ("folder", "bad", f"no permission to write in {place}: SQLite keeps its log beside the file")
    return ("folder", "ok", "can be written")


def access(path: Path) -> Finding:
    """Check who can read the file: it has all payloads, and hashes of keys."""
    readable = [part for part in (path, Path(f"{path}-wal")) if part.exists() and part.stat().st_mode & 0o077]
    if not readable:
        return ("access", "ok", "only the owner can read the file")
    names = " ".join(str(part) for part in readable)
    return ("access", "warn", f"other users can read {names}: run chmod 600 {names}, unless that is meant")


def _library() -> Finding:
    """Older versions of SQLite can, very rarely, damage a log that is checkpointed and restarted at the same time."""
    version = sqlite3.sqlite_version_info
    safe = version >= _FIXED[0] or any(version[:2] == fixed[:2] and version >= fixed for fixed in _FIXED)
    if safe:
        return ("library", "ok", f"SQLite {sqlite3.sqlite_version}")
    return (
        "library",
        "warn",
        f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3). tampu's own processes are safe:"
        " they commit and checkpoint one at a time. Other programs that write to this file are not: upgrade SQLite",
    )


def _durability(durability: str) -> Finding:
    if durability == "full":
        return ("durability", "ok", "full: what is acknowledged survives power loss")
    if durability == "process":
        return ("durability", "warn", "process: a power loss may lose the last moments")
    return ("durability", "warn", "memory: everything is lost when the process ends")


def _space(path: str, is_full: bool) -> Finding:
    size = sum(Path(path + end).stat().st_size for end in ("", "-wal") if Path(path + end).exists())
    free = free_space(Path(path).parent)
    text = f"{size / 1e6:.1f} MB used, {free / 1e9:.1f} GB free on the disk"
    if is_full:
        return ("space", "bad", f"{text}: the disk is full, and nothing new is stored; make room, or purge messages")
    return ("space", "ok", text) if free > max(size, 100_000_000) else ("space", "warn", f"{text}: make room")


def _indexes(db: Db) -> list[Finding]:
    """Compare the stored counts with the rows, and check that every message is in exactly one index."""
    wrong = []
    tables = ("tampu_ready", "tampu_delayed", "tampu_leased", "tampu_held", None, "tampu_dead")
    total = 0
    for kind, table in enumerate(tables):
        if table is not None:
            counts = dict(db.execute("SELECT q, n FROM tampu_counter WHERE q > 0 AND kind = ? AND n <> 0", (kind,)))
            each = f"sum((last - seq) / {STEP} + 1)" if kind == READY else "count(*)"
            rows = dict(db.execute(f"SELECT q, {each} FROM {table} GROUP BY q"))  # noqa: S608 - constants
            total += sum(rows.values())
            if counts != rows:
                wrong.append(table)
    (ended,) = db.execute("SELECT count(*) FROM tampu_ended").fetchone()
    total += ended
    (messages,) = db.execute("SELECT count(*) FROM tampu_message").fetchone()
    if total != messages:
        wrong.append(f"{messages} messages but {total} index entries")
    return [
        ("indexes", "bad", f"do not agree: {', '.join(wrong)}; this is a bug in tampu: keep the file and report it")
        if wrong
        else ("indexes", "ok", f"{messages} messages, each in one index; counts agree")
    ]
