"""`tampu publish`: one message, in every form."""

from datetime import UTC, datetime, timedelta

import pytest

import tampu
from tests.cli.run_command import Command


def test_publish_makes_the_file_and_prints_the_id(command: Command) -> None:
    answer = command("publish", "emails", '{"to": "ada"}', "--type", "email.send")
    assert answer.code == 0
    id = answer.out.split()[0]
    with command.queue() as store:
        message = store.get(id)
    assert (message.payload, message.type, message.state) == ({"to": "ada"}, "email.send", "ready")


def test_every_option_reaches_the_message(command: Command) -> None:
    made = command.ok(
        "publish", "q", "[1]", "--type", "a.b", "--priority", "-7", "--max-attempts", "3", "--ttl", "2h",
        "--deadline", "2100-01-01T00:00:00+01:00", "--key", "k", "--idempotency-key", "i", "--label", "env=prod",
        "--label", "x=1=2", "--header", "h=v", "--group", "g", "--correlation-id", "co", "--causation-id", "ca",
        "--parent-id", "p", "--source", "s", "--id", "01890a5d-ac96-774b-bcce-b302099a8057",
    )  # fmt: skip
    with command.queue() as store:
        message = store.get("01890a5d-ac96-774b-bcce-b302099a8057")
    assert made["id"] == message.id
    assert (message.type, message.priority, message.max_attempts) == ("a.b", -7, 3)
    assert message.expires_at == message.created_at + timedelta(hours=2)
    assert message.deadline == datetime(2099, 12, 31, 23, tzinfo=UTC)
    assert (message.key, message.idempotency_key, message.group) == ("k", "i", "g")
    assert (message.labels, message.headers) == ({"env": "prod", "x": "1=2"}, {"h": "v"})
    assert (message.correlation_id, message.causation_id, message.parent_id) == ("co", "ca", "p")
    assert message.source == "s"


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5", 1.5), ("30s", 30), ("1h30m", 5400), ("2d", 172_800)])
def test_delay_takes_seconds_or_units(command: Command, text: str, seconds: float) -> None:
    made = command.ok("publish", "q", "1", "--delay", text)
    assert made["state"] == "delayed"
    wait = datetime.fromisoformat(made["run_at"]) - datetime.fromisoformat(made["created_at"])
    assert wait == timedelta(seconds=seconds)


def test_run_at_with_a_zone_is_that_moment(command: Command) -> None:
    made = command.ok("publish", "q", "1", "--run-at", "2100-06-01T12:00:00+02:00")
    assert datetime.fromisoformat(made["run_at"]) == datetime(2100, 6, 1, 10, tzinfo=UTC)


def test_hold_waits_until_it_is_freed(command: Command) -> None:
    made = command.ok("publish", "q", "1", "--hold", "review")
    assert (made["state"], made["reason"]) == ("held", "review")
    assert command("claim", "q").code == 3
    assert command.ok("free", made["id"])["outcomes"][0]["state"] == "ready"
    assert command("claim", "q").code == 0


def test_text_file_and_standard_input(command: Command) -> None:
    command.path.with_name("x.json").write_text('{"from": "file"}')
    assert command.ok("publish", "q", "--text", "not {json")["payload"] == "not {json"
    assert command.ok("publish", "q", "--file", "x.json")["payload"] == {"from": "file"}
    assert command.ok("publish", "q", "-", input='["stdin"]')["payload"] == ["stdin"]
    assert command.ok("publish", "q", "-", "--text", input="a text\n")["payload"] == "a text\n"


def test_bytes_keep_their_content_type(command: Command) -> None:
    made = command.ok("publish", "q", "-", "--content-type", "image/png", input=b"\x89PNG\xff")
    assert (made["payload"], made["payload_base64"]) == (None, "iVBOR/8=")
    with command.queue() as store:
        assert store.get(made["id"]).raw == b"\x89PNG\xff"


def test_idempotent_publish_says_it_was_there(command: Command) -> None:
    first = command.ok("publish", "q", "1", "--idempotency-key", "i")
    again = command("publish", "q", "1", "--idempotency-key", "i")
    assert again.out.split()[0] == first["id"]
    assert "not published again" in again.err
    other = command("--json", "publish", "q", "2", "--idempotency-key", "i")
    assert (other.code, other.error["code"]) == (1, "idempotency_conflict")


def test_tenants_do_not_see_each_other(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    id = command.ok("--tenant", "blue", "publish", "q", "1")["id"]
    assert command("show", id).code == 3
    assert command("show", id, "--tenant", "blue").code == 0
    monkeypatch.setenv("TAMPU_TENANT", "blue")
    assert command("show", id).code == 0


def test_url_may_stand_before_or_after_the_command(command: Command) -> None:
    assert command("--url", "a.db", "publish", "q", "1").code == 0
    assert command("publish", "q", "1", "--url", "sqlite:///a.db").code == 0
    assert command.ok("stats", "--url", "a.db")["queues"][0]["counts"]["ready"] == 2
    assert not command.path.exists()


def test_a_full_or_closed_queue_refuses_with_exit_1(command: Command) -> None:
    command.ok("config", "q", "max_depth=1")
    command.ok("publish", "q", "1")
    full = command("--json", "publish", "q", "2")
    assert (full.code, full.error["code"]) == (1, "queue_full")
    command.ok("drain", "q")
    closed = command("--json", "publish", "q", "2")
    assert (closed.code, closed.error["code"]) == (1, "queue_closed")
    assert command.ok("stats", "q")["queues"][0]["counts"]["ready"] == 1


def test_json_document_has_all_fields(command: Command) -> None:
    made = command.ok("publish", "q", "1")
    for field in ("id", "queue", "state", "type", "payload", "created_at", "attempts", "labels", "duplicate"):
        assert field in made
    assert made["tenant"] == "default"
    assert tampu.State(made["state"]) is tampu.State.READY


def test_an_empty_payload_is_named_as_the_error(command: Command) -> None:
    for words, stdin in ((["-"], ""), (["-"], " \n"), ([""], None)):
        error = command("--json", "publish", "q", *words, input=stdin).error
        assert (error["message"], error["field"]) == ("the payload is empty", "payload")
    assert command.ok("publish", "q", "-", "--text", input="")["payload"] == ""


def test_the_only_line_of_a_batch_is_one_line(command: Command) -> None:
    answer = command("publish", "q", "--lines", "--fields", input='{"payload": 1, "priority": "x"}\n')
    assert "]: line 1: priority must be" in answer.err
