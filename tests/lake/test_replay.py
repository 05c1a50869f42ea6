"""Replay from the lake: what ran once runs again, as new messages, and never twice for one replay id."""

import os
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

import tampu
from tampu.broker import access
from tampu.lake.query import Lake
from tampu.lake.replay import Replay
from tampu.lake.replay import publish as lake_replay
from tampu.lake.replay.rows import Progress
from tests.lake import sample
from tests.servers import redis


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    folder = tmp_path / "lake"
    sample.write(folder, "bronze.messages", [sample.ended(n) for n in range(1, 31)])
    return Lake(folder)


@pytest.fixture
def store(tmp_path: Path):
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as queue:
        yield queue


def causes(store: tampu.Store, queue: str = "orders") -> list[str | None]:
    """The old ids behind the messages of a queue, in order of publish."""
    return [m.causation_id for m in store.messages(queue, limit=1000)]


def old(n: int) -> str:
    return str(sample.ended(n)["id"])


def test_message_comes_back_as_a_new_one_with_its_cause(lake: Lake, store: tampu.Store):
    fields = {
        "headers": {"h": "ü"}, "labels": {"env": "prod"}, "group": "g", "priority": 7, "correlation_id": "c",
        "payload": b"\xff\x00", "content_type": "application/octet-stream", "key": "k", "queue": "raw",
    }  # fmt: skip
    sample.write(Path(lake.path), "bronze.messages", [sample.ended(40, **fields)])
    store.queues.put("raw", max_attempts=9)
    done = Replay(store, Lake(lake.path), where="queue = 'raw'", replay_id="r1").run()
    assert (done.new, done.already, done.missing) == (1, 0, 0)
    (m,) = store.messages("raw")
    assert (m.raw, m.content_type, m.type, m.headers, m.labels) == (
        b"\xff\x00", "application/octet-stream", "order.place", {"h": "ü"}, {"env": "prod"},
    )  # fmt: skip
    assert (m.group, m.priority, m.correlation_id, m.causation_id, m.source) == ("g", 7, "c", old(40), "replay:r1")
    assert m.id != old(40)
    assert (m.state, m.attempts, m.max_attempts, m.key) == ("ready", 0, 9, None), "by the settings of today"


def test_same_replay_id_publishes_nothing_twice(lake: Lake, store: tampu.Store):
    assert Replay(store, lake, where="ended_offset <= 100", replay_id="r1").run().new == 10
    again = Replay(store, lake, where="ended_offset <= 100", replay_id="r1").run()
    assert (again.new, again.already, again.earlier) == (0, 0, 10)
    assert Replay(store, lake, where="ended_offset <= 100", replay_id="r2").run().new == 10
    assert causes(store) == [old(n) for n in range(1, 11)] * 2


def test_nothing_is_published_twice_after_the_messages_have_ended_and_gone(lake: Lake, store: tampu.Store):
    Replay(store, lake, where="true", limit=5, replay_id="r1").run()
    for lease in store.claim("orders", limit=5):
        store.ack(lease)
    store.purge("orders", state=tampu.State.DONE)
    assert Replay(store, lake, where="true", limit=5, replay_id="r1").run().new == 0
    assert Replay(store, lake, where="true", replay_id="r1").run().new == 25
    assert causes(store) == [old(n) for n in range(6, 31)]


def test_ends_that_come_later_are_not_part_of_it(lake: Lake, store: tampu.Store):
    Replay(store, lake, where="true", limit=10, replay_id="r1").run()
    late = [sample.ended(31), sample.ended(20, ended_offset=999)]
    sample.write(Path(lake.path), "bronze.messages", late)
    assert Replay(store, Lake(lake.path), where="true", replay_id="r1").run().new == 20
    assert causes(store) == [old(n) for n in range(1, 31)]


def test_only_the_last_end_of_a_message_counts(lake: Lake, store: tampu.Store):
    later = sample.START.replace(day=9)
    sample.write(Path(lake.path), "bronze.messages", [sample.ended(3, state="done", ended_offset=900, ended_at=later)])
    assert Replay(store, Lake(lake.path), where="state = 'dead' AND ended_offset <= 50").run().new == 4
    assert old(3) not in causes(store)


def test_replay_id_belongs_to_one_selection(lake: Lake, store: tampu.Store):
    Replay(store, lake, where="ended_offset <= 10", replay_id="r1").run()
    with pytest.raises(tampu.InvalidState, match="another where"):
        Replay(store, lake, where="true", replay_id="r1").run()
    with pytest.raises(tampu.InvalidState, match="another to"):
        Replay(store, lake, where="ended_offset <= 10", to="else", replay_id="r1").run()


def test_tenants_never_cross(lake: Lake, store: tampu.Store, tmp_path: Path):
    sample.write(Path(lake.path), "bronze.messages", [sample.ended(50, tenant="other")])
    with tampu.open(tmp_path / "jobs.db", tenant="other", maintenance=False) as other:
        where = "tenant = 'default' OR id IN (SELECT id FROM bronze.messages)"
        assert Replay(other, Lake(lake.path), where=where, replay_id="r1").run().new == 1
        assert causes(other) == [old(50)]
    assert Replay(store, Lake(lake.path), where="true", replay_id="r1").run().new == 30
    assert old(50) not in causes(store)


def test_another_queue_and_single_ids(lake: Lake, store: tampu.Store):
    done = Replay(store, lake, ids=[old(4), old(2), "nothing"], to="second-chance").run()
    assert done.new == 2
    assert causes(store, "second-chance") == [old(2), old(4)]
    assert Replay(store, lake, queue="none").run().new == 0


def test_rows_without_payload_and_those_a_queue_refuses_are_reported(lake: Lake, store: tampu.Store):
    rows = [
        sample.ended(40, queue="odd", payload=None, missing=True),
        sample.ended(41, queue="odd", payload=b"x" * 2000),
        sample.ended(42, queue="odd", type="not a type"),
        sample.ended(43, queue="odd", payload=b""),
        sample.ended(44, queue="odd", headers={}, labels={}, priority=None, type=None, missing=None),
    ]
    sample.write(Path(lake.path), "bronze.messages", rows)
    store.queues.put("odd", max_payload=1000)
    done = Replay(store, Lake(lake.path), queue="odd", replay_id="r1").run()
    assert (done.new, done.missing, done.refused) == (2, 1, 2)
    assert [(id, why.split()[0]) for id, why in done.problems] == [
        (old(40), "its"),
        (old(41), "the"),
        (old(42), "'not"),
    ]
    assert causes(store, "odd") == [old(43), old(44)]
    assert Replay(store, Lake(lake.path), queue="odd", replay_id="r1").run().earlier == 5


def test_full_queue_stops_it_and_it_goes_on_when_there_is_room(lake: Lake, store: tampu.Store):
    store.queues.put("orders", max_depth=10)
    chosen = Replay(store, lake, where="true", replay_id="r1")
    with pytest.raises(tampu.QueueFull):
        chosen.run(rate=40, pause=lambda _seconds: None)
    assert store.stats("orders").depth == 8
    store.queues.put("orders", max_depth=0)
    assert Replay(store, lake, where="true", replay_id="r1").run().new == 22
    assert sorted(map(str, causes(store))) == [old(n) for n in range(1, 31)]


def test_preview_counts_and_changes_nothing(lake: Lake, store: tampu.Store):
    sample.write(Path(lake.path), "bronze.messages", [sample.ended(60, queue="other", missing=True, payload=None)])
    seen = Replay(store, Lake(lake.path), where="ended_offset > 100", replay_id="r1").preview()
    assert (seen.messages, seen.missing, seen.queues, seen.earlier) == (20, 1, {"orders": 20}, 0)
    assert seen.oldest == sample.ended(11)["ended_at"]
    assert [row["id"] for row in seen.sample] == [old(n) for n in range(11, 16)]
    assert store.stats() == []
    Replay(store, Lake(lake.path), where="ended_offset > 100", limit=4, replay_id="r1").run()
    seen = Replay(store, Lake(lake.path), where="ended_offset > 100", replay_id="r1").preview()
    assert (seen.messages, seen.earlier) == (16, 4)


def test_rate_is_kept(lake: Lake, store: tampu.Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lake_replay, "time", types.SimpleNamespace(monotonic=lambda: 0.0))
    slept: list[float] = []
    Replay(store, lake, where="true").run(rate=0.5, pause=slept.append)
    # Each message asks for 2 s of room; nobody slept really, so the debt adds up.
    assert slept == [2.0 * n for n in range(1, 30)]


@pytest.mark.parametrize("where", ["true; DROP VIEW bronze.messages", "true) UNION (FROM bronze.messages", "nosuch = 1",
                                   "", "payload LIKE"])  # fmt: skip
def test_bad_condition_is_refused_before_anything(where: str, lake: Lake, store: tampu.Store):
    with pytest.raises(tampu.InvalidMessage):
        Replay(store, lake, where=where).run()
    assert store.stats() == []


@pytest.mark.parametrize(("name", "value"), [("replay_id", "a b"), ("to", "a b"), ("limit", 0)])
def test_bad_options_are_refused(name: str, value: object, lake: Lake, store: tampu.Store):
    with pytest.raises(tampu.InvalidMessage):
        Replay(store, lake, where="true", **{name: value})  # type: ignore[arg-type]  # one of several


def test_a_rate_of_none_at_all_is_refused(lake: Lake, store: tampu.Store):
    with pytest.raises(tampu.InvalidMessage):
        Replay(store, lake, where="true").run(rate=0)


def test_empty_lake_replays_nothing(tmp_path: Path, store: tampu.Store):
    assert Replay(store, str(tmp_path), where="true").run().new == 0


def test_engine_without_transactions_is_safe_by_the_ids(
    lake: Lake, store: tampu.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(type(access.engine(store)), "capabilities", frozenset())
    first = Replay(store, lake, where="true", replay_id="r1")
    monkeypatch.setattr(first, "_note", lambda progress, version: 1 / 0 if progress.seen else 1)
    monkeypatch.setattr("tampu.lake.replay.publish.BATCH", 10)
    with pytest.raises(ZeroDivisionError):  # the end of the process, after a publish and before its note
        first.run()
    assert store.stats("orders").depth == 10
    again = Replay(store, lake, where="true", replay_id="r1").run()
    assert (again.new, again.already) == (20, 10)


def test_two_at_once_share_the_work(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tampu.lake.replay.publish.BATCH", 3)
    begin = threading.Barrier(2)
    results = []

    def run() -> None:
        with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
            chosen = Replay(store, Lake(lake.path), where="true", replay_id="r1")
            begin.wait(60)
            results.append(chosen.run())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(r.new for r in results) == 30
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        assert causes(store) == [old(n) for n in range(1, 31)]


_KILLED = """
import sys, os, signal, types, tampu
from tampu.lake.replay import publish as replaying
from tampu.lake.replay import Replay
replaying.time = types.SimpleNamespace(monotonic=lambda: 0.0)  # a slow machine needs as many pauses
left = int(sys.argv[1])
def pause(seconds):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
with tampu.open("jobs.db", maintenance=False) as store:
    Replay(store, "lake", where="true", replay_id="r1").run(rate=20, pause=pause)
"""


def test_killed_and_started_again_publishes_each_once(lake: Lake, tmp_path: Path):
    for pauses, published in ((3, 6), (4, 14)):
        killed = subprocess.run(
            [sys.executable, "-c", _KILLED, str(pauses)], cwd=tmp_path, env=os.environ, timeout=300, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
            assert store.stats("orders").depth == published
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        rest = Replay(store, lake, where="true", replay_id="r1").run()
        assert (rest.new, rest.already, rest.earlier) == (16, 0, 14)
        assert causes(store) == [old(n) for n in range(1, 31)]


def test_nothing_is_published_twice_by_a_store_that_has_no_joint_commits(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    """Killed between the messages and the note; then all are worked on and removed before it is run again."""
    sample.write(Path(lake.path), "bronze.messages", [sample.ended(n, queue="other") for n in range(31, 34)])
    lake = Lake(lake.path)
    with tampu.open(redis.redis.url(), maintenance=False) as store:
        killed = Replay(store, lake, where="true", limit=32, replay_id="r1")
        note = killed._note

        def kill(progress: Progress, version: int) -> int:
            if progress.seen:
                raise KeyboardInterrupt
            return note(progress, version)

        monkeypatch.setattr(killed, "_note", kill)
        with pytest.raises(KeyboardInterrupt):
            killed.run()
        assert (len(causes(store)), len(causes(store, "other"))) == (30, 2)
        for queue in ("orders", "other"):
            store.settle([tampu.Ack(lease) for lease in store.claim(queue, limit=100)])
            store.purge(queue, state=tampu.State.DONE)
        again = Replay(store, lake, where="true", limit=32, replay_id="r1").run()
        assert (again.new, again.already) == (0, 32)
        assert Replay(store, lake, where="true", replay_id="r1").run().new == 1
        assert causes(store, "other") == [old(33)]
