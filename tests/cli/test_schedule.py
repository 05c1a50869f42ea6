"""`tampu schedule`: add, list, show, pause, resume, remove, fire."""

from datetime import UTC, datetime

from tests.cli.run_command import Command

ADD = ("schedule", "add", "s", "--queue", "jobs")


def test_add_makes_a_schedule_and_tells_when_it_fires(command: Command) -> None:
    made = command.ok(
        "schedule", "add", "nightly", '{"kind": "daily"}', "--queue", "reports", "--cron", "30 3 * * *", "--tz",
        "Europe/Rome", "--type", "report.make", "--missed", "all(3)", "--jitter", "5m", "--limit", "9", "--label",
        "team=a", "--end", "2199-01-01T00:00:00Z",
    )  # fmt: skip
    assert (made["name"], made["queue"], made["message"]["payload"]) == ("nightly", "reports", {"kind": "daily"})
    assert (made["cron"], made["tz"], made["missed"], made["jitter"]) == ("30 3 * * *", "Europe/Rome", "all(3)", 300)
    assert (made["status"], made["fired"], made["limit"], made["message"]["labels"]) == ("active", 0, 9, {"team": "a"})
    assert datetime.fromisoformat(made["next"]) > datetime.now(UTC)
    with command.queue() as store:
        assert store.schedules.get("nightly").payload == {"kind": "daily"}


def test_add_again_changes_it(command: Command) -> None:
    command.ok(*ADD, "1", "--every", "1h")
    changed = command.ok(*ADD, "--text", "two", "--every", "90s", "--paused")
    assert (changed["message"]["payload"], changed["every"], changed["status"]) == ("two", 90, "paused")
    assert command.ok(*ADD, "--every", "90s")["status"] == "paused"
    assert command.ok(*ADD, "--every", "90s", "--active")["message"]["payload"] is None


def test_list_and_show(command: Command) -> None:
    command.ok("schedule", "add", "b", "--every", "1h", "--queue", "jobs")
    command.ok("schedule", "add", "a", "--cron", "0 3 * * *", "--queue", "jobs", "--tz", "Europe/Rome")
    assert [one["name"] for one in command.ok("schedule", "list")["schedules"]] == ["a", "b"]
    shown = command("schedule", "list").out
    assert "0 3 * * * Europe/Rome" in shown
    assert "every 1h" in shown
    assert command.ok("schedule", "show", "a")["cron"] == "0 3 * * *"
    assert '"cron": "0 3 * * *"' in command("schedule", "show", "a").out


def test_pause_resume_fire_remove(command: Command) -> None:
    command.ok(*ADD, "[1]", "--every", "1h")
    assert command("schedule", "pause", "s").out == "s is paused\n"
    assert command.ok("schedule", "pause", "s")["next"] is None
    assert command("schedule", "resume", "s").out.startswith("s is active, next in ")
    assert command.ok("schedule", "fire", "s")["payload"] == [1]
    assert "jobs: ready" in command("schedule", "fire", "s").out
    assert command.ok("claim", "jobs")["leases"][0]["message"]["headers"] == {"tampu-schedule": "s"}
    assert command("schedule", "remove", "s").out == "s removed\n"
    assert command.ok("schedule", "list") == {"schedules": []}
    for verb in ("show", "pause", "resume", "fire", "remove"):
        answer = command("--json", "schedule", verb, "s")
        assert (answer.code, answer.error["code"]) == (3, "not_found")


def test_bad_terms_leave_no_file(command: Command) -> None:
    for terms, field in (
        (["--cron", "* * *"], "cron"),
        (["--every", "often"], "every"),
        (["--cron", "* * * * *", "--tz", "Mars/Base"], "tz"),
        (["--every", "1h", "--missed", "some"], "missed"),
        ([], "cron"),
    ):
        answer = command("--json", *ADD, *terms)
        assert (answer.code, answer.error["field"]) == (2, field)
    assert not command.path.exists()
