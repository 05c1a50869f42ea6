"""A disk that remembers: every write, truncate, sync and delete of a database's files, in order.

SQLite runs on it through a Python VFS of apsw; `Connection` offers the few methods of `sqlite3.Connection` that the
engine uses. apsw brings its own SQLite, which must never open a file that `sqlite3` has open in the same process
(closing one would drop the locks of the other), so a recorded file is only read through here.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tampu.engines.sqlite import SqliteEngine


class Event(NamedTuple):
    kind: str
    """``write``, ``truncate``, ``sync``, ``delete``, or ``mark`` for what the test itself notes"""
    name: str
    offset: int = 0
    data: bytes = b""


class Disk:
    """The log of one folder's files, and connections that write through it."""

    def __init__(self, name: str, checkpoint_pages: int) -> None:
        self.events: list[Event] = []
        self.checkpoint_pages = checkpoint_pages
        self._lock = threading.Lock()
        self._vfs = _RecordingVFS(name, self)
        self._vfs_name = name

    def note(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def mark(self, text: str) -> int:
        """Note something of the test's own; how many events there are then."""
        self.note(Event("mark", text))
        return len(self.events)

    def connect(self, path: str, **_: Any) -> Any:
        return Connection(apsw.Connection(path, vfs=self._vfs_name), self.checkpoint_pages)

    def close(self) -> None:
        self._vfs.unregister()


class _RecordingVFS(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "")
        self._name = name
        self._disk = disk

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _RecordingFile(name, flags, self._disk)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._disk.note(Event("delete", Path(filename).name, offset=int(syncdir)))


class _RecordingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], disk: Disk) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._file = Path(text).name if text else None

    def xWrite(self, data: Any, offset: int) -> None:
        super().xWrite(data, offset)
        self._note("write", offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._note("truncate", newsize)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._note("sync")

    def _note(self, kind: str, offset: int = 0, data: bytes = b"") -> None:
        if self._file is not None:
            self._disk.note(Event(kind, self._file, offset, data))


class Rows:
    """What `execute` answers: all rows, read at once."""

    def __init__(self, rows: list[Any], description: Sequence[Any], rowcount: int, lastrowid: int) -> None:
        self._rows = iter(rows)
        self.description = description
        self.rowcount = rowcount
        self.lastrowid = lastrowid

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class Connection:
    """An apsw connection with the manners of `sqlite3.Connection`."""

    def __init__(self, db: apsw.Connection, checkpoint_pages: int) -> None:
        self._db = db
        self._checkpoint_pages = checkpoint_pages
        db.set_busy_timeout(30_000)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        if sql.startswith("PRAGMA wal_autocheckpoint"):
            # Checkpoints and restarts of the log must happen within a short history.
            sql = f"PRAGMA wal_autocheckpoint = {self._checkpoint_pages}"
        return self._do(lambda cursor: cursor.execute(sql, tuple(parameters)))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> Rows:
        return self._do(lambda cursor: cursor.executemany(sql, [tuple(row) for row in rows]))

    def _do(self, action: Callable[[Any], Any]) -> Rows:
        cursor = self._db.cursor()
        try:
            running = action(cursor)
            try:
                description = cursor.getdescription()
            except apsw.ExecutionCompleteError:  # there are no rows
                description = ()
            rows = list(running)
        except apsw.Error as error:
            failed = sqlite3.OperationalError(str(error))
            if isinstance(error, apsw.FullError):
                failed.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise failed from error
        finally:
            cursor.close()
        return Rows(rows, description, self._db.changes(), self._db.last_insert_rowid())

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def close(self) -> None:
        self._db.close()


class RecordedEngine(SqliteEngine):
    """The engine on a recorded disk. It grows the log past SQLite, so that is recorded here."""

    def __init__(self, path: str, disk: Disk, **options: Any) -> None:
        self._disk = disk
        super().__init__(path, connect=disk.connect, **options)

    def _grow_log(self) -> None:
        log = Path(f"{self.path}-wal")
        before = log.stat().st_size
        super()._grow_log()
        grown = log.stat().st_size
        self._disk.mark("log grows")
        for start in range(before, grown, 65536):
            self._disk.note(Event("write", log.name, start, bytes(min(65536, grown - start))))
        self._disk.note(Event("sync", log.name))
