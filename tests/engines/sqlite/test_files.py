"""Files that are not ours, damaged, newer, or somebody else's too: refused and left as they are."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

import tampu
from tampu import DamagedFile, ForeignFile, SchemaMismatch, StorageError, Unavailable
from tampu.broker import access
from tampu.engines.sqlite import SqliteEngine, files


def _print(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _filled(path: Path, rows: int = 300) -> Path:
    with tampu.open(path, maintenance=False) as store:
        store.publish_many("jobs", [{"n": n, "text": "x" * 200} for n in range(rows)])
    return path


def _refused(path: Path, error: type[StorageError], **options: bool) -> StorageError:
    before, company = _print(path), sorted(p.name for p in path.parent.iterdir())
    with pytest.raises(error) as refused:
        tampu.open(path, maintenance=False, **options)  # type: ignore[arg-type]  # a bag of options
    assert _print(path) == before
    assert sorted(p.name for p in path.parent.iterdir()) == company
    assert refused.value.hint
    return refused.value


def test_a_new_file_is_made_and_an_empty_one_is_fine(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for name in ("new.db", "empty.db"):
        with tampu.open(tmp_path / name, maintenance=False) as store:
            store.publish("jobs", 1)
        with tampu.open(tmp_path / name, maintenance=False) as store:
            assert store.stats("jobs").ready == 1


@pytest.mark.parametrize("content", [b"hello\n", b"SQLite format 2\x00" * 100, b"\x00" * 4096, b"S"])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert _refused(path, ForeignFile).code == "foreign_file"


def test_another_program_s_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE users (name TEXT)")
        db.execute("INSERT INTO users VALUES ('ada')")
    db.close()
    _refused(path, ForeignFile)


def test_another_program_s_database_in_wal_mode_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE users (name TEXT)")
    db.commit()
    db.close()
    before = _print(path)
    with pytest.raises(ForeignFile):
        tampu.open(path, maintenance=False)
    assert _print(path) == before


def test_adopt_keeps_the_tables_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE users (name TEXT)")
        db.execute("INSERT INTO users VALUES ('ada')")
    db.close()
    with tampu.open(path, maintenance=False, adopt=True) as store:
        store.publish("jobs", 1)
        with store.transaction() as tx:
            assert tx.execute("SELECT name FROM users").fetchall() == [("ada",)]
    with tampu.open(path, maintenance=False) as store:
        assert store.stats("jobs").ready == 1
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM users").fetchall() == [("ada",)]
    db.close()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ForeignFile):
        tampu.open(tmp_path, maintenance=False)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        tampu.open(tmp_path / "none" / "jobs.db", maintenance=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [100, 2048, 4096, 20_000])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = _filled(tmp_path / "jobs.db")
    whole = path.read_bytes()
    assert len(whole) > keep
    path.write_bytes(whole[:keep])
    for companion in ("-gate", "-keeper"):
        Path(f"{path}{companion}").unlink(missing_ok=True)
    before = _print(path)
    with pytest.raises(StorageError) as refused:
        tampu.open(path, maintenance=False)
    assert refused.value.code in ("damaged_file", "foreign_file", "storage_error")
    assert _print(path) == before


def test_a_damaged_schema_is_refused(tmp_path: Path) -> None:
    path = _filled(tmp_path / "jobs.db")
    data = bytearray(path.read_bytes())
    data[100:600] = b"\xff" * 500
    path.write_bytes(data)
    before = _print(path)
    with pytest.raises(DamagedFile) as refused:
        tampu.open(path, maintenance=False)
    assert refused.value.code == "damaged_file"
    assert _print(path) == before


def test_damage_deep_in_a_file_gives_a_clear_error_never_another_exception(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    whole = _filled(tmp_path / "good.db").read_bytes()
    for n in range(12):
        path = tmp_path / f"bad{n}.db"
        data = bytearray(whole)
        for _ in range(8):
            page = dice.randrange(1, len(data) // 4096)
            data[page * 4096 : page * 4096 + 64] = dice.randbytes(64)
        path.write_bytes(data)
        with contextlib.suppress(StorageError, tampu.NotFound), tampu.open(path, maintenance=False) as store:
            store.stats()
            list(store.messages("jobs", limit=1000))
            store.claim("jobs", limit=100)


def test_the_doctor_sees_damage(tmp_path: Path) -> None:
    path = _filled(tmp_path / "jobs.db", rows=2000)
    db = sqlite3.connect(path)
    root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'tampu_ready_seq'").fetchone()[0]
    db.close()
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096 + 200 : root * 4096] = b"\x7f" * (4096 - 200)
    path.write_bytes(data)
    with tampu.open(path, maintenance=False) as store:
        assert ("file", "bad") in {(what, level) for what, level, _ in store.check()}


FORBIDDEN = """
import os, sys, tampu
if os.geteuid() == 0:  # root may read and write everything
    os.setgid(65534)
    os.setuid(65534)
for path in sys.argv[1:]:
    try:
        tampu.open(path, maintenance=False)
    except tampu.Unavailable as error:
        assert "permission" in str(error), error
    else:
        raise SystemExit(f"{path} was opened")
"""


def test_a_file_or_folder_without_permission_is_refused() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        unreadable, read_only = _filled(folder / "a.db"), _filled(folder / "b.db")
        unreadable.chmod(0)
        read_only.chmod(0o444)
        folder.chmod(0o555)
        before = _print(read_only)
        subprocess.run(
            [sys.executable, "-c", FORBIDDEN, unreadable, read_only, folder / "new.db"], check=True, timeout=120
        )
        assert _print(read_only) == before
        folder.chmod(0o755)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = _filled(tmp_path / "jobs.db")
    db = sqlite3.connect(path)
    db.execute("UPDATE tampu_meta SET value = 99 WHERE name = 'schema'")
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = _print(path)
    with pytest.raises(SchemaMismatch) as refused:
        tampu.open(path, maintenance=False)
    assert refused.value.code == "schema_mismatch"
    assert _print(path) == before


NOW = files.migrations()[-1][0]
STEP = "ALTER TABLE tampu_queue ADD COLUMN color TEXT;\nCREATE TABLE tampu_extra (a INTEGER);\n"


def test_migrations_run_in_order_once_and_keep_the_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _filled(tmp_path / "jobs.db")
    steps = [*files.migrations(), (NOW + 1, STEP)]
    monkeypatch.setattr(files, "migrations", lambda: steps)
    for _ in range(2):
        with tampu.open(path, maintenance=False) as store:
            assert store.stats("jobs").ready == 300
            assert {w: t for w, _, t in store.check()}["schema"].startswith(f"version {NOW + 1}")
            with store.transaction() as tx:
                assert tx.execute("SELECT count(color) FROM tampu_queue").fetchone() == (0,)


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _filled(tmp_path / "jobs.db")
    first = files.migrations()
    monkeypatch.setattr(files, "migrations", lambda: [*first, (NOW + 1, STEP), (NOW + 2, "CREATE TABLE broken (;\n")])
    with pytest.raises(StorageError):
        tampu.open(path, maintenance=False)
    monkeypatch.undo()
    with tampu.open(path, maintenance=False) as store:
        assert len(store.claim("jobs", limit=1000)) == 300
        with store.transaction() as tx:
            names = {row[0] for row in tx.execute("SELECT name FROM sqlite_master")}
            assert "tampu_extra" not in names


def test_an_older_program_refuses_the_migrated_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _filled(tmp_path / "jobs.db")
    steps = [*files.migrations(), (NOW + 1, STEP)]
    monkeypatch.setattr(files, "migrations", lambda: steps)
    tampu.open(path, maintenance=False).close()
    monkeypatch.undo()
    with pytest.raises(SchemaMismatch):
        tampu.open(path, maintenance=False)


TO_SIX = (
    "DROP TABLE tampu_correlation; ALTER TABLE tampu_leased DROP COLUMN since;"
    "ALTER TABLE tampu_leased DROP COLUMN extended"
)
"""Takes back what version 7 has added."""


def test_groups_that_wait_go_on_after_the_second_version(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with tampu.open(path, maintenance=False) as store:
        store.queues.put("jobs", group_order=True)
        store.publish_many("jobs", [tampu.NewMessage(n, group="a") for n in range(3)])
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE old (q INTEGER, lane TEXT, seq INTEGER, PRIMARY KEY (q, lane)) WITHOUT ROWID;"
        "INSERT INTO old SELECT q, lane, seq FROM tampu_lane; DROP TABLE tampu_lane;"
        "ALTER TABLE old RENAME TO tampu_lane; ALTER TABLE tampu_queue DROP COLUMN places; DROP TABLE tampu_fair;"
        "ALTER TABLE tampu_queue DROP COLUMN pace; ALTER TABLE tampu_queue DROP COLUMN pace_burst;"
        "DROP TABLE tampu_pace;"
        f"{TO_SIX}; ALTER TABLE tampu_held DROP COLUMN lease; UPDATE tampu_meta SET value = 1 WHERE name = 'schema';"
    )
    db.close()
    with tampu.open(path, maintenance=False) as store:
        for n in range(3):
            (lease,) = store.claim("jobs", limit=10)
            assert lease.payload == n
            store.ack(lease)


def test_idempotency_keys_of_the_third_version_are_those_of_their_queues(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with tampu.open(path, maintenance=False) as q:
        kept = q.publish("jobs", 1, idempotency_key="x")
        slash = q.publish("other", 2, idempotency_key="jobs/x")
        gone = q.publish("gone", 3, idempotency_key="y")
        q.purge("gone", state="ready")
    db = sqlite3.connect(path)
    db.executescript(
        "UPDATE tampu_idempotency SET tenant = 'default', key = substr(key, instr(key, '/') + 1);"
        f"{TO_SIX}; ALTER TABLE tampu_held DROP COLUMN lease; UPDATE tampu_meta SET value = 3 WHERE name = 'schema'"
    )
    db.close()
    with tampu.open(path, maintenance=False) as q:
        assert q.publish("jobs", 1, idempotency_key="x").id == kept.id
        assert q.publish("other", 2, idempotency_key="jobs/x").id == slash.id
        assert q.publish("gone", 3, idempotency_key="y").id == gone.id
        assert not q.publish("other", 3, idempotency_key="y").duplicate
        with pytest.raises(tampu.IdempotencyConflict):
            q.publish("jobs", 2, idempotency_key="x")
        assert not q.publish("other", 1, idempotency_key="x").duplicate


def test_ids_of_the_fourth_version_go_on_and_new_ones_have_secret_tails(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    tampu.open(path, maintenance=False).close()
    _run(path, f"UPDATE tampu_meta SET value = {1 << 62} WHERE name = 'since'")
    with tampu.open(path, maintenance=False) as q:
        old = [message.id for message in q.publish_many("jobs", range(3))]
        assert len({id[-12:] for id in old}) == 1
    _run(path, "DELETE FROM tampu_meta WHERE name IN ('secret', 'since')")
    for statement in (*TO_SIX.split(";"), "ALTER TABLE tampu_held DROP COLUMN lease"):
        _run(path, statement)
    _run(path, "UPDATE tampu_meta SET value = 4 WHERE name = 'schema'")
    with tampu.open(path, maintenance=False) as q:
        new = [message.id for message in q.publish_many("jobs", range(3, 6))]
        assert [q.get(id).payload for id in old + new] == list(range(6))
        assert [lease.id for lease in q.claim("jobs", limit=10)] == old + new
        assert len({id[-12:] for id in old[:1] + new}) == 4


def test_leases_of_the_sixth_version_go_on_and_new_messages_are_found_by_correlation_id(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with tampu.open(path, maintenance=False) as store:
        store.publish("jobs", 1, correlation_id="c")
        (lease,) = store.claim("jobs", worker="ada")
    for statement in TO_SIX.split(";"):
        _run(path, statement)
    _run(path, "UPDATE tampu_meta SET value = 6 WHERE name = 'schema'")
    with tampu.open(path, maintenance=False) as store:
        held = store.get(lease.id)
        assert (held.worker, held.started_at, held.updated_at) == ("ada", None, None)
        store.extend(lease, 60)
        assert store.get(lease.id).updated_at is not None
        store.ack(lease)
        new = store.publish("jobs", 2, correlation_id="c")
        assert [message.id for message in store.trace("c")] == [new.id]


def _run(path: Path, sql: str) -> None:
    db = sqlite3.connect(path)
    db.execute(sql)
    db.commit()
    db.close()


def test_schema_steps_are_numbered_without_gaps() -> None:
    assert [number for number, _ in files.migrations()] == list(range(1, len(files.migrations()) + 1))


def test_the_wheel_holds_the_schema(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    subprocess.run(
        [sys.executable, "-c", "import sys, hatchling.build as b; b.build_wheel(sys.argv[1])", tmp_path],
        cwd=root, check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for path in (root / "src").rglob("*"):
        if path.suffix in (".sql", ".py", ".typed"):
            assert str(path.relative_to(root / "src")) in packed


def test_durability_is_what_was_asked_for(tmp_path: Path) -> None:
    for durability, level in (("full", 2), ("process", 1)):
        engine = SqliteEngine(str(tmp_path / f"{durability}.db"), durability=durability)
        assert engine._db.execute("PRAGMA synchronous").fetchone() == (level,)
        assert engine._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert engine.durability == durability
        engine.close()
    with tampu.open("memory://", maintenance=False) as store:
        assert store.durability == "memory"


def test_companions_have_the_mode_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    tampu.open(path, maintenance=False).close()
    for end in ("-gate", "-keeper"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    path.chmod(0o660)
    with tampu.open(path, maintenance=False) as store:
        assert access.engine(store).lead()
        modes = {Path(f"{path}{end}").stat().st_mode & 0o777 for end in ("", "-gate", "-keeper")}
    assert modes == {0o660}


def test_a_companion_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs.db-gate").mkdir()
    with pytest.raises(Unavailable, match=r"jobs\.db-gate"):
        tampu.open(tmp_path / "jobs.db", maintenance=False)


def test_a_name_that_is_too_long_is_an_answer_not_a_crash(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        tampu.open(tmp_path / ("x" * 300), maintenance=False)


def _descriptors() -> set[int]:
    """Open in this process; the one that lists them is closed again."""
    found = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 - names of links
    return {number for number in found if Path(f"/proc/self/fd/{number}").is_symlink()}


def test_without_descriptors_opening_fails_and_keeps_nothing(tmp_path: Path) -> None:
    tampu.open(tmp_path / "jobs.db").close()
    used = _descriptors()
    free = itertools.filterfalse(used.__contains__, itertools.count())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    answers = []
    for spare, limit in enumerate(itertools.islice(free, 12)):  # the limit is of numbers, and there may be gaps
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
        try:
            tampu.open(tmp_path / "jobs.db", maintenance=False).close()
            answers.append("opened")
        except Unavailable:
            answers.append("refused")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert len(_descriptors()) <= len(used), f"with {spare} to spare"
    assert set(answers) == {"opened", "refused"}


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm", "-gate", "-keeper"):
        Path(f"{path}{end}").unlink(missing_ok=True)


def _publish_on(store: tampu.Store) -> None:
    while True:
        store.publish("jobs", 2)


def test_a_file_that_was_removed_is_not_written_to_for_long(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with tampu.open(path) as store:
        store.publish("jobs", 1)
        _remove(path)
        with pytest.raises(Unavailable, match="removed"):
            _publish_on(store)
        assert [finding[:2] for finding in store.check()] == [("file", "bad")]
    assert not path.exists()


def test_a_file_that_was_replaced_is_noticed_without_keepers(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with tampu.open(path, maintenance=False, durability="process") as store:
        store.publish("jobs", 1)
        _remove(path)
        with tampu.open(path, maintenance=False) as other:
            other.publish("jobs", "new")
        with pytest.raises(Unavailable, match="replaced"):
            _publish_on(store)
    with tampu.open(path, maintenance=False) as store:
        assert [m.payload for m in store.messages("jobs")] == ["new"]


def test_only_the_owner_can_read_a_new_file(tmp_path: Path) -> None:
    """The file has payloads and hashes of keys. An existing file keeps its mode: others may be meant to read it."""
    new, shared = tmp_path / "new.db", tmp_path / "shared.db"
    old = os.umask(0o022)
    try:
        shared.touch(mode=0o644)
        for path in (new, shared):
            with tampu.open(path) as store:
                store.publish("jobs", 1)
                found = {part.name: oct(part.stat().st_mode & 0o777) for part in tmp_path.glob(f"{path.name}*")}
                assert set(found.values()) == {"0o600" if path is new else "0o644"}, found
                assert {path.name, f"{path.name}-wal", f"{path.name}-shm"} <= found.keys()
                level = {what: level for what, level, _ in store.check()}["access"]
                assert level == ("ok" if path is new else "warn")
    finally:
        os.umask(old)
    assert not [part for part in tmp_path.iterdir() if len(part.name) > 20], "nothing else is left"
