"""No room: the call fails with a clear error, nothing is lost or half stored, and it works again with room."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu import NewMessage, StorageError, StorageFull
from tampu.broker import access
from tampu.broker.store import Store
from tampu.engines.port import PutDocument
from tests.conformance.harness import FakeClock, Harness, counts

BIG = b"x" * 200_000


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = "memory://" if request.param == "memory" else str(tmp_path / "jobs.db")
    opened = tampu.open(url, maintenance=False, clock=FakeClock())
    yield opened
    opened.close()


def _fill(store: Store) -> None:
    """Leave no free page."""
    store.publish_many("jobs", [b"y" * 1000] * 50)
    db = access.engine(store)._db  # type: ignore[attr-defined]  # the engine's own connection
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")


def _room(store: Store) -> None:
    access.engine(store)._db.execute("PRAGMA max_page_count = 1000000")  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.publish("jobs", BIG),
        lambda store: store.publish_many("jobs", [BIG, BIG]),
        lambda store: store.publish("jobs", BIG, key="k", idempotency_key="i"),
        lambda store: store.publish_many("new.queue", [NewMessage(BIG, key="k"), 1]),
        lambda store: store.publish_many("jobs", range(10_000)),
    ],
    ids=["one", "many", "with keys", "new queue", "ten thousand small"],
)
def test_a_publish_without_room_stores_nothing_and_works_with_room(store: Store, call: Callable[[Store], Any]) -> None:
    _fill(store)
    before = Harness.picture(None, store)  # type: ignore[arg-type]  # it needs no store
    with pytest.raises(StorageFull) as refused:
        call(store)
    assert (refused.value.code, bool(refused.value.hint)) == ("storage_full", True)
    assert Harness.picture(None, store) == before  # type: ignore[arg-type]  # as above
    assert {level for what, level, _ in store.check() if what in ("file", "indexes")} == {"ok"}
    _room(store)
    call(store)
    assert {level for what, level, _ in store.check() if what in ("file", "indexes")} == {"ok"}


def test_reading_works_without_room(store: Store) -> None:
    _fill(store)
    assert store.stats("jobs").ready == 50
    assert len(store.messages("jobs")) == 50


def test_a_full_disk_inside_a_transaction_takes_all_of_it_back(store: Store) -> None:
    _fill(store)
    before = Harness.picture(None, store)  # type: ignore[arg-type]  # it needs no store
    with pytest.raises(StorageFull), store.transaction() as tx:  # noqa: PT012 - the block is what is tested
        tx.publish("jobs", "small")
        tx.publish("jobs", BIG)
    assert Harness.picture(None, store) == before  # type: ignore[arg-type]  # as above


def test_a_full_disk_that_is_caught_inside_a_transaction_commits_nothing_half(store: Store) -> None:
    store.publish("jobs", 0)
    with store.transaction() as tx:
        tx.execute("CREATE TABLE orders (n INTEGER)")
        tx.execute("INSERT INTO orders VALUES (1)")
    _fill(store)
    before = counts(store, "jobs")
    try:
        with store.transaction() as tx:
            tx.execute("UPDATE orders SET n = 2")
            with pytest.raises(StorageFull):
                tx.publish_many("jobs", [NewMessage(b"z" * 900, ttl=5, delay=n) for n in range(2000)])
    except StorageError:
        pass
    _room(store)
    assert counts(store, "jobs") == before
    assert {level for what, level, _ in store.check() if what in ("file", "indexes")} == {"ok"}


LIMITED = """
import resource, signal, sys, tampu
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]
store = tampu.open(path, maintenance=False)
kept = [store.publish("jobs", n).id for n in range(20)]
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
refused = 0
for n in range(200):
    try:
        kept.append(store.publish("jobs", "x" * 20_000).id)
    except tampu.StorageError as error:
        assert error.code in ("storage_full", "storage_error"), error
        refused += 1
assert refused, "the limit did not bite"
assert store.stats("jobs").ready == len(kept), (store.stats("jobs").ready, len(kept))
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
kept.append(store.publish("jobs", "after").id)
store.close()
with tampu.open(path, maintenance=False) as store:
    assert [lease.id for lease in store.claim("jobs", limit=1000)] == kept
    assert all(level != "bad" for _, level, _ in store.check())
"""


def test_a_file_that_may_not_grow_fails_the_call_and_loses_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "jobs.db")], check=True, timeout=120)


def test_what_makes_room_works_without_room_for_its_record(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else nobody could free a disk that is full."""
    waiting, other = store.publish_many("jobs", [1, 2])
    held = store.publish("jobs", 3, hold="why")
    engine = access.engine(store)
    run = engine.run

    def full(calls: Any) -> list[Any]:
        return [StorageFull("no room") if isinstance(call, PutDocument) else run([call])[0] for call in calls]

    monkeypatch.setattr(engine, "run", full)
    assert store.cancel(waiting.id)[0].ok
    assert store.free(held.id)[0].ok
    assert store.purge("jobs", state=["ready", "cancelled"]) == 3
    assert other.id not in [message.id for message in store.messages("jobs")]
    assert "without a record" in caplog.text
