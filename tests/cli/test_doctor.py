"""`tampu doctor`: a report in every condition, and never a file where there was none."""

import random
import sqlite3

import pytest

import tampu
from tests.cli.run_command import Command


def test_a_sound_store_is_exit_0(command: Command) -> None:
    command.ok("publish", "q", "1")
    found = command.ok("doctor")
    assert found["level"] in ("ok", "warn")
    assert found["store"] == "jobs.db"
    assert {"folder", "schema", "durability", "file", "indexes", "clock"} <= {f["what"] for f in found["checks"]}
    human = command("doctor")
    assert human.code == 0
    assert "no damage found" in human.out


def test_it_points_at_dead_letters_and_shut_queues(command: Command) -> None:
    command.dead("emails", 2)
    command.ok("publish", "q", "1")
    command.ok("pause", "q")
    answer = command("doctor")
    assert answer.code == 0
    assert "emails (2)" in answer.out
    assert "q (paused)" in answer.out


def test_a_missing_file_is_reported_and_not_made(command: Command) -> None:
    answer = command("--json", "doctor")
    assert (answer.code, answer.document["level"]) == (1, "bad")
    assert "does not exist" in answer.document["checks"][-1]["note"]
    assert list(command.path.parent.iterdir()) == []


def test_a_missing_folder_is_reported(command: Command) -> None:
    answer = command("doctor", "--url", "nowhere/jobs.db")
    assert answer.code == 1
    assert "create it first" in answer.out


@pytest.mark.parametrize("content", [b"hello, I am a text\n" * 100, b"x"])
def test_a_foreign_file_is_reported_and_left(command: Command, content: bytes) -> None:
    command.path.write_bytes(content)
    answer = command("--json", "doctor")
    assert answer.code == 1
    assert "foreign_file" in answer.document["checks"][-1]["note"]
    assert command.path.read_bytes() == content


def test_another_programs_database_is_reported_and_left(command: Command) -> None:
    with sqlite3.connect(command.path) as db:
        db.execute("CREATE TABLE theirs (a)")
    db.close()
    before = command.path.read_bytes()
    assert command("doctor").code == 1
    assert command.path.read_bytes() == before


def test_a_damaged_file_is_reported(command: Command) -> None:
    with command.queue() as store:
        store.publish_many("q", ["x" * 500] * 500)
    whole = command.path.read_bytes()
    command.path.write_bytes(whole[:4096] + random.Random(1).randbytes(4096 * 10) + whole[4096 * 11 :])
    answer = command("--json", "doctor")
    assert (answer.code, answer.document["level"]) == (1, "bad")
    assert "damaged" in str(answer.document["checks"])


def test_a_cut_file_is_reported(command: Command) -> None:
    with command.queue() as store:
        store.publish_many("q", ["x" * 500] * 500)
    command.path.write_bytes(command.path.read_bytes()[: 4096 * 3 + 17])
    answer = command("doctor")
    assert answer.code == 1


def test_a_file_of_a_newer_version_is_reported(command: Command) -> None:
    tampu.open(command.path, maintenance=False).close()
    with sqlite3.connect(command.path) as db:
        db.execute("UPDATE tampu_meta SET value = 99 WHERE name = 'schema'")
    db.close()
    answer = command("doctor")
    assert answer.code == 1
    assert "upgrade tampu" in answer.out


def test_a_url_of_no_engine_is_bad_input(command: Command) -> None:
    answer = command("--json", "doctor", "--url", "carrier-pigeon://loft")
    assert (answer.code, answer.error["code"]) == (2, "invalid_config")
