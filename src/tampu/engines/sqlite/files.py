"""The file: opening it safely, its schema and migrations, and what SQLite's errors mean to a user.

Another program's file is never written to: `inspect` checks first, and only a new or a tampu file is opened.
"""

from __future__ import annotations

import functools
import os
import secrets
import sqlite3
import urllib.parse
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from tampu.engines.sqlite.reserve import full
from tampu.model.errors import (
    DamagedFile,
    ForeignFile,
    SchemaMismatch,
    StorageError,
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


@functools.cache
def migrations() -> Sequence[Migration]:
    """(version, SQL) of every schema step, in order."""
    folder = resources.files("tampu.engines.sqlite") / "schema"
    steps = [(int(step.name[:4]), step.read_text()) for step in folder.iterdir() if step.name.endswith(".sql")]
    return tuple(sorted(steps))


def newest_schema() -> int:
    version, _ = migrations()[-1]
    return version


def inspect(path: str, *, adopt: bool) -> None:
    """Refuse a path that cannot be a tampu file or is another file, without changing it."""
    if path == MEMORY:
        return
    place = Path(path)
    if not place.parent.is_dir():
        raise Unavailable(f"there is no folder {place.parent}", hint="create it first")
    if place.is_dir():
        raise ForeignFile(f"{path} is a folder", hint="name a file in it")
    if not place.exists() or place.stat().st_size == 0:
        if not os.access(place.parent, os.W_OK):
            raise Unavailable(f"no permission to write in {place.parent}")
        _create_private(place)
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise Unavailable(f"no permission to read and write {path}", hint="check the owner and mode")
    if place.stat().st_size == 1:  # SQLite treats a file of one byte as empty and would overwrite it
        raise ForeignFile(f"{path} is not a SQLite file", hint="name another file; this one was left as it is")
    _inspect_tables(path, adopt=adopt)


def _create_private(place: Path) -> None:
    """Create an empty file that only its owner can read: SQLite would let everybody. Its log gets the same mode.

    It is made under another name, because closing a file drops the locks of other connections of this process to it.
    """
    temporary = place.with_name(f"{place.name}-{secrets.token_hex(8)}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.link(temporary, place)
    except OSError:  # another process was faster, or the disk has no links: then SQLite creates the file
        return
    finally:
        temporary.unlink(missing_ok=True)


def _inspect_tables(path: str, *, adopt: bool, mode: str = "ro") -> None:
    """Check the tables through SQLite, read only. Opening and closing the file in any other way would drop the locks
    of other connections of this process."""
    db = None
    try:
        quoted = urllib.parse.quote(str(Path(path).absolute()))
        db = sqlite3.connect(f"file:{quoted}?mode={mode}", uri=True, isolation_level=None, timeout=BUSY_SECONDS)
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "tampu_meta" not in names and names and not adopt:
            raise ForeignFile(
                f"{path} is another program's SQLite file",
                hint="name another file, or open it with adopt=True to keep the queue beside its tables",
            )
        if "tampu_meta" in names:
            check_version(db, path)
    except sqlite3.Error as error:
        if mode == "ro" and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK:
            # A crash left a transaction half written. SQLite must undo it before it can read.
            return _inspect_tables(path, adopt=adopt, mode="rw")
        raise translate(error, path) from error
    finally:
        if db is not None:
            db.close()


def check_version(db: sqlite3.Connection, path: str) -> int:
    """The schema version of a file. Refuses one that is newer than this program."""
    (stored,) = db.execute("SELECT value FROM tampu_meta WHERE name = 'schema'").fetchone()
    version = int(stored)
    newest = newest_schema()
    if version > newest:
        raise SchemaMismatch(
            f"{path} has schema {version}; this tampu knows up to {newest}", hint="upgrade tampu to open it"
        )
    return version


def identity(path: str) -> tuple[int, int] | None:
    """The device and inode of the file with this name; None if there is none, or for memory."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: str, durability: str, factory: Connect = sqlite3.connect) -> sqlite3.Connection:
    """A connection with the engine's settings. The file must have passed `inspect`."""
    db = factory(path, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False, cached_statements=256)
    try:
        if path != MEMORY:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise Unavailable(
                    f"{path} cannot use a write-ahead log (mode {mode})", hint="put the file on a local disk"
                )
            db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
            db.execute("PRAGMA fullfsync = 1")
            db.execute("PRAGMA checkpoint_fullfsync = 1")
            db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            # Messages of a long backlog are read from the page cache: claiming them costs as much as new ones.
            db.execute(f"PRAGMA mmap_size = {1 << 30}")
        db.execute("PRAGMA cache_size = -65536")
        db.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        db.close()
        raise
    return db


def migrate(db: sqlite3.Connection, path: str, steps: Sequence[Migration] | None = None) -> int:
    """Bring the schema up to date in one transaction. Returns its version."""
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
    """The statements of a script, one by one: `executescript` would commit first."""
    found, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def _kind(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_full(error: sqlite3.Error) -> bool:
    return _kind(error) == sqlite3.SQLITE_FULL


def translate(error: sqlite3.Error, path: str) -> TampuError:  # noqa: PLR0911 - one line per meaning
    """The error to raise for an error of SQLite. The call had no effect."""
    kind = _kind(error)
    if kind == sqlite3.SQLITE_FULL:
        return full()
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(
            f"{path} has been locked by another program for {BUSY_SECONDS:.0f} s",
            hint="look for a long transaction or a stopped process on the file",
        )
    if kind == sqlite3.SQLITE_CORRUPT:
        return DamagedFile(
            f"{path} is damaged: {error}", hint="stop writing to it and restore a backup; see tampu doctor"
        )
    if kind == sqlite3.SQLITE_NOTADB:
        return ForeignFile(f"{path} is not a SQLite file", hint="name another file; this one was left as it is")
    if kind in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return Unavailable(f"{path} cannot be opened for writing: {error}", hint="check the owner, mode and folder")
    if kind == sqlite3.SQLITE_IOERR:
        return StorageError(f"disk error: {error}", hint="check free space, quota and the disk's health")
    return StorageError(f"{path}: {error}")
