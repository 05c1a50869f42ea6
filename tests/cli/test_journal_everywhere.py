"""The journal by command, also where each queue has a partition of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tampu
from tampu.cli import journal_positions
from tests.cli.run_command import Command
from tests.servers import mariadb, postgres, redis

TAMPU = [sys.executable, "-c", "from tampu.cli.main import main; main()"]
URLS = {
    "file": lambda: "jobs.db",
    "postgres": postgres.databases.url,
    "mariadb": mariadb.databases.url,
    "redis": redis.redis.url,
}


@pytest.fixture(params=URLS)
def store(request: pytest.FixtureRequest, command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[tampu.Store]:
    """A queue; the command is on the same store."""
    del command
    url = URLS[request.param]()
    monkeypatch.setenv("TAMPU_URL", url)
    with tampu.open(url, maintenance=False) as opened:
        yield opened


def test_pages_continue_from_the_position_that_was_shown(store: tampu.Store, command: Command) -> None:
    for n in range(10):
        store.publish("emails" if n % 3 else "reports", n)
    seen = []
    after = "0"
    while page := command.ok("journal", "--after", after, "--limit", "4"):
        if not page["transitions"]:
            break
        seen += [(t["partition"], t["offset"]) for t in page["transitions"]]
        after = page["position"]
    assert len(seen) == len(set(seen)) == 10
    assert page["position"] == page["latest"]
    said = command("journal", "--after", "0", "--limit", "4").err
    assert said.startswith("more: ")
    assert "--after" in said


def test_the_last_of_all_queues_are_shown_in_order_of_time(store: tampu.Store, command: Command) -> None:
    ids = [store.publish(f"queue{n % 4}", n).id for n in range(12)]
    shown = command.ok("journal", "--limit", "5")
    assert [t["id"] for t in shown["transitions"]] == ids[-5:]
    assert shown["position"] == shown["latest"]
    assert [t["id"] for t in command.ok("journal", "--limit", "50")["transitions"]] == ids


def test_a_limit_counts_entries_of_the_queue_that_was_named(store: tampu.Store, command: Command) -> None:
    ids = []
    for _ in range(6):
        ids.append(store.publish("emails", 1).id)
        store.publish_many("reports", range(40))
    shown = command.ok("journal", "--queue", "emails", "--limit", "4")
    assert [t["id"] for t in shown["transitions"]] == ids[-4:]
    assert shown["position"] == shown["latest"]
    whole = command.ok("journal", "--queue", "emails", "--limit", "50")
    assert [t["id"] for t in whole["transitions"]] == ids
    assert command.ok("journal", "--queue", "nobody", "--limit", "4")["transitions"] == []


def test_pages_of_a_queue_go_on_after_the_last_entry_that_was_shown(store: tampu.Store, command: Command) -> None:
    ids = []
    for _ in range(3):
        ids += [m.id for m in store.publish_many("emails", range(3))]  # one record, which pages cut
        store.publish_many("reports", range(40))
    seen: list[str] = []
    page = {"position": "0"}
    for _ in range(6):
        page = command.ok("journal", "--queue", "emails", "--after", page["position"], "--limit", "2")
        seen += [t["id"] for t in page["transitions"]]
    assert seen == ids
    assert page["position"] == page["latest"]


def test_the_next_page_of_a_queue_is_of_the_same_queue(store: tampu.Store, command: Command) -> None:
    store.publish_many("emails", range(3))
    said = command("journal", "--queue", "emails", "--after", "0", "--limit", "2").err
    assert said.startswith("more: ")
    assert "--queue emails" in said


def test_follow_begins_with_the_last_entries_of_the_queue_that_was_named(store: tampu.Store) -> None:
    ids = [store.publish("emails", n).id for n in range(3)]
    store.publish_many("reports", range(40))
    words = [*TAMPU, "journal", "--follow", "--json", "--queue", "emails", "--limit", "2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["id"] for _ in range(2)]
        store.publish("reports", 3)
        ids.append(store.publish("emails", 3).id)
        seen.append(json.loads(process.stdout.readline())["id"])
    finally:
        process.kill()
        process.communicate()
    assert seen == ids[1:]


def test_follow_goes_on_with_every_queue(store: tampu.Store) -> None:
    store.publish("emails", 1)
    store.publish("reports", 2)
    process = subprocess.Popen([*TAMPU, "journal", "--follow", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["queue"] for _ in range(2)]
        for queue in ("new", "emails"):  # one by one: only a page is in order of time, where queues are partitions
            store.publish(queue, 3)
            seen.append(json.loads(process.stdout.readline())["queue"])
    finally:
        process.kill()
        process.communicate()
    assert seen == ["emails", "reports", "new", "emails"]


def test_show_finds_the_history(store: tampu.Store, command: Command) -> None:
    store.publish_many("other", range(200))
    id = store.publish("jobs", 1).id
    store.ack(store.claim("jobs")[0])
    assert [t["verb"] for t in command.ok("show", id)["history"]] == ["publish", "claim", "ack"]


@pytest.mark.parametrize(
    "position", [{"0": 0}, {"0": 123}, {"default/a:b": 7, "default/c.d": 0}, {"t/q": 10**17}], ids=repr
)
def test_a_position_that_was_written_is_read_again(position: dict[str, int]) -> None:
    assert journal_positions.read(journal_positions.write(position)) == position


def test_nothing_read_is_the_beginning() -> None:
    assert journal_positions.read(journal_positions.write({})) == {"0": 0}


@pytest.mark.parametrize("text", ["", "x", "0:", ":3", "-1", "0:1,", "0:1.5", "a:b", "\u0663", "0:" + "9" * 30])
def test_what_is_no_position_is_refused(text: str, command: Command, tmp_path: Path) -> None:
    command.ok("publish", "q", "1")
    answer = command("journal", "--after", text, "--json")
    assert (answer.code, answer.error["code"], answer.error["field"]) == (2, "invalid_message", "after")
