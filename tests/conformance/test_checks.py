"""`check` and `tampu doctor` report the same for every store, also over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

import tampu
from tampu.broker import journal_readers
from tampu.broker.store import Store
from tampu.cli.commands.maintain import doctor
from tampu.cli.session import Session
from tests.cli.run_command import Command
from tests.conformance.harness import Harness

DAY = 86_400
CHANGING = ("space", "memory", "clock", "reader")


def _in_trouble(store: Store, harness: Harness) -> None:
    """Something of everything that a check looks for."""
    for n in range(12):
        store.publish(f"dead-{n:02}", n)
        (lease,) = store.claim(f"dead-{n:02}")
        store.reject(lease)
    store.publish("shut", 1)
    store.pause("shut")
    late = journal_readers.Reader("lake:main", {}, harness.clock.now() - 3 * DAY * 1_000_000)
    harness.core().coalescer.submit(journal_readers.saving(late))


def _steady(found: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Without what differs from moment to moment, or from one look to the next."""
    return [
        (what, level, "" if what in ("space", "memory", "clock", "reader") else note) for what, level, note in found
    ]


def _by_command(url: str, tenant: str, folder: Path) -> list[tuple[str, str, str]]:
    report = Command(folder / "none.db").ok("doctor", "--url", url, "--tenant", tenant)
    assert report["level"] == max((one["level"] for one in report["checks"]), key=("ok", "warn", "bad").index)
    return [(one["what"], one["level"], one["note"]) for one in report["checks"]]


def test_check_reports_queues_and_journal_readers(store: Store, harness: Harness) -> None:
    healthy = {what for what, _, _ in store.check()}
    assert not healthy & {"queues", "dead", "reader"}
    _in_trouble(store, harness)
    found = {what: (level, note) for what, level, note in store.check()}
    assert found["queues"] == ("warn", "not open: shut (paused); open with tampu resume")
    assert found["dead"][0] == "warn"
    assert found["dead"][1].startswith("dead letters in dead-00 (1), dead-01 (1)")
    assert "dead-09 (1) and 2 more" in found["dead"][1]
    assert found["reader"][0] == "warn"
    assert "lake:main has not moved for 3.0 days" in found["reader"][1]
    assert harness.open(tenant="other").check()[-1][0] == "reader", "queues are of a tenant, readers are not"
    assert not {what for what, _, _ in harness.open(tenant="other").check()} & {"queues", "dead"}


@pytest.mark.parametrize("tenant", ["default", "other"])
def test_doctor_shows_what_check_finds(shared_harness: Harness, tmp_path: Path, tenant: str) -> None:
    store = shared_harness.open(tenant=tenant)
    assert _steady(_by_command(shared_harness.url, tenant, tmp_path)) == _steady(store.check())
    _in_trouble(store, shared_harness)
    found = store.check()
    assert {"queues", "dead", "reader"} <= {what for what, _, _ in found}
    assert _steady(_by_command(shared_harness.url, tenant, tmp_path)) == _steady(found)


def test_doctor_shows_what_check_finds_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which nobody else can open: the command is given the store that is open."""
    with tampu.open("memory://", maintenance=False) as store:
        store.publish("shut", 1)
        store.pause("shut")
        found = store.check()
        monkeypatch.setattr(Session, "open", lambda _self: store)
        assert doctor.examine(Session("memory://", None, json=True)) == found
