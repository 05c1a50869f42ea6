"""`tampu config`: what holds, where it comes from, and changing it."""

from typing import Any

import pytest

import tampu
from tampu.cli import parse
from tests.cli.run_command import Command


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("lease=2m", "lease", 120),
        ("ttl=1h30m", "ttl", 5400),
        ("ordering=priority", "ordering", "priority"),
        ("max_attempts=7", "max_attempts", 7),
        ("rate=2.5", "rate", 2.5),
        ("group_order=true", "group_order", True),
        ("backoff=1,5s,30", "backoff", {"kind": "list", "delays": [1, 5, 30], "jitter": "none"}),
        ("backoff=5", "backoff", {"kind": "fixed", "base": 5, "jitter": "none"}),
        ("backoff=linear", "backoff", {"kind": "linear"}),
        (
            "backoff=exponential:base=2,cap=5m,jitter=full",
            "backoff",
            {"kind": "exponential", "base": 2, "cap": 300, "jitter": "full"},
        ),
    ],
)
def test_a_setting_is_stored_and_holds(command: Command, text: str, name: str, value: Any) -> None:
    shown = command.ok("config", "q", text)
    for layer in ("own", "effective"):
        found = shown[layer][name]
        assert found == value if not isinstance(value, dict) else value.items() <= found.items()
    assert command.ok("config", "q")["own"] == shown["own"]


def test_null_inherits_again_and_star_is_the_default_of_all(command: Command) -> None:
    command.ok("config", "*", "lease=45s", "max_attempts=9")
    command.ok("config", "q", "lease=10s", "ttl=1d")
    shown = command.ok("config", "q", "lease=null")
    assert (shown["own"]["lease"], shown["effective"]["lease"]) == (None, 45)
    human = command("config", "q").out
    assert "all queues (*)" in human
    assert "built in" in human
    assert command.ok("config", "*")["own"]["max_attempts"] == 9


def test_a_new_queue_is_reported(command: Command) -> None:
    assert command("config", "emails", "lease=5").err.startswith("created queue emails;")
    assert command("config", "emails", "lease=6").err == ""
    assert command("config", "emals", "lease=5").err.startswith("created queue emals;")
    assert command("config", "*", "lease=5").err == ""
    command.ok("publish", "published", "1")
    assert command("config", "published", "lease=5").err == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--max-attempts", "3"], "write max_attempts=3"),
        (["--max-attempts=3"], "write max_attempts=3"),
        (["--max_attempts"], "write max_attempts=VALUE"),
        (["--lease", "5m", "--json"], "write lease=5m"),
        (["--lease", "--json"], "write lease=VALUE"),
    ],
)
def test_a_setting_given_as_an_option_is_refused_with_how_to_write_it(
    command: Command, words: list[str], hint: str
) -> None:
    command.ok("publish", "emails", "1")
    answer = command("config", "emails", *words)
    assert answer.code == 2
    assert hint in answer.err
    assert "see tampu config --help" in command("config", "emails", "--max-tries", "3").err


def test_reset_forgets_what_is_set(command: Command) -> None:
    command.ok("config", "q", "lease=10s")
    assert command.ok("config", "q", "--reset")["own"]["lease"] is None
    assert command("config", "q", "lease=1", "--reset").code == 2


def test_looking_at_an_unknown_queue_is_exit_3(command: Command) -> None:
    command.ok("publish", "q", "1")
    answer = command("--json", "config", "nope")
    assert (answer.code, answer.error["code"]) == (3, "not_found")


@pytest.mark.parametrize(
    "text",
    [
        "lease=0", "lease=nan", "lease=-5", "lease=soon", "nope=1", "ordering=random", "max_attempts=0", "rate=nan",
        "max_attempts=many", "group_order=maybe", "backoff=wild", "backoff=exponential:size=3", "backoff=1,x",
        "backoff=fixed:base", "status=asleep", "lease", "=5", "max_depth=1.5",
    ],
)  # fmt: skip
def test_a_bad_setting_is_exit_2_and_changes_nothing(command: Command, text: str) -> None:
    answer = command("--json", "config", "q", text)
    assert (answer.code, answer.error["code"]) == (2, "invalid_config")
    assert not command.path.exists()
    command.ok("publish", "q", "1")
    before = command.fingerprint()
    assert command("config", "q", "ttl=5m", text).code == 2
    assert command.fingerprint() == before


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("max_in_flight=1.5", "max_in_flight", "max_in_flight must be a whole number"),
        ("max_attempts=0", "max_attempts", "max_attempts must be a whole number between 1 and 1,000"),
        ("max_payload=x", "max_payload", "max_payload must be a whole number between 1 and 1,073,741,824"),
        ("rate=nan", "rate", "rate must be a number between 0 and 1,000,000,000"),
        ("ordering=random", "ordering", "ordering must be fifo, priority, deadline or fair"),
        ("group_by=size", "group_by", "group_by must be group or type"),
        ("backoff=wild", "backoff", "backoff: kind must be fixed, linear, exponential or list"),
        ("backoff=fixed:jitter=x", "backoff", "backoff: jitter must be none, full or equal"),
    ],
)
def test_a_bad_setting_is_refused_with_its_name_and_what_it_takes(
    command: Command, text: str, field: str, expected: str
) -> None:
    error = command("--json", "config", "q", text).error
    assert (error["field"], error["message"]) == (field, expected)


def test_a_list_of_backoffs_from_a_program_takes_numbers(command: Command) -> None:
    with (
        command.queue() as store,
        pytest.raises(tampu.InvalidConfig, match="backoff: delays must be a list of numbers"),
    ):
        store.queues.put("q", backoff={"kind": "list", "delays": ["soon"]})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("500ms", 0.5), ("250us", 0.00025), ("1w", 604_800), (" 1H30M ", 5400), ("1m30.5s", 90.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse.duration(text, "delay") == pytest.approx(seconds)
