"""The file: opening it safely, its schema and migrations, and what SQLite's errors mean to a user.

A file that is not ours is never written to: it is looked at first, and only a new or a tampu file goes further.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import urllib.parse
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from tampu.model.errors import (
    DamagedFile,
    ForeignFile,
    SchemaMismatch,
    StorageError,
    StorageFull,
    TampuError,
    Unavailable,
)

MEMORY = ":memory:"
OLDEST_SQLITE = (3, 35, 0)
BUSY_SECONDS = 30.0
CHECKPOINT_PAGES = 4000
_SYNCHRONOUS = {"full": "FULL", "process": "NORMAL"}

GONE = "was removed or replaced while it was open"
GONE_HINT = "close and open it again; what was stored since it was removed is lost"

Migration = tuple[int, str]
Connect = Callable[..., sqlite3.Connection]


def migrations() -> list[Migration]:
    """(version, SQL) of every schema step, in order."""
    folder = resources.files("tampu.engines.sqlite") / "schema"
    steps = [(int(step.name[:4]), step.read_text()) for step in folder.iterdir() if step.name.endswith(".sql")]
    return sorted(steps)


def inspect(path: str, *, adopt: bool) -> None:
    """Refuse, without touching it, a path that can not be or is not a tampu file."""
    if path == MEMORY:
        return
    place = Path(path)
    if not place.parent.is_dir():
        raise Unavailable(f"there is no folder {place.parent}", hint="make it first")
    if place.is_dir():
        raise ForeignFile(f"{path} is a folder", hint="name a file in it")
    if not place.exists() or place.stat().st_size == 0:
        if not os.access(place.parent, os.W_OK):
            raise Unavailable(f"no permission to write in {place.parent}")
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise Unavailable(f"no permission to read and write {path}", hint="check the owner and mode")
    if place.stat().st_size == 1:  # SQLite takes a file of one byte for an empty one, and would write over it
        raise ForeignFile(f"{path} is not a SQLite file", hint="name another file; this one was left as it is")
    _inspect_tables(path, adopt=adopt)


def _inspect_tables(path: str, *, adopt: bool, mode: str = "ro") -> None:
    """Through SQLite, read only: opening and closing the file in any other way would drop the locks that another
    connection of this process has on it."""
    db = None
    try:
        name = urllib.parse.quote(str(Path(path).absolute()))
        db = sqlite3.connect(f"file:{name}?mode={mode}", uri=True, isolation_level=None, timeout=BUSY_SECONDS)
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "tampu_meta" not in names and names and not adopt:
            raise ForeignFile(
                f"{path} is another program's SQLite file",
                hint="name another file, or open it with adopt=True to keep the queue beside its tables",
            )
        if "tampu_meta" in names:
            check_version(db, path)
    except sqlite3.Error as error:
        if mode == "ro" and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK:
            # A crash, perhaps while the file was made, left a transaction half written; to read is to undo it first.
            return _inspect_tables(path, adopt=adopt, mode="rw")
        raise translate(error, path) from error
    finally:
        if db is not None:
            db.close()


def check_version(db: sqlite3.Connection, path: str) -> int:
    """The schema version of a file; refuses one that is newer than this program."""
    row = db.execute("SELECT value FROM tampu_meta WHERE name = 'schema'").fetchone()
    version = int(row[0])
    newest = migrations()[-1][0]
    if version > newest:
        raise SchemaMismatch(
            f"{path} has schema {version}; this tampu knows up to {newest}", hint="upgrade tampu to open it"
        )
    return version


def identity(path: str) -> tuple[int, int] | None:
    """Which file has the name now; None: there is none, or it is memory."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: str, durability: str, factory: Connect = sqlite3.connect) -> sqlite3.Connection:
    """A connection as the engine uses them; the file must have passed `inspect`."""
    db = factory(path, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False, cached_statements=256)
    try:
        if path != MEMORY:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise Unavailable(
                    f"{path} can not use a write-ahead log (mode {mode})", hint="put the file on a local disk"
                )
            db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
            db.execute("PRAGMA fullfsync = 1")
            db.execute("PRAGMA checkpoint_fullfsync = 1")
            db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            # Messages of a long backlog are read where the system has them: a claim there costs as much as a fresh one.
            db.execute(f"PRAGMA mmap_size = {1 << 30}")
        db.execute("PRAGMA cache_size = -65536")
        db.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        db.close()
        raise
    return db


def migrate(db: sqlite3.Connection, path: str, steps: Sequence[Migration] | None = None) -> int:
    """Bring the schema up to date in one transaction; the version it has then."""
    steps = migrations() if steps is None else steps
    db.execute("BEGIN IMMEDIATE")
    try:
        known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'tampu_meta'").fetchone()
        version = check_version(db, path) if known else 0
        for number, script in steps:
            if number > version:
                for statement in _statements(script):
                    db.execute(statement)
                if version == 0:
                    db.execute("INSERT INTO tampu_meta VALUES ('tail', ?)", (secrets.randbits(54),))
                db.execute("INSERT OR REPLACE INTO tampu_meta VALUES ('schema', ?)", (number,))
                version = number
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return version


def _statements(script: str) -> list[str]:
    """The statements of a script; `executescript` would commit first."""
    found, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def translate(error: sqlite3.Error, path: str) -> TampuError:  # noqa: PLR0911 - one line per meaning
    """What an error of SQLite means for the caller. Nothing of the call took effect."""
    code = getattr(error, "sqlite_errorcode", None)
    kind = None if code is None else code & 0xFF
    if kind == sqlite3.SQLITE_FULL:
        return StorageFull("the disk is full; nothing was stored", hint="make room and call again")
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(
            f"{path} has been locked by another program for {BUSY_SECONDS:.0f} s",
            hint="look for a long or stopped transaction on the file",
        )
    if kind == sqlite3.SQLITE_CORRUPT:
        return DamagedFile(
            f"{path} is damaged: {error}", hint="stop writing to it and restore a backup; see tampu doctor"
        )
    if kind == sqlite3.SQLITE_NOTADB:
        return ForeignFile(f"{path} is not a SQLite file", hint="name another file; this one was left as it is")
    if kind in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return Unavailable(f"{path} can not be opened for writing: {error}", hint="check the owner, mode and folder")
    if kind == sqlite3.SQLITE_IOERR:
        return StorageError(f"the disk gave an error: {error}", hint="check free space, quota and the disk's health")
    return StorageError(f"{path}: {error}")
