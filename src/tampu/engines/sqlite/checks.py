"""What `tampu doctor` looks at in a file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tampu.engines.encoding import READY
from tampu.engines.sqlite import files
from tampu.engines.sqlite.ids import STEP

Finding = tuple[str, str, str]
_FIXED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))


def check(db: sqlite3.Connection, path: str, durability: str, now: int) -> list[Finding]:
    found = [_library()]
    schema = db.execute("SELECT value FROM tampu_meta WHERE name = 'schema'").fetchone()[0]
    newest = files.migrations()[-1][0]
    found.append(("schema", "ok" if schema == newest else "warn", f"version {schema}, newest {newest}"))
    found.append(_durability(durability))
    if path != files.MEMORY:
        found += [folder(Path(path)), _space(path)]
    damage = [row[0] for row in db.execute("PRAGMA quick_check(5)")]
    found.append(
        ("file", "ok", "no damage found")
        if damage == ["ok"]
        else ("file", "bad", f"damaged: {'; '.join(damage)}; stop writing to it and restore a backup")
    )
    if damage == ["ok"]:
        found.extend(_indexes(db))
    last = db.execute("SELECT n FROM tampu_counter WHERE q = 0 AND kind = 0").fetchone()[0]
    ahead = (last >> 20) / 1000 - now / 1_000_000
    found.append(
        ("clock", "ok", "not behind the newest message")
        if ahead < 1
        else ("clock", "warn", f"{ahead:.0f} s behind the newest message: delays and leases last longer; set the clock")
    )
    return found


def folder(path: Path) -> Finding:
    """Of the folder of a file, which need not be there yet."""
    place = path.absolute().parent
    if not place.is_dir():
        return ("folder", "bad", f"{place} does not exist; make it first")
    if not os.access(place, os.W_OK):
        return ("folder", "bad", f"no permission to write in {place}: SQLite keeps its log beside the file")
    return ("folder", "ok", "can be written")


def _library() -> Finding:
    """SQLite before these versions can, very rarely, damage a log that is checkpointed and restarted at once."""
    version = sqlite3.sqlite_version_info
    safe = version >= _FIXED[0] or any(version[:2] == fixed[:2] and version >= fixed for fixed in _FIXED)
    if safe:
        return ("library", "ok", f"SQLite {sqlite3.sqlite_version}")
    return (
        "library",
        "warn",
        f"SQLite {sqlite3.sqlite_version} has the WAL-reset fault (fixed in 3.51.3). tampu's own processes are safe:"
        " they commit and checkpoint one at a time. Other programs that write to this file are not: upgrade SQLite",
    )


def _durability(durability: str) -> Finding:
    if durability == "full":
        return ("durability", "ok", "full: what is acknowledged survives loss of power")
    if durability == "process":
        return ("durability", "warn", "process: the last moments before a loss of power may be lost")
    return ("durability", "warn", "memory: everything is gone when the process ends")


def _space(path: str) -> Finding:
    size = sum(Path(path + end).stat().st_size for end in ("", "-wal") if Path(path + end).exists())
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    text = f"{size / 1e6:.1f} MB used, {free / 1e9:.1f} GB free on the disk"
    return ("space", "ok", text) if free > max(size, 100_000_000) else ("space", "warn", f"{text}: make room")


def _indexes(db: sqlite3.Connection) -> list[Finding]:
    """Counts kept with each commit against the rows, and every message in exactly one index."""
    wrong = []
    tables = ("tampu_ready", "tampu_delayed", "tampu_leased", "tampu_held", None, "tampu_dead")
    total = 0
    for kind, table in enumerate(tables):
        if table is not None:
            kept = dict(db.execute("SELECT q, n FROM tampu_counter WHERE q > 0 AND kind = ? AND n <> 0", (kind,)))
            each = f"sum((last - seq) / {STEP} + 1)" if kind == READY else "count(*)"
            rows = dict(db.execute(f"SELECT q, {each} FROM {table} GROUP BY q"))  # noqa: S608 - constants
            total += sum(rows.values())
            if kept != rows:
                wrong.append(table)
    total += db.execute("SELECT count(*) FROM tampu_ended").fetchone()[0]
    messages = db.execute("SELECT count(*) FROM tampu_message").fetchone()[0]
    if total != messages:
        wrong.append(f"{messages} messages in {total} places")
    return [
        ("indexes", "bad", f"do not agree: {', '.join(wrong)}; this is a fault of tampu's, keep the file and report it")
        if wrong
        else ("indexes", "ok", f"{messages} messages, each in one index; counts agree")
    ]
