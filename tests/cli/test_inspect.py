"""Looking: `peek list show stats queues journal`."""

import json
from typing import Any

import pytest

import tampu
from tests.cli.run_command import Command


class Clock:
    """A clock that stands where it is put."""

    def __init__(self, at_us: int) -> None:
        self.at_us = at_us

    def now(self) -> int:
        return self.at_us


def test_peek_shows_what_comes_next_without_claiming(command: Command) -> None:
    command.ok("config", "q", "ordering=priority")
    for priority in (1, 9, 5):
        command.ok("publish", "q", str(priority), "--priority", str(priority))
    found = command.ok("peek", "q", "--limit", "2")["messages"]
    assert [m["payload"] for m in found] == [9, 5]
    assert command.ok("claim", "q")["leases"][0]["message"]["id"] == found[0]["id"]


def test_peek_shows_what_is_due_and_hides_what_has_expired(command: Command) -> None:
    with command.queue(clock=Clock(1_700_000_000_000_000)) as store:  # some time ago
        due = store.publish("q", "due", delay=60)
        store.publish("q", "gone", ttl=60)
    answer = command("peek", "q")
    assert due.id in answer.out
    assert "due now" in answer.out
    assert "gone" not in answer.out


def test_peek_says_that_a_queue_is_paused(command: Command) -> None:
    command.ok("publish", "q", "1")
    command.ok("pause", "q")
    answer = command("peek", "q")
    assert answer.code == 0
    assert "paused" in answer.err
    assert "resume" in answer.err


def test_peek_at_nothing_is_exit_3(command: Command) -> None:
    command.ok("config", "q", "lease=1m")
    assert command("peek", "q").code == 3


def test_list_pages_and_filters(command: Command) -> None:
    for n in range(5):
        command.ok("publish", "q", str(n), "--type", "odd" if n % 2 else "even", "--label", f"n={n}")
    first = command.ok("list", "q", "--state", "ready", "--limit", "3")
    rest = command.ok("list", "q", "--state", "ready", "--limit", "3", "--after", first["cursor"])
    assert [m["payload"] for m in first["messages"] + rest["messages"]] == [0, 1, 2, 3, 4]
    assert rest["cursor"] is None
    odd = command.ok("list", "q", "--where", "type=odd", "--where", "label.n=3")
    assert [m["payload"] for m in odd["messages"]] == [3]
    human = command("list", "q", "--limit", "2")
    assert first["messages"][0]["id"] in human.out
    assert "--after" in human.err


def test_list_of_nothing_is_not_an_error(command: Command) -> None:
    command.ok("publish", "q", "1")
    assert command.ok("list", "q", "--state", "dead") == {"queue": "q", "messages": [], "cursor": None}
    assert command("list", "q", "--state", "dead").code == 0


def test_show_tells_failures_result_and_history(command: Command) -> None:
    (id,) = command.dead("q")
    whole = command.ok("show", id)
    assert (whole["state"], whole["reason"], whole["payload"]) == ("dead", "broken", {"n": 0})
    assert "ValueError: no 0" in whole["failures"][0]["traceback"]
    assert [t["verb"] for t in whole["history"]] == ["publish", "claim", "reject"]
    human = command("show", id).out
    for part in (id, "dead (broken)", "ValueError: no 0", "history", "reject"):
        assert part in human
    command.ok("replay", "q", id)
    receipt = command.ok("claim", "q")["leases"][0]["receipt"]
    command.ok("ack", receipt, "--result", "[42]")
    assert command.ok("show", id)["result"] == [42]
    assert "history" not in command("show", id, "--no-history").out


def test_show_finds_the_history_in_a_long_journal(command: Command) -> None:
    day = 86_400_000_000
    clock = Clock(1_700_000_000_000_000)
    with command.queue(clock=clock) as store:
        store.publish_many("other", range(9000))
        clock.at_us += day
        id = store.publish("q", 1).id
        (lease,) = store.claim("q")
        store.ack(lease)
        clock.at_us += day
        store.publish_many("other", range(9000))
    assert [t["verb"] for t in command.ok("show", id)["history"]] == ["publish", "claim", "ack"]


def test_a_payload_cannot_steer_the_terminal(command: Command) -> None:
    made = command.ok("publish", "q", "--text", "\x1b]0;owned\x07\x9b31m[red]x[/red]", "--label", "a=\x1b[2J")
    for words in (("show", made["id"]), ("list", "q"), ("claim", "q")):
        out = command(*words).out
        assert "\x1b" not in out
        assert "\x9b" not in out
        assert "[red]x[/red]" in out


def test_stats_counts_by_state(command: Command) -> None:
    command.dead("a", 2)
    command.ok("publish", "a", "1")
    command.ok("publish", "b", "1", "--delay", "1h")
    rows = {row["queue"]: row for row in command.ok("stats")["queues"]}
    assert (rows["a"]["counts"]["ready"], rows["a"]["counts"]["dead"], rows["a"]["depth"]) == (1, 2, 1)
    assert rows["a"]["oldest_ready_age"] >= 0
    assert (rows["b"]["counts"]["delayed"], rows["b"]["oldest_ready_age"]) == (1, None)
    human = command("stats", "a").out
    assert "oldest" in human
    assert " b " not in human


def test_stats_watch_looks_again(command: Command) -> None:
    command.ok("publish", "q", "1")
    answer = command("--json", "stats", "--watch", "--times", "3", "--interval", "50ms")
    assert [json.loads(line)["queues"][0]["counts"]["ready"] for line in answer.out.splitlines()] == [1, 1, 1]
    assert "ready" in command("stats", "--watch", "--times", "1").out


def test_queues_lists_all_with_settings(command: Command) -> None:
    command.ok("config", "a", "rate=5", "ordering=deadline")
    command.ok("publish", "b", "1")
    found = command.ok("queues")["queues"]
    assert [(row["queue"], row["config"]["ordering"]) for row in found] == [("a", "deadline"), ("b", "fifo")]
    assert "rate 5" in command("queues").out


def test_journal_shows_the_last_or_all_after_a_position(command: Command) -> None:
    for n in range(5):
        command.ok("publish", "a" if n % 2 else "b", str(n))
    last = command.ok("journal", "--limit", "2")
    assert [t["offset"] for t in last["transitions"]] == [4, 5]
    page = command.ok("journal", "--after", "0", "--limit", "3")
    assert ([t["offset"] for t in page["transitions"]], page["position"], page["latest"]) == (
        [1, 2, 3],
        "0:3",
        "0:5",
    )
    human = command("journal", "--after", "0", "--limit", "3")
    assert human.out.count("publish") == 3
    assert "--after 0:3" in human.err
    assert command.ok("journal", "--after", "3") == command.ok("journal", "--after", page["position"])
    assert {t["queue"] for t in command.ok("journal", "--queue", "a")["transitions"]} == {"a"}


def test_journal_finds_the_last_of_a_quiet_tenant(command: Command) -> None:
    with command.queue(tenant="quiet") as quiet, command.queue() as loud:
        quiet.publish("q", 1)
        loud.publish_many("q", range(500))
    found = command.ok("journal", "--tenant", "quiet", "--limit", "3")["transitions"]
    assert [t["tenant"] for t in found] == ["quiet"]


@pytest.mark.parametrize("words", [("stats",), ("queues",), ("journal",)])
def test_an_empty_store_is_not_an_error(command: Command, words: tuple[str, ...]) -> None:
    tampu.open(command.path, maintenance=False).close()
    assert command(*words).code == 0
    assert command(*words, "--json").code == 0


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["size=3"], "where has no field size"),
        (["labels=x"], "the label has no name"),
        (["label.=x"], "the label has no name"),
        (["type=a", "type=b"], "where has type twice"),
        (["label.env=a", "labels.env=b"], "where has env twice"),
    ],
)
def test_a_condition_that_cannot_hold_is_refused(command: Command, conditions: list[str], expected: str) -> None:
    command.ok("publish", "q", "1", "--type", "b", "--label", "env=b")
    answer = command("--json", "list", "q", *(word for c in conditions for word in ("--where", c)))
    assert (answer.code, answer.error["message"], answer.error["field"]) == (2, expected, "where")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"type": 5}, "where: type must be a text"),
        ({"labels": "x"}, "where: labels must be a mapping of texts"),
        ({"ended_after": []}, "where: ended_after must be a time"),
        ("type", "where must be a mapping"),
    ],
)
def test_a_bad_condition_of_a_program_is_named(command: Command, where: Any, expected: str) -> None:
    command.ok("publish", "q", "1")
    with command.queue() as store, pytest.raises(tampu.InvalidMessage) as refused:
        list(store.messages("q", where=where))
    assert refused.value.message == expected


def test_states_may_be_written_in_capitals(command: Command) -> None:
    command.ok("publish", "q", "1")
    assert len(command.ok("list", "q", "--state", "READY")["messages"]) == 1
    assert command.ok("purge", "q", "--state", "Ready", "--yes")["removed"] == 1
    message = command("--json", "list", "q", "--state", "tired").error["message"]
    assert message.startswith("Invalid value for '--state': 'tired' is not one of 'ready', ")


def test_show_tells_values_that_json_does_not_have(command: Command) -> None:
    with command.queue() as store:
        found = [store.publish("q", value) for value in ({"b": b"abc", 7: "x"}, {None: 1})]
        for lease in store.claim("q", limit=2):
            store.ack(lease, result=lease.payload)
    wanted: list[dict[str, Any]] = [{"b": "YWJj", "7": "x"}, {"None": 1}]
    for m, shown in zip(found, wanted, strict=True):
        answer = command.ok("show", m.id)
        assert (answer["content_type"], answer["payload"], answer["result"]) == ("application/msgpack", shown, shown)
        assert f'"{next(iter(shown))}"' in command("show", m.id).out
