"""`tampu claim` and the ways to end what was claimed."""

import pytest

import tampu
from tests.cli.run_command import Command


@pytest.fixture
def receipt(command: Command) -> str:
    command.ok("publish", "q", '{"n": 1}', "--type", "a.b")
    found: str = command.ok("claim", "q", "--worker", "w1")["leases"][0]["receipt"]
    return found


def only(command: Command, queue: str = "q") -> tampu.Message:
    with command.queue() as store:
        (message,) = store.messages(queue)
        return store.get(message.id)


def test_claim_prints_payload_and_receipt_for_people(command: Command) -> None:
    command.ok("publish", "q", '{"n": 1}')
    answer = command("claim", "q")
    assert answer.code == 0
    assert '"n": 1' in answer.out
    receipt = answer.out.split("receipt ")[1].split()[0]
    assert command("ack", receipt).code == 0
    assert only(command).state == "done"


def test_claim_takes_from_several_queues_in_their_order(command: Command) -> None:
    for queue in ("a", "b", "a"):
        command.ok("publish", queue, f'"{queue}"')
    found = command.ok("claim", "b", "a", "--limit", "5", "--lease", "2m", "--worker", "w")["leases"]
    assert [lease["message"]["payload"] for lease in found] == ["b", "a", "a"]
    assert {lease["worker"] for lease in found} == {"w"}


def test_claim_with_nothing_there_is_exit_3(command: Command) -> None:
    command.ok("publish", "q", "1", "--delay", "1h")
    empty = command("--json", "claim", "q", "--wait", "10ms")
    assert (empty.code, empty.document) == (3, {"leases": []})
    unknown = command("claim", "nope")
    assert unknown.code == 3
    assert "queue nope does not exist" in unknown.err


@pytest.mark.parametrize("status", ["pause", "close"])
def test_claim_says_that_a_queue_delivers_nothing(command: Command, status: str) -> None:
    command.ok("publish", "open", "1", "--delay", "1h")
    command.ok("publish", "shut", "1")
    state = command.ok(status, "shut")["queues"][0]["status"]
    answer = command("claim", "shut", "open")
    assert answer.code == 3
    assert answer.err.splitlines() == [
        "no message to deliver",
        f"shut is {state}; deliver again with: tampu resume shut",
    ]
    assert command("claim", "open").err == "no message to deliver\n"


def test_claim_with_a_key_that_may_not_look_is_no_error(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command.ok("publish", "q", "1", "--delay", "1h")

    def refuse(*_: object) -> None:
        raise tampu.Forbidden("this key may not view q")

    monkeypatch.setattr(tampu.Store, "stats", refuse)
    monkeypatch.setattr("tampu.broker.store.Queues.list", refuse)
    answer = command("claim", "q")
    assert (answer.code, answer.err) == (3, "no message to deliver\n")


def test_a_bad_receipt_is_refused_with_an_example(command: Command) -> None:
    id = command.ok("publish", "q", "1")["id"]
    for nonsense in ("nonsense", id, "/1a.2b"):
        answer = command("ack", nonsense)
        assert answer.code == 2
        assert "this is not a receipt\nhint: pass the receipt of a lease, such as emails/1a" in answer.err


def test_ack_keeps_the_result(command: Command, receipt: str) -> None:
    outcome = command.ok("ack", receipt, "--result", '{"sent": true}')["outcomes"][0]
    assert (outcome["state"], outcome["receipt"], outcome["error"]) == ("done", receipt, None)
    assert only(command).result == {"sent": True}
    assert command.ok("ack", receipt)["outcomes"][0]["state"] == "done"  # saying it again is no error


def test_nack_retries_after_the_delay_and_keeps_the_error(command: Command, receipt: str) -> None:
    command.ok("nack", receipt, "--error", "no network", "--delay", "1h", "--traceback", "Traceback: x")
    message = only(command)
    assert (message.state, message.last_error) == ("delayed", "no network")
    assert message.failures[0].traceback == "Traceback: x"
    assert message.failures[0].worker == "w1"


def test_reject_is_dead_now(command: Command, receipt: str) -> None:
    command.ok("reject", receipt, "--reason", "schema_invalid", "--error", "no field to")
    message = only(command)
    assert (message.state, message.reason, message.last_error) == ("dead", "schema_invalid", "no field to")


def test_release_gives_the_attempt_back(command: Command, receipt: str) -> None:
    command.ok("release", receipt)
    message = only(command)
    assert (message.state, message.attempts) == ("ready", 0)


def test_extend_keeps_the_lease(command: Command, receipt: str) -> None:
    assert command.ok("extend", receipt, "--by", "1h")["outcomes"][0]["extended"] is True
    assert command("extend", receipt).out == f"{receipt}  extended\n"


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "release", "extend"])
def test_a_lost_lease_is_exit_4_and_changes_nothing(command: Command, receipt: str, verb: str) -> None:
    with command.queue() as store:
        store.release(receipt)
        (newer,) = store.claim("q")
    before = command.fingerprint()
    answer = command(verb, receipt, "--json")
    assert (answer.code, answer.error["code"]) == (4, "lease_lost")
    assert command.fingerprint() == before
    assert command("ack", newer.receipt).code == 0


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "release", "extend"])
def test_a_receipt_of_another_tenant_is_exit_4(command: Command, receipt: str, verb: str) -> None:
    before = command.fingerprint()
    answer = command("--tenant", "other", verb, receipt, "--json")
    assert (answer.code, answer.error["code"]) == (4, "lease_lost")
    assert command.fingerprint() == before


def test_several_receipts_have_an_outcome_each(command: Command) -> None:
    for n in range(2):
        command.ok("publish", "q", str(n))
    good, bad = (lease["receipt"] for lease in command.ok("claim", "q", "-n", "2")["leases"])
    command.ok("nack", bad)
    answer = command("--json", "ack", good, bad)
    assert answer.code == 1
    assert [o["error"] and o["error"]["code"] for o in answer.document["outcomes"]] == [None, "lease_lost"]
    human = command("ack", good, bad)
    assert human.code == 1
    assert "lease_lost" in human.out
