"""When a store may not be moved, and what becomes of work and readers that were under way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tampu
from tampu.broker import journal_readers
from tampu.broker.journal_readers import Reader
from tampu.broker.transfer import Move, TransferOptions, reopen
from tampu.broker.transfer import documents as papers_module
from tampu.engines.port import Engine, PutDocument
from tampu.engines.transfer import Import
from tampu.model.message import State
from tests.broker.transfer.stores import DAY, ROUND, URLS, contents, documents_of, move, opened
from tests.conformance.harness import FakeClock, counts


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def source(tmp_path: Path, clock: FakeClock) -> str:
    url = str(tmp_path / "old.db")
    with opened(url, clock=clock) as (here,):  # a change by the store would also be in the audit trail
        here.run([PutDocument("queue", "default", "jobs", b'{"max_attempts":2}')])
    with tampu.open(url, clock=clock, maintenance=False) as store:
        store.publish_many("jobs", range(3))
    return url


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "new.db")


def _status(url: str, clock: FakeClock, queue: str = "jobs") -> str:
    with tampu.open(url, clock=clock, maintenance=False) as store:
        status: str = store.stats(queue).status
        return status


def test_a_target_with_messages_of_its_own_is_refused(source: str, target: str, clock: FakeClock) -> None:
    with tampu.open(target, clock=clock, maintenance=False) as store:
        store.publish("others", 1)
    with pytest.raises(tampu.InvalidState, match="1 messages of its own"):
        move(source, target, clock)
    assert _status(source, clock) == "open"
    with opened(source, target, clock=clock) as (here, there):
        assert [d.kind for d in (*here.all_documents(), *there.all_documents())] == ["queue"]


def test_into_an_existing_store_both_live_on(source: str, target: str, clock: FakeClock) -> None:
    with tampu.open(target, clock=clock, maintenance=False) as store:
        store.queues.put("jobs", max_attempts=7, status="paused")
        store.publish("jobs", "mine", idempotency_key="i")
        store.publish("others", 1)
    with tampu.open(source, clock=clock, maintenance=False) as store:
        store.publish("jobs", "theirs", idempotency_key="i")
    report = move(source, target, clock, into_existing=True)
    assert (report.stored, report.readers) == (4, [])
    with tampu.open(target, clock=clock, maintenance=False) as store:
        assert counts(store, "jobs") == {"ready": 5}
        assert (store.stats("jobs").status, store.queues.get("jobs").max_attempts) == ("paused", 7)
        assert store.stats("others").status == "open"
        assert store.publish("jobs", "mine", idempotency_key="i").duplicate
    assert move(source, target, clock, into_existing=True).was_done


def test_an_id_of_two_messages_stops_the_move(source: str, target: str, clock: FakeClock) -> None:
    with tampu.open(source, clock=clock, maintenance=False) as store:
        (id, *_) = [m.id for m in store.messages("jobs")]
    clock.advance(1)
    with tampu.open(target, clock=clock, maintenance=False) as store:
        store.publish("others", "another", id=id)
    with pytest.raises(tampu.InvalidState, match=id):
        move(source, target, clock, into_existing=True)


def test_a_store_is_not_moved_into_itself(source: str, clock: FakeClock) -> None:
    with pytest.raises(tampu.InvalidConfig, match="same store"):
        move(source, source, clock)
    assert _status(source, clock) == "open"
    with opened(source, clock=clock) as (here,):
        assert [d.kind for d in here.all_documents()] == ["queue"]


def test_work_under_way_is_waited_for(source: str, target: str, clock: FakeClock) -> None:
    with tampu.open(source, clock=clock, maintenance=False) as worker:
        (lease,) = worker.claim("jobs", lease=60)
        with pytest.raises(tampu.InvalidState, match="1 in default/jobs"):
            move(source, target, clock)
        assert _status(source, clock) == "closed"
        worker.ack(lease)
    assert move(source, target, clock).stored == 2
    assert _status(target, clock) == "open"


def test_a_lease_that_runs_out_is_no_work_under_way(source: str, target: str, clock: FakeClock) -> None:
    with tampu.open(source, clock=clock, maintenance=False) as worker:
        worker.claim("jobs", lease=60)
    clock.advance(61)
    assert move(source, target, clock, wait_seconds=10).stored == 3


def test_by_force_leased_messages_go_as_if_their_lease_had_run_out(source: str, target: str, clock: FakeClock) -> None:
    with tampu.open(source, clock=clock, maintenance=False) as worker:
        worker.nack(worker.claim("jobs")[0], "first", delay=0)
        leases = worker.claim("jobs", limit=3, lease=60, worker="w")
        worker.cancel(leases[0].id)
        assert move(source, target, clock, force=True).stored == 3
        with tampu.open(target, clock=clock, maintenance=False) as store:
            assert counts(store, "jobs") == {"ready": 1, "dead": 1, "cancelled": 1}
            for lease in leases:
                with pytest.raises(tampu.LeaseLost):
                    store.ack(lease)
                assert store.get(lease.id).failures[-1].outcome == "lease_expired"
            (again,) = store.claim("jobs", limit=5)
            assert (again.id, again.attempt) == (leases[1].id, 2)
            assert [m.reason for m in store.messages("jobs", state="dead")] == ["lease_expired"]
        worker.ack(leases[1])  # it counts where it was claimed, and only there


def test_a_store_that_has_moved_does_not_move_again(source: str, target: str, clock: FakeClock, tmp_path: Path) -> None:
    move(source, target, clock)
    with pytest.raises(tampu.InvalidState, match="migrated to a new one"):
        move(source, str(tmp_path / "third.db"), clock)
    with pytest.raises(tampu.InvalidState, match="out of date"):
        move(target, source, clock, into_existing=True)
    with opened(source, clock=clock) as (here,), pytest.raises(tampu.InvalidState, match="second time"):
        reopen(here)
    assert _status(target, clock) == "open"


def test_a_move_that_began_goes_only_where_it_began(source: str, target: str, clock: FakeClock, tmp_path: Path) -> None:
    with tampu.open(source, clock=clock, maintenance=False) as worker:
        worker.claim("jobs", lease=60)
        with pytest.raises(tampu.InvalidState, match="workers"):
            move(source, target, clock)
        with pytest.raises(tampu.InvalidState, match="being migrated to"):
            move(source, str(tmp_path / "third.db"), clock)


def test_a_move_can_be_given_up(source: str, target: str, clock: FakeClock, tmp_path: Path) -> None:
    with tampu.open(source, clock=clock, maintenance=False) as store:
        store.publish("plain", 1)
        store.queues.put("slow", status="paused")
        store.claim("jobs", lease=60)
    with opened(source, clock=clock) as (here,):
        before = documents_of(here)
        with pytest.raises(tampu.InvalidState, match="not being migrated"):
            reopen(here)
    with pytest.raises(tampu.InvalidState, match="workers"):
        move(source, target, clock)
    with opened(source, clock=clock) as (here,):
        assert set(reopen(here)) == {"default/jobs", "default/plain", "default/slow", "default/*"}
        assert documents_of(here) == before
    clock.advance(61)
    assert move(source, str(tmp_path / "third.db"), clock, wait_seconds=10).stored == 4


def test_what_a_move_that_was_given_up_left_is_no_target(source: str, target: str, clock: FakeClock) -> None:
    with opened(source, target, clock=clock) as (here, there):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Move, "_carry", lambda *_: 1 / 0)  # killed when the settings have come, and no message yet
            with pytest.raises(ZeroDivisionError):
                Move(here, there, TransferOptions(wait_seconds=0), origin="the old store", goal="a new one").run()
        reopen(here)
    for into_existing in (False, True):
        with pytest.raises(tampu.InvalidState, match="beginning of a migration from the old store"):
            move(source, target, clock, into_existing=into_existing)
    assert _status(source, clock) == "open"
    assert _status(target, clock) == "closed"


class Losing:
    """A target that says it has stored all, and has lost the last of every page."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, calls: Sequence[Any]) -> list[Any]:
        kept = [replace(call, items=call.items[:-1]) if isinstance(call, Import) else call for call in calls]
        return self._engine.run(kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def test_messages_that_are_missing_at_the_end_are_an_error_and_nobody_is_let_in(
    source: str, target: str, clock: FakeClock
) -> None:
    with opened(source, target, clock=clock) as (here, there):
        losing: Any = Losing(there)
        with pytest.raises(
            tampu.StorageError, match="3 messages of default/jobs are in the source, and 2 in the target"
        ):
            Move(here, losing, TransferOptions(wait_seconds=0), origin="the old store", goal="a new one").run()
    assert (_status(source, clock), _status(target, clock)) == ("closed", "closed")
    assert move(source, target, clock).stored == 1
    assert _status(target, clock) == "open"
    with tampu.open(target, clock=clock, maintenance=False) as store:
        assert counts(store, "jobs") == {"ready": 3}


def test_a_move_killed_while_it_opened_the_target_tells_what_there_is(
    source: str, target: str, clock: FakeClock
) -> None:
    with opened(source, target, clock=clock) as (here, there):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(papers_module, "leave_identity", lambda *_: 1 / 0)  # all is open, and not noted as done
            with pytest.raises(ZeroDivisionError):
                Move(here, there, TransferOptions(wait_seconds=0), origin="the old store", goal="a new one").run()
        with tampu.open(target, clock=clock, maintenance=False) as worker:
            assert worker.purge("jobs", state="ready") == 3
        report = Move(here, there, TransferOptions(wait_seconds=0), origin="the old store", goal="a new one").run()
    assert (report.was_done, report.notes, report.stored) == (False, [], 0)
    assert [(queue.source, queue.target) for queue in report.queues] == [({State.READY: 3}, {})]
    assert move(source, target, clock).was_done


def test_looking_changes_nothing(source: str, clock: FakeClock) -> None:
    with tampu.open(source, clock=clock, maintenance=False) as store:
        store.claim("jobs", lease=60)
    with opened(source, clock=clock) as (here,):
        before = (contents(here), documents_of(here), here.revision())
        report = Move(here, here, TransferOptions(), origin="", goal="").preview()
        assert (report.dry_run, report.total, report.stored) == (True, 3, 0)
        assert report.notes == ["default/jobs: 1 messages are leased"]
        assert (contents(here), documents_of(here), here.revision()) == before


def _reader(url: str, clock: FakeClock, behind: int = 0) -> None:
    with opened(url, clock=clock) as (here,):
        end = here.journal(None, 1, None).latest
        position = {p: max(0, offset - behind) for p, offset in end.items()}
        here.run([journal_readers.saving(Reader("lake:main", position, here.now(), DAY * 1_000_000, "/lake"))])
        here.run([PutDocument(*journal_readers.IDENTITY, b"who", version=None)])


def test_a_reader_that_is_behind_is_waited_for_or_stays(source: str, target: str, clock: FakeClock) -> None:
    _reader(source, clock, behind=2)
    with pytest.raises(tampu.InvalidState, match=r"lake:main .* last 2 transitions"):
        move(source, target, clock)
    report = move(source, target, clock, force=True)
    assert report.readers == []
    assert report.notes == ["lake:main had not read the journal to its end and stays behind"]


@pytest.mark.parametrize(("old", "new"), [*ROUND, ("redis", "redis"), ("redis", "file")])
def test_readers_of_the_journal_go_on(old: str, new: str, tmp_path: Path, clock: FakeClock) -> None:
    source, target = URLS[old](tmp_path), URLS[new](tmp_path)
    with tampu.open(source, clock=clock, maintenance=False) as store:
        store.publish_many("jobs", range(3))
        store.ack(store.claim("jobs")[0])
    _reader(source, clock)
    assert move(source, target, clock).readers == ["lake:main"]
    with opened(source, target, clock=clock) as (here, there):
        (reader,) = journal_readers.registered(there)
        assert (reader.archive_after_us, reader.place) == (DAY * 1_000_000, "/lake")
        page = there.journal(reader.position, 100, None)
        assert [t.verb for t in page.transitions] == ["adopt", "adopt"]
        if reader.position:  # the same partitions: offsets go on where they ended
            assert [t.offset for t in page.transitions] == [6, 7]
            assert reader.position == journal_readers.registered(here)[0].position
        found = there.document(*journal_readers.IDENTITY)
        assert found is not None
        assert found.value == b"who"
        assert here.document(*journal_readers.IDENTITY) is None
    with tampu.open(target, clock=clock, maintenance=False) as store:
        assert counts(store, "jobs") == {"ready": 2}
        assert all(t.state is State.READY for t in store.journal(after=reader.position).transitions)


def test_a_reader_whose_journal_ends_here_is_reported(source: str, target: str, clock: FakeClock) -> None:
    _reader(source, clock)
    with tampu.open(target, clock=clock, maintenance=False) as store:
        store.publish("others", 1)
    report = move(source, target, clock, into_existing=True)
    assert report.notes == ["lake:main must be registered again at the target: its journal is another one"]
    with opened(source, target, clock=clock) as (here, there):
        assert here.document(*journal_readers.IDENTITY) is not None
        assert there.document(*journal_readers.IDENTITY) is None
