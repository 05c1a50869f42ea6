"""`tampu publish --lines`: many messages from a file or standard input."""

import json

import pytest

from tampu.cli.commands.work import publish_lines
from tests.cli.run_command import Command


def test_each_line_of_a_file_is_a_payload(command: Command) -> None:
    command.path.with_name("in.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(2500)) + "\n\n")
    assert command.ok("publish", "q", "--lines", "--file", "in.jsonl", "--type", "t") == {
        "queue": "q", "published": 2500, "duplicates": 0,
    }  # fmt: skip
    with command.queue() as store:
        leases = store.claim("q", limit=10_000)
    assert [lease.payload["n"] for lease in leases] == list(range(2500))
    assert {lease.message.type for lease in leases} == {"t"}


@pytest.mark.parametrize("source", [[], ["-"]])
def test_standard_input_is_published_to_its_end(
    command: Command, monkeypatch: pytest.MonkeyPatch, source: list[str]
) -> None:
    monkeypatch.setattr(publish_lines, "BATCH", 7)
    answer = command("publish", "q", *source, "--lines", input="".join(f"{n}\n" for n in range(50)))
    assert (answer.code, answer.out) == (0, "50 messages published to q\n")
    with command.queue() as store:
        assert [lease.payload for lease in store.claim("q", limit=100)] == list(range(50))


def test_fields_give_each_message_its_own_options(command: Command) -> None:
    rows = [
        {"payload": 1, "type": "a.b", "priority": 3, "delay": "1h"},
        {"payload": 2, "run_at": "2100-01-01T00:00:00Z", "labels": {"x": "y"}},
        {"payload": 3, "idempotency_key": "same"},
        {"payload": 3, "idempotency_key": "same"},
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    answer = command.ok("publish", "q", "--lines", "--fields", "--header", "h=v", input=text)
    assert (answer["published"], answer["duplicates"]) == (3, 1)
    found = command.ok("list", "q", "--state", "delayed")["messages"]
    assert {(m["type"], m["priority"]) for m in found} == {("a.b", 3), ("message", 0)}
    assert all(m["headers"] == {"h": "v"} for m in found)


def test_text_lines_are_not_parsed(command: Command) -> None:
    command.ok("publish", "q", "--lines", "--text", input="one\r\n{two\n")
    with command.queue() as store:
        assert [lease.payload for lease in store.claim("q", limit=9)] == ["one", "{two"]


@pytest.mark.parametrize(
    ("line", "options", "says"),
    [
        ('{"broken', [], "line 1501: the payload is not JSON"),
        ('{"type": "x"}', ["--fields"], "line 1501: no field payload"),
        ('{"payload": 1, "prio": 1}', ["--fields"], "line 1501: unknown field: prio"),
        ('{"payload": 1, "run_at": "2031-01-01T00:00:00"}', ["--fields"], "no time zone"),
        ('{"payload": 1, "delay": "soon"}', ["--fields"], "not a duration"),
    ],
)
def test_a_broken_line_in_a_file_stores_nothing(command: Command, line: str, options: list[str], says: str) -> None:
    good = '{"payload": 1}\n'
    command.path.with_name("in.jsonl").write_text(good * 1500 + line + "\n" + good)
    answer = command("--json", "publish", "q", "--lines", "--file", "in.jsonl", *options)
    assert (answer.code, answer.error["code"]) == (2, "invalid_message")
    assert says in answer.error["message"]
    assert not command.path.exists()


def test_a_broken_line_of_a_stream_says_how_much_was_stored(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_lines, "BATCH", 2)
    answer = command("--json", "publish", "q", "-", "--lines", input="1\n2\n3\n4\n5\n{\n")
    assert answer.code == 2
    stored = command.ok("stats", "q")["queues"][0]["counts"]["ready"]
    assert stored <= 5
    assert (
        f"line 6: the payload is not JSON: it is incomplete; {stored} messages were published before"
        in answer.error["message"]
    )


def test_a_refused_batch_is_reported_with_its_lines(command: Command) -> None:
    command.ok("config", "q", "max_payload=10")
    command.path.with_name("in.jsonl").write_text("1\n" * 1000 + '"much too long"\n')
    answer = command("--json", "publish", "q", "--lines", "--file", "in.jsonl")
    assert (answer.code, answer.error["code"]) == (2, "payload_too_large")
    assert "line 1001:" in answer.error["message"]
    assert command.ok("stats", "q")["queues"][0]["counts"]["ready"] == 1000


@pytest.mark.parametrize("options", [["--key", "k"], ["--id", "x"], ["--idempotency-key", "i"], ["[1]"]])
def test_what_is_for_one_message_is_refused(command: Command, options: list[str]) -> None:
    assert command("publish", "q", "--lines", *options, input="1\n").code == 2
    assert not command.path.exists()


def test_fields_without_lines_is_refused(command: Command) -> None:
    assert command("publish", "q", "1", "--fields").code == 2
