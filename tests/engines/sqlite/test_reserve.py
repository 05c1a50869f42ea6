"""A full disk: a reserve lets leases be settled and messages be removed, so that room can be made."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

import tampu
from tampu import StorageFull
from tampu.broker import access, validate
from tampu.broker.settings import resolve
from tampu.broker.store import Store
from tampu.engines import port
from tampu.engines.sqlite import SqliteEngine
from tampu.model.config import BUILT_IN
from tests.conformance.harness import counts
from tests.faults.disk import Connection, Rows

SIZE = 60 << 20
"""Of the disk: the log and the reserve have 17 MB each."""
BODY = "x" * 50_000
CHECKPOINT = "no room for the checkpoint"
_NAMES = (f"small{n}" for n in itertools.count())


class SmallDisk(apsw.VFS):
    """A disk with little room, for the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.name = next(_NAMES)
        self.folder = folder
        self.size = SIZE
        super().__init__(self.name, "")

    def free(self) -> int:
        used = sum(file.stat().st_size for file in self.folder.iterdir() if not file.name.endswith("-shm"))
        return max(0, self.size - used)

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _SmallFile(name, flags, self)

    def connect(self, path: str, **_: Any) -> Any:
        return _Connection(apsw.Connection(path, vfs=self.name), 4000)


class _Connection(Connection):
    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        try:
            return super().execute(sql, parameters)
        except sqlite3.OperationalError as error:
            if sql == "COMMIT" and CHECKPOINT in str(error):  # apsw tells of it; for SQLite the commit is done
                return Rows([], (), 0, 0)
            raise


class _SmallFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], disk: SmallDisk) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._error = "no room" if text and text.endswith("-wal") else CHECKPOINT

    def xWrite(self, data: Any, offset: int) -> None:
        if offset + len(data) > self.xFileSize() and self._disk.free() < len(data):
            raise apsw.FullError(self._error)
        super().xWrite(data, offset)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path)

    def statvfs(_: Any) -> Any:
        values = list(os.statvfs_result(range(11)))
        values[1], values[4] = 1, made.free()  # the size of a block, and how many are free
        return os.statvfs_result(values)

    monkeypatch.setattr("tampu.engines.sqlite.reserve.os.statvfs", statvfs)
    yield made
    made.unregister()


@pytest.fixture
def store(disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    plain = SqliteEngine.__init__

    def small(self: SqliteEngine, *args: Any, **options: Any) -> None:
        plain(self, *args, **options, connect=disk.connect)

    monkeypatch.setattr(SqliteEngine, "__init__", small)
    with tampu.open(str(tmp_path / "jobs.db"), maintenance=False) as opened:
        yield opened


def fill(store: Store) -> int:
    """Publish until the disk is full. Returns how many messages were stored."""
    for _ in range(40):
        store.publish("first", 1)  # the log and the reserve are made after some commits
    stored = 0
    with contextlib.suppress(StorageFull):
        while stored < SIZE // len(BODY):
            store.publish("jobs", BODY)
            stored += 1
    return stored


def findings(store: Store) -> dict[str, str]:
    return {what: level for what, level, _ in store.check()}


def test_messages_are_settled_and_purged_on_a_full_disk_and_that_makes_room(store: Store, disk: SmallDisk) -> None:
    stored = fill(store)
    worked = 0
    while leases := store.claim("jobs", limit=5):
        assert all(outcome.error is None for outcome in store.settle([tampu.Ack(lease) for lease in leases]))
        worked += len(leases)
    assert worked == stored
    assert findings(store)["space"] == "bad"
    assert access.engine(store).is_full()
    with pytest.raises(StorageFull):
        store.publish("jobs", BODY)
    while store.purge("jobs", state="done"):
        pass
    assert not access.engine(store).is_full(), "the file has free pages"
    assert store.publish("jobs", BODY).state == "ready"
    assert counts(store, "jobs") == {"ready": 1}
    assert findings(store)["file"] == findings(store)["indexes"] == "ok"


def use_reserve(store: Store) -> None:
    while not access.engine(store).is_full():
        (lease,) = store.claim("jobs")
        store.release(lease)


def test_a_publish_cannot_take_the_room_that_settling_needs(store: Store, disk: SmallDisk) -> None:
    fill(store)
    use_reserve(store)
    before = disk.free()
    for _ in range(3):
        with pytest.raises(StorageFull):
            store.publish("jobs", "small")
        with pytest.raises(StorageFull), store.atomic() as unit:
            unit.publish("jobs", "small")
    assert disk.free() == before
    (lease,) = store.claim("first")
    store.ack(lease)


def test_calls_of_one_commit_are_refused_one_by_one(store: Store) -> None:
    fill(store)
    use_reserve(store)
    (lease,) = store.claim("first")
    publish = port.Publish("default", "jobs", [validate.item("jobs", resolve(BUILT_IN), tampu.NewMessage(1))])
    ack = port.Settle("default", [port.SettleItem("ack", "first", lease.receipt)])
    refused, outcomes = access.engine(store).run([publish, ack])
    assert isinstance(refused, StorageFull)
    assert isinstance(outcomes, list)
    (outcome,) = outcomes
    assert outcome.state == "done"


def test_the_reserve_is_made_again_when_the_disk_has_room(store: Store, disk: SmallDisk, tmp_path: Path) -> None:
    fill(store)
    use_reserve(store)
    disk.size *= 2
    assert store.publish("jobs", "small").state == "ready"
    assert (tmp_path / "jobs.db-reserve").stat().st_size > 1 << 20
    assert (tmp_path / "jobs.db-reserve").stat().st_mode & 0o777 == 0o600
    assert findings(store)["space"] != "bad"
