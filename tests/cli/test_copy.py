"""`tampu copy`, as a user calls it."""

from pathlib import Path

import tampu
from tests.cli.run_command import Command


def _fill(command: Command) -> None:
    with command.queue() as store:
        store.publish_many("jobs", range(3))
    with command.queue(tenant="other") as store:
        store.publish("jobs", 1, delay=3600)


def test_copy_tells_what_it_moved(command: Command, tmp_path: Path) -> None:
    _fill(command)
    source, target = str(command.path), str(tmp_path / "new.db")
    tried = command.ok("copy", source, target, "--dry-run")
    assert (tried["dry_run"], tried["messages"], tried["stored"]) == (True, 4, 0)
    assert not Path(target).exists()
    report = command.ok("copy", source, target)
    assert (report["messages"], report["stored"], report["notes"]) == (4, 4, [])
    assert report["queues"] == [
        {"tenant": "default", "queue": "jobs", "source": {"ready": 3}, "target": {"ready": 3}},
        {"tenant": "other", "queue": "jobs", "source": {"delayed": 1}, "target": {"delayed": 1}},
    ]
    assert command.ok("copy", source, target)["was_done"]
    with tampu.open(target, maintenance=False) as store:
        assert store.journal().transitions[0].detail == source
        assert len(store.claim("jobs", limit=9)) == 3


def test_copy_shows_a_table_to_people(command: Command, tmp_path: Path) -> None:
    _fill(command)
    answer = command("copy", str(command.path), str(tmp_path / "new.db"))
    assert answer.code == 0
    assert "has moved to" in answer.out
    assert "target" in answer.out
    assert "is closed and keeps its messages" in answer.err


def test_copy_can_be_given_up(command: Command, tmp_path: Path) -> None:
    _fill(command)
    with command.queue() as store:
        store.claim("jobs")
    source = str(command.path)
    refused = command("copy", source, str(tmp_path / "new.db"), "--wait", "0", "--json")
    assert refused.code == 1
    assert refused.error["code"] == "invalid_state"
    assert set(command.ok("copy", source, "--reopen")["reopened"]) == {
        "default/jobs", "default/*", "other/jobs", "other/*",
    }  # fmt: skip
    with command.queue() as store:
        assert store.publish("jobs", 4).queue == "jobs"


def test_copy_wants_two_stores_and_no_tenant(command: Command, tmp_path: Path) -> None:
    _fill(command)
    assert command("copy", str(command.path)).code == 2
    assert command("--tenant", "other", "copy", str(command.path), str(tmp_path / "new.db")).code == 2
    missing = command("copy", str(tmp_path / "none.db"), str(tmp_path / "new.db"))
    assert (missing.code, missing.err.startswith("error [unavailable]")) == (5, True)
    assert not (tmp_path / "new.db").exists()


def test_passwords_are_not_written_down() -> None:
    from tampu.cli.session import Session

    for url in ("redis://u:secret@h/0", "rediss://:secret@h/0?prefix=a", "postgresql://h/db?password=secret&schema=s"):
        assert "secret" not in Session(url=url, tenant=None, json=False).shown
