"""Steering: `pause resume drain close cancel replay purge`."""

import pytest

import tampu
from tests.cli.run_command import Command

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_pause_resume_drain_close_change_what_a_queue_does(command: Command) -> None:
    command.ok("publish", "q", "1")
    assert command.ok("pause", "q") == {"queues": [{"queue": "q", "status": "paused"}]}
    assert command("claim", "q").code == 3
    assert command("drain", "q").out == "q is draining\n"
    assert command("publish", "q", "2").code == 1
    command.ok("close", "q")
    assert command("claim", "q").code == 3
    command.ok("resume", "q")
    assert command("claim", "q").code == 0


def test_pausing_several_queues_is_all_or_nothing(command: Command) -> None:
    command.ok("publish", "q", "1")
    before = command.fingerprint()
    answer = command("--json", "pause", "q", "nope")
    assert (answer.code, answer.error["code"]) == (3, "not_found")
    assert command.fingerprint() == before


def test_cancel_ends_what_waits_and_dry_run_only_tells(command: Command) -> None:
    id = command.ok("publish", "q", "1")["id"]
    before = command.fingerprint()
    tried = command.ok("cancel", id, "--dry-run")
    assert (tried["dry_run"], tried["outcomes"][0]["state"]) == (True, "cancelled")
    assert command.fingerprint() == before
    assert command.ok("cancel", id)["outcomes"][0]["state"] == "cancelled"
    assert command.ok("stats", "q")["queues"][0]["counts"]["cancelled"] == 1


def test_cancel_of_a_leased_message_asks_its_worker(command: Command) -> None:
    id = command.ok("publish", "q", "1")["id"]
    command.ok("claim", "q")
    assert command.ok("cancel", id, "--dry-run")["outcomes"][0]["state"] == "leased"
    assert command.ok("cancel", id)["outcomes"][0]["state"] == "leased"
    assert command.ok("show", id)["cancel_requested"] is True


def test_cancel_has_an_exit_code_for_each_end(command: Command) -> None:
    id = command.ok("publish", "q", "1")["id"]
    (dead,) = command.dead("other")
    for more in ([], ["--dry-run"]):
        assert command("cancel", NOBODY, *more).code == 3
        assert command("cancel", dead, *more).code == 1
        assert command("cancel", NOBODY, id, *more).code == 1
        assert command("cancel", NOBODY, NOBODY, *more).code == 3


def test_free_of_what_is_not_held_fails(command: Command) -> None:
    id = command.ok("publish", "q", "1")["id"]
    answer = command("--json", "free", id)
    assert (answer.code, answer.error["code"]) == (1, "invalid_state")


def test_replay_previews_then_replays(command: Command) -> None:
    ids = command.dead("q", 3)
    before = command.fingerprint()
    tried = command.ok("replay", "q", "--all", "--dry-run")
    assert (tried["would_replay"], tried["replayed"], tried["ids"]) == (3, 0, ids)
    assert "3 messages would be replayed" in command("replay", "q", "--all", "--dry-run").out
    assert command.fingerprint() == before
    done = command.ok("replay", "q", "--where", "error=no 1")
    assert (done["replayed"], done["ids"]) == (1, [ids[1]])
    assert command.ok("replay", "q", ids[0])["replayed"] == 1
    assert command.ok("replay", "q", "--all", "--limit", "5")["replayed"] == 1
    assert command.ok("stats", "q")["queues"][0]["counts"]["ready"] == 3


def test_replay_of_many_goes_in_steps(command: Command) -> None:
    command.dead("q", 1200)
    assert command("replay", "q", "--all").out == "1,200 messages of q replayed\n"
    assert command.ok("stats", "q")["queues"][0]["counts"]["ready"] == 1200


def test_replay_tells_which_ids_failed(command: Command) -> None:
    (dead,) = command.dead("q")
    answer = command("--json", "replay", "q", dead, NOBODY)
    assert (answer.code, answer.document["replayed"]) == (1, 1)
    assert answer.document["failed"][0]["error"]["code"] == "not_found"
    assert command("replay", "q", NOBODY).code == 3
    assert command("replay", "q", dead).code == 1  # it is ready by now


@pytest.mark.parametrize("words", [[], ["--all", "--where", "type=x"], [NOBODY, "--all"]])
def test_replay_wants_one_way_of_choosing(command: Command, words: list[str]) -> None:
    command.dead("q")
    assert command("replay", "q", *words).code == 2


def test_purge_removes_ended_messages_without_asking(command: Command) -> None:
    command.dead("q", 3)
    before = command.fingerprint()
    assert command.ok("purge", "q", "--state", "dead", "--dry-run")["would_remove"] == 3
    assert command.fingerprint() == before
    assert command.ok("purge", "q", "--state", "dead", "--state", "done")["removed"] == 3
    assert command.ok("stats", "q")["queues"][0]["counts"]["dead"] == 0


def test_purge_of_waiting_messages_needs_yes(command: Command) -> None:
    command.ok("publish", "q", "1")
    before = command.fingerprint()
    refused = command("--json", "purge", "q", "--state", "ready")
    assert (refused.code, refused.error["field"]) == (2, "yes")
    assert command.fingerprint() == before
    assert command("purge", "q", "--state", "ready", "--yes").out == "1 messages removed from q\n"


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("y\n", 0)])
def test_purge_asks_on_a_terminal(command: Command, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    command.ok("publish", "q", "1")
    monkeypatch.setattr("tampu.cli.streams.is_interactive", lambda: True)
    said = command("purge", "q", "--state", "ready", input=answer)
    assert "permanently remove 1 waiting messages of q" in said.err
    assert said.code == (130 if left else 0)
    assert command.ok("stats", "q")["queues"][0]["counts"]["ready"] == left


def test_leased_messages_cannot_be_purged(command: Command) -> None:
    command.ok("publish", "q", "1")
    command.ok("claim", "q")
    answer = command("--json", "purge", "q", "--state", "leased", "--yes")
    assert (answer.code, answer.error["code"]) == (1, "invalid_state")


def test_purge_tells_of_any_end_of_its_worker(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is not ours must not be reported as a missing answer."""
    command.dead("q")

    def broken(self: object, queue: str, **options: object) -> int:
        if options.get("dry_run"):
            return 1
        raise MemoryError("no more")

    monkeypatch.setattr(tampu.Store, "purge", broken)
    with pytest.raises(MemoryError, match="no more"):
        command("purge", "q", "--state", "dead")


def test_remove_says_what_is_in_the_queue_and_removes_it_when_confirmed(command: Command) -> None:
    command.dead("q", 2)
    command.ok("publish", "other", "1")
    dry = command("remove", "q", "--dry-run")
    assert dry.out == "q would be removed, with 2 messages (2 dead)\n"
    unsure = command("--json", "remove", "q")
    assert (unsure.code, unsure.error["field"]) == (2, "yes")
    assert "2 messages (2 dead)" in unsure.error["message"]
    assert command.ok("stats", "q")["queues"][0]["counts"]["dead"] == 2
    assert command.ok("remove", "q", "--yes") == {"queue": "q", "dry_run": False, "removed": 2, "would_remove": 0}
    assert [row["queue"] for row in command.ok("queues")["queues"]] == ["other"]
    assert command("remove", "q", "--yes").code == 3


def test_remove_refuses_messages_that_wait_unless_forced(command: Command) -> None:
    command.ok("publish", "q", "1")
    before = command.fingerprint()
    for words in (["remove", "q"], ["remove", "q", "--yes"]):
        refused = command("--json", *words)
        assert (refused.code, refused.error["code"]) == (1, "invalid_state")
    assert command("--json", "remove", "q", "--force").error["field"] == "yes"
    assert command.fingerprint() == before
    assert command.ok("remove", "q", "--force", "--yes")["removed"] == 1


def test_remove_refuses_leased_messages(command: Command) -> None:
    command.ok("publish", "q", "1")
    command.ok("claim", "q")
    refused = command("--json", "remove", "q", "--force", "--yes")
    assert (refused.code, refused.error["code"]) == (1, "invalid_state")
    assert "leased" in refused.error["message"]


def test_a_new_queue_is_made_with_how_to_remove_it(command: Command) -> None:
    assert "tampu remove typo" in command("config", "typo", "lease=1m").err
